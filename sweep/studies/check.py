"""What is wrong with a study: shape first, then every label as the trial that it would become."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

import search_spaces
from sweep.studies import file as study_file
from sweep.studies.file import Fault, faults_of, merged
from sweep.studies.space import DECLARED, EXAMPLE, has_space, space_faults
from trainers import composition, registry, suites
from trainers.attacks.corruption import FOLDERS
from trainers.config import Recipe, Selection, kept_epoch
from trainers.data import dataset_facts, dataset_names
from trainers.models import misfit_of, model_names
from trainers.spelling import nearest
from trainers.values import as_float

SECTIONS = ("train", "selection", "search", "evaluation", "resources")
WHOLE = TypeAdapter(int)
LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+-]*")
LINF = "linf"
# What is usual on CIFAR-10 in the other norms.
RADII = {"l2": {"epsilon": "128/255", "step_size": "15/255"}, "l1": {"epsilon": "12", "step_size": "1"}}
SEARCH_SEEDS = (1000, 1001)  # unless a search sets its own
SEARCHED = "_searched"  # ends the label of a column whose values a search chose
ALL = "all"  # in place of a label: every method that has something to search

Study = TypeVar("Study", bound=BaseModel)


def checked(
    shape: type[Study], content: dict[str, Any], where: str, known_faults: Sequence[Fault] = ()
) -> tuple[Study, dict[str, dict[str, Any]]]:
    """The study behind a file's content and the hyperparameters of its labels, or one UserError with all its faults."""
    content = {key: value for key, value in content.items() if value is not None or key not in SECTIONS}
    faults = {fault.path: fault for fault in known_faults}
    study = None
    try:
        study = shape.model_validate(content)
    except ValidationError as error:
        faults.update((fault.path, fault) for fault in faults_of(error, shape))
    resolved: dict[str, dict[str, Any]] = {}
    for fault in _contents(content, resolved):
        # The shape's own fault says it better, and a fault of the study's recipe is not one of each method too.
        if not any(path in faults for path in _above(fault.path)):
            faults[fault.path] = fault
    if faults or study is None:
        raise study_file.refuse(where, list(faults.values()))
    return study, resolved


def _above(path: str) -> Iterator[str]:
    """The path itself and every place that holds it."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _contents(content: dict[str, Any], resolved: dict[str, dict[str, Any]]) -> Iterator[Fault]:
    """Faults that the shape does not show, found key by key so that one fault hides no other.

    `resolved` gets every label's hyperparameters with their defaults: of thousands of labels they are built once.
    """
    yield from _known(content, "dataset", dataset_names())
    yield from _known(content, "model", model_names())
    seeds = [_whole(seed) for seed in _listed(content, "seeds")]
    if seeds:
        times = Counter(seed for seed in seeds if seed is not None)
        twice = sorted(seed for seed, number in times.items() if number > 1)
        if twice:
            yield Fault(
                "seeds", f"{', '.join(map(str, twice))} given more than once; seeds are replicates", content["seeds"]
            )
    yield from _evaluation(content)
    train, selection = _mapping(content, "train"), _mapping(content, "selection")
    yield from _parts(Recipe, "train", train)
    yield from _parts(Selection, "selection", selection, norm=_norm(selection, _mapping(train, "attack")))
    yield from _images(content)
    methods = _mapping(content, "methods")
    if content.get("methods") == {}:
        yield Fault("methods", "is empty; name at least one, such as at", shows_value=False)
    for label, entry in methods.items():
        yield from _label(str(label), entry, train, selection, resolved)
    for label, entry in _mapping(content, "search").items():
        yield from _search(str(label), entry, methods, train, selection, seeds)


def _known(content: dict[str, Any], key: str, names: Sequence[str]) -> Iterator[Fault]:
    value = content.get(key)
    if isinstance(value, str) and value not in names:
        yield Fault(key, f"unknown {key}{nearest(value, names)} known: {', '.join(names)}", value)


def _evaluation(content: dict[str, Any]) -> Iterator[Fault]:
    evaluation = _mapping(content, "evaluation")
    suite = evaluation.get("suite", "main")
    if isinstance(suite, str) and suite not in suites.SUITES:
        rule = f"unknown suite{nearest(suite, suites.SUITES)} known: {', '.join(suites.SUITES)}"
        yield Fault("evaluation.suite", rule, suite)
    yield from _attacks(content, evaluation)
    norm = _norm(evaluation, _mapping(_mapping(content, "train"), "attack"))
    yield from _radius(evaluation, "evaluation.epsilon", norm)
    yield from _own_radii(evaluation, "evaluation", norm, ("epsilon",))
    checkpoints, selection = _listed(evaluation, "checkpoints"), _mapping(content, "selection")
    yield from _kept_epochs(content, evaluation)
    if "best_validation" in checkpoints and selection.get("validation", 0) == 0:
        rule = "best_validation needs held-out images; set selection.validation"
        yield Fault("evaluation.checkpoints", rule, checkpoints)
    if "best_test" in checkpoints and selection.get("protocol") == "heldout":
        rule = "best_test needs protocol: paper; heldout leaves the test images alone, so it keeps no such weights"
        yield Fault("evaluation.checkpoints", rule, checkpoints)


def _kept_epochs(content: dict[str, Any], evaluation: dict[str, Any]) -> Iterator[Fault]:
    epochs = _mapping(content, "train").get("epochs", Recipe().epochs)
    for key in ("checkpoints", "diagnosed"):
        for name in _listed(evaluation, key):
            number = kept_epoch(name) if isinstance(name, str) else None
            if number is not None and isinstance(epochs, int) and number > epochs:
                rule = f"{name} is beyond the end: the training has {epochs} epochs; take an earlier one, or last"
                yield Fault(f"evaluation.{key}", rule, name)


def _attacks(content: dict[str, Any], evaluation: dict[str, Any]) -> Iterator[Fault]:
    names = _listed(evaluation, "attacks")
    if names and evaluation.get("suite") is not None:
        rule = f"give attacks or a suite, not both; the suite is {evaluation['suite']!r}, null takes it away"
        yield Fault("evaluation.attacks", rule, names)
        return
    known = content.get("dataset") in dataset_names()
    classes = dataset_facts(content["dataset"]).classes if known else 10
    norm = _norm(evaluation, _mapping(_mapping(content, "train"), "attack"))
    for number, name in enumerate(names):
        try:
            found = suites.attacks([str(name)], classes=classes, norm=norm)
            if known and found[0].kind == "corruption" and content["dataset"] not in FOLDERS:
                raise ValueError(f"corruptions are there for {' and '.join(FOLDERS)} alone; leave {name} out")
        except ValueError as fault:
            yield Fault(f"evaluation.attacks.{number}", str(fault), shows_value=False)


def _images(content: dict[str, Any]) -> Iterator[Fault]:
    if content.get("dataset") not in dataset_names():
        return
    facts = dataset_facts(content["dataset"])
    misfit = misfit_of(content["model"], facts.classes, facts.shape) if content.get("model") in model_names() else None
    if misfit:
        yield Fault("model", f"{misfit} for {content['dataset']}", content["model"])
    evaluation, selection = _mapping(content, "evaluation"), _mapping(content, "selection")
    limits = (
        ("train_images", content.get("train_images"), facts.train_images),
        ("test_images", content.get("test_images"), facts.test_images),
        ("evaluation.images", evaluation.get("images"), content.get("test_images") or facts.test_images),
    )
    for path, value, most in limits:
        asked, known = _whole(value), _whole(most)
        if asked is not None and known is not None and asked > known:
            yield Fault(path, f"there are {known} in {content['dataset']} as the study uses it", value)
    most = _whole(content.get("train_images")) or facts.train_images
    yield from _held_out(selection, most, "selection")
    for section in ("methods", "search"):
        for label, entry in _mapping(content, section).items():
            if isinstance(entry, dict) and not entry.get("pin"):
                yield from _held_out(_mapping(entry, "selection"), most, f"{section}.{label}.selection")


def _held_out(selection: dict[str, Any], most: int, path: str) -> Iterator[Fault]:
    held_out = _whole(selection.get("validation"))
    if held_out is not None and held_out >= most:
        way_out = (
            f"; lower it, or set {path.removesuffix('.selection')}.pin: true" if path.startswith("search.") else ""
        )
        yield Fault(f"{path}.validation", f"leaves nothing of the {most} training images{way_out}", held_out)


def _label(
    label: str,
    entry: Any,
    train: dict[str, Any],
    selection: dict[str, Any],
    resolved: dict[str, dict[str, Any]],
) -> Iterator[Fault]:
    path = f"methods.{label}"
    if not LABEL.fullmatch(label):
        yield Fault(path, "a label is made of letters, digits, _, - and +", shows_value=False)
        return
    entry = {} if entry is None else entry
    if not isinstance(entry, dict):
        return
    name = entry.get("method") or label
    try:
        _, wrappers = composition.parse(str(name))
    except ValueError as fault:
        yield Fault(path, str(fault), shows_value=False)
        return
    for wrapper in registry.WRAPPERS.names():
        if entry.get(wrapper) is not None and wrapper not in wrappers:
            yield Fault(f"{path}.{wrapper}", f"the method is {name!r}; write {name}+{wrapper}", shows_value=False)
    hyperparameters = entry.get("hyperparameters") or {}
    if isinstance(hyperparameters, dict):
        try:
            resolved[label] = composition.resolved_hyperparameters(str(name), hyperparameters)
        except (ValueError, TypeError) as fault:
            yield Fault(f"{path}.hyperparameters", str(fault), shows_value=False)
    yield from _parts(Recipe, f"{path}.train", _mapping(entry, "train"), train)
    own, attack = merged(selection, _mapping(entry, "selection")), merged(train, _mapping(entry, "train")).get("attack")
    norm = _norm(own, attack)
    yield from _parts(Selection, f"{path}.selection", _mapping(entry, "selection"), selection, norm)
    if norm != _norm(selection, _mapping(train, "attack")):
        yield from _own_radii(own, f"{path}.selection", norm)
    mixes = _mapping(merged(train, _mapping(entry, "train")), "augmentation").get("cutmix") is not None
    if mixes and not composition.method_of(str(name)).mixed_labels:
        able = [one for one in registry.METHODS.names() if registry.METHODS.get(one).mixed_labels]
        rule = f"the loss of {name} takes no mixed labels, which cutmix makes; those of {', '.join(able)} do"
        yield Fault(f"{path}.train.augmentation.cutmix", rule, shows_value=False)


def _search(
    label: str, entry: Any, methods: dict[str, Any], train: dict[str, Any], selection: dict[str, Any], seeds: list[Any]
) -> Iterator[Fault]:
    path = f"search.{label}"
    if label == ALL and label not in methods:
        rule = f"none of the study's methods has such a search space; known: {', '.join(search_spaces.names())}"
        yield Fault(path, rule, shows_value=False)
        return
    if label not in methods:
        rule = (
            f"is none of the study's methods{nearest(label, map(str, methods))} known: {', '.join(map(str, methods))}"
        )
        yield Fault(path, rule, shows_value=False)
        return
    entry, method = entry or {}, methods[label] or {}
    if not isinstance(entry, dict) or not isinstance(method, dict):
        return
    if f"{label}{SEARCHED}" in methods:
        rule = f"its choice stands in a column {label}{SEARCHED}; give the study's method of that name another label"
        yield Fault(path, rule, shows_value=False)
    yield from _space(path, str(method.get("method") or label), entry)
    train = merged(train, _mapping(method, "train"))
    yield from _parts(Recipe, f"{path}.train", _mapping(entry, "train"), train)
    own = merged(selection, _mapping(method, "selection"))
    norm = _norm(merged(own, _mapping(entry, "selection")), merged(train, _mapping(entry, "train")).get("attack"))
    yield from _parts(Selection, f"{path}.selection", _mapping(entry, "selection"), own, norm)
    chosen_on = merged(own, _mapping(entry, "selection"))
    if not entry.get("pin") and not chosen_on.get("validation"):
        rule = "a search chooses on held-out images; set its selection: {protocol: heldout, validation: …}"
        yield Fault(f"{path}.selection", rule, shows_value=False)
    key = "seed" if "seed" in entry else "seeds"
    given = [entry["seed"]] if "seed" in entry else _listed(entry, "seeds") or SEARCH_SEEDS
    own_seeds = [_whole(seed) for seed in given]
    both = [seed for seed in own_seeds if seed is not None and seed in seeds]
    if not entry.get("pin") and both:
        rule = (
            f"is a reported seed too, and the search would choose by its result; report other seeds or set {path}.{key}"
        )
        yield Fault(f"{path}.{key}", rule, both[0])
    if len(set(own_seeds)) < len(own_seeds):
        yield Fault(f"{path}.{key}", "holds a seed twice; seeds are replicates", entry.get(key))


def _space(path: str, method: str, entry: dict[str, Any]) -> Iterator[Fault]:
    space = entry.get("space", "paper")
    try:
        composition.parse(method)
    except ValueError:
        return  # said of the method itself
    if isinstance(space, dict):
        yield from (Fault(f"{path}.space", fault, shows_value=False) for fault in space_faults(method, space))
    if not isinstance(space, str | dict) or has_space(method, space):
        return
    if space == DECLARED or method.split("+")[0] not in registry.METHODS.shipped:
        rule = f"{method} declares no hyperparameter(…, low=…, high=…) or choices; write a space, such as {EXAMPLE}"
    else:
        known = ", ".join(search_spaces.names())
        rule = f"method {method!r} has no search space; known: {known}; write space: {EXAMPLE} or space: {DECLARED}"
    yield Fault(path, rule, shows_value=False)


def for_all(search: dict[Any, Any], methods: dict[Any, Any]) -> dict[Any, Any]:
    """`all` as an entry for every label whose method has such a space; what a label says itself goes before it.

    Where none has one, or where it is no mapping, `all` stays for the check to refuse.
    """
    shared = {} if ALL in search and search[ALL] is None else search.get(ALL)
    if ALL in methods or not isinstance(shared, dict):
        return search
    found = {label: entry for label, entry in search.items() if label != ALL}
    for label, entry in methods.items():
        method = (entry or {}).get("method") or label if isinstance(entry, dict | None) else label
        own = found.get(label)
        if isinstance(own, dict) or (label in found and own is None):
            found[label] = merged(shared, own or {})
        elif label not in found and _has(str(method), shared.get("space", "paper")):
            found[label] = dict(shared)
    return found if found else search


def _has(method: str, space: Any) -> bool:
    try:
        return isinstance(space, str) and has_space(method, space)
    except (ValueError, TypeError):  # an unknown method is said where it stands
        return False


def _parts(
    model: type[BaseModel],
    path: str,
    value: dict[str, Any],
    base: dict[str, Any] | None = None,
    norm: str | None = None,
) -> Iterator[Fault]:
    """Faults of a recipe or selection, or of an override of one; those that the base has already are not repeated."""
    if base is not None and not value:
        return
    whole = value if base is None else merged(base, value)
    known = set() if base is None else {fault.path for fault in _validate(model, base, path)}
    yield from (fault for fault in _validate(model, whole, path) if fault.path not in known)
    radii, place = (_mapping(value, "attack"), f"{path}.attack") if model is Recipe else (value, path)
    given = _mapping(whole, "attack") if model is Recipe else whole
    norm = norm or _norm(given)
    for key in ("epsilon", "step_size"):
        yield from _radius(radii, f"{place}.{key}", norm)
    if base is None or "norm" in radii:
        yield from _own_radii(given, place, norm)


def _validate(model: type[BaseModel], value: dict[str, Any], path: str) -> list[Fault]:
    try:
        model.model_validate(value)
    except ValidationError as error:
        return faults_of(error, model, path)
    return []


def _norm(*places: Any) -> str:
    """The first of these that names one decides."""
    named = [place.get("norm") for place in places if isinstance(place, dict)]
    return str(next(filter(None, named), LINF))


def _own_radii(
    mapping: dict[str, Any], path: str, norm: str, keys: Sequence[str] = ("epsilon", "step_size")
) -> Iterator[Fault]:
    """The defaults are radii of L∞: 8/255 of L2 would be next to nothing, and nobody would notice."""
    for key in keys:
        if norm in RADII and mapping.get(key) is None:
            rule = f"must be given for norm {norm}, for example {RADII[norm][key]}; its default is one of linf"
            yield Fault(f"{path}.{key}", rule, shows_value=False)


def _radius(mapping: dict[str, Any], path: str, norm: str = LINF) -> Iterator[Fault]:
    if norm != LINF:
        return
    value = mapping.get(path.rpartition(".")[2])
    try:
        too_large = value is not None and as_float(value) > 1
    except (ValueError, TypeError, ZeroDivisionError, OverflowError):
        return  # the shape's own check says so
    if too_large:
        yield Fault(path, "must be at most 1: pixels lie in [0, 1], so write for example 8/255", value)


def _whole(value: Any) -> int | None:
    """The whole number that the study's shape makes of 2000, 2e3 or '2000'."""
    try:
        return WHOLE.validate_python(value)
    except ValidationError:
        return None


def _listed(content: dict[str, Any], key: str) -> list[Any]:
    value = content.get(key)
    return list(value) if isinstance(value, list | tuple) else []


def _mapping(content: dict[str, Any], key: str) -> dict[str, Any]:
    value = content.get(key)
    return value if isinstance(value, dict) else {}
