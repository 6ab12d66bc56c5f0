"""A study: data set, model, methods, seeds and recipe, checked as a whole before anything starts. Loads no torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, create_model, model_validator

from sweep import studies
from sweep.errors import UserError
from sweep.studies import file as study_file
from sweep.studies import own
from sweep.studies.check import ALL, SEARCH_SEEDS, SEARCHED, checked, for_all
from sweep.studies.file import merged
from trainers import composition, registry, suites
from trainers.config import Recipe, Selection, TrialConfig, is_checkpoint, kept_epoch
from trainers.spelling import nearest
from trainers.values import Amount, Hyperparameter, NormName, Strict

Part = TypeVar("Part", Recipe, Selection)


def wrapper_field(name: str) -> Any:
    return Field(None, description=f"settings of +{name}", examples=[{}])


def _or_empty(value: Any) -> Any:
    return {} if value is None else value


def auto_or_number(value: Any) -> Any:
    if value == "auto":
        return None
    if value is None or isinstance(value, bool):
        raise ValueError("must be auto or a number")
    return value


def _share_of_one_device(value: float | None) -> float | None:
    if value is not None and value > 1:
        raise ValueError("one trial uses one device: 1, a share such as 0.5, or 0 for the CPU")
    if value is not None and 0 < value < 0.0001:
        raise ValueError("Ray counts shares in ten-thousandths: at least 0.0001, or 0 for the CPU")
    return value


def auto_or_bytes(value: Any) -> Any:
    if value == "auto":
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", str(value), re.IGNORECASE)
    if not match or isinstance(value, bool):
        raise ValueError("must be auto, or an amount such as 8GB")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))


def _checkpoint(value: Any) -> Any:
    if value == "headline" or (isinstance(value, str) and is_checkpoint(value)):
        return value
    raise ValueError("must be headline, last, best_test, best_validation or epoch-N, such as epoch-100")


CheckpointName = Annotated[str, BeforeValidator(_checkpoint)]


class _Entry(Strict):
    """One column of the tables. Overrides are merged into the study's own `train` and `selection`."""

    method: str | None = Field(
        None, description="base method and wrappers; the label itself unless given", examples=["sovr+awp"]
    )
    display: str | None = Field(None, description="the column's name in tables and figures", examples=["SOVR (ours)"])
    hyperparameters: dict[str, Hyperparameter] = Field(
        {}, description="of the method; the rest keep their defaults", examples=[{"beta": 6.0}]
    )
    train: dict[str, Any] = Field(
        {}, description="parts of `train` that differ for this column", examples=[{"learning_rate": 0.01}]
    )
    selection: dict[str, Any] = Field(
        {}, description="parts of `selection` that differ for this column", examples=[{"ties": "last"}]
    )


if TYPE_CHECKING:
    MethodEntry = _Entry
else:  # the settings of each wrapper stand in the entry, under the wrapper's name
    _settings = {name: (registry.WRAPPERS.get(name) | None, wrapper_field(name)) for name in registry.WRAPPERS.names()}
    MethodEntry = create_model("MethodEntry", __base__=_Entry, **_settings)


Objective = Literal["margin", "pgd", "clean"]


class Search(Strict):
    """What is searched for one label, with seeds of its own: the reported seeds never choose anything."""

    space: Literal["paper", "fine", "continuous", "declared"] | dict[str, Any] = Field(
        "paper",
        description="what is varied: a space by name, the method's declared ranges, or ranges by hyperparameter",
        examples=[{"beta": [1, 10, "log"]}],
    )
    sampler: Literal["tpe", "grid"] = Field("tpe", description="proposes candidates by what it saw, or all of a grid")
    candidates: int = Field(8, ge=1, description="how many are tried; of a grid at most")
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(
        SEARCH_SEEDS, min_length=1, description="of the search alone; a reported seed is refused"
    )
    epochs: int | None = Field(None, ge=1, description="of a candidate; the study's if absent", examples=[30])
    pruner: Literal["asha", "none"] = Field("asha", description="whether hopeless candidates end early")
    objective: Objective | Annotated[tuple[Objective, ...], Field(min_length=1)] = Field(
        "margin", description="accuracy on held-out images: under an attack on margins, under PGD, or clean"
    )
    pin: bool = Field(False, description="use the study's values alone and search nothing")
    train: dict[str, Any] = Field(
        {}, description="parts of `train` that differ for candidates", examples=[{"attack": {"steps": 5}}]
    )
    selection: dict[str, Any] = Field(
        {},
        description="parts of `selection` that differ for candidates",
        examples=[{"protocol": "heldout", "validation": 1000}],
    )

    @model_validator(mode="before")
    @classmethod
    def _one_seed(cls, content: Any) -> Any:
        """`seed: 1000` is short for `seeds: [1000]`."""
        if isinstance(content, dict) and "seed" in content and "seeds" not in content:
            content = {**content, "seeds": [content["seed"]]}
            del content["seed"]
        return content

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The first one decides who is pruned."""
        return (self.objective,) if isinstance(self.objective, str) else self.objective


class Evaluation(Strict):
    """What finished weights are attacked with, on test images."""

    suite: str | None = Field("main", description=f"a set of attacks: {', '.join(suites.SUITES)}")
    attacks: tuple[str, ...] = Field((), description="in place of a suite", examples=[["clean", "pgd-50", "square"]])
    epsilon: Amount = Field("8/255", description="radius of the attacks")
    norm: NormName | None = Field(None, description="of the attacks; that of train.attack if absent", examples=["l2"])
    images: int | None = Field(None, ge=1, description="the first so many test images; all if absent", examples=[1000])
    shards: int = Field(1, ge=1, description="pieces that one evaluation is cut into, to run at once")
    checkpoints: tuple[CheckpointName, ...] = Field(
        ("headline",),
        description="weights that are attacked: headline (as the protocol selects), last, best_test, best_validation, "
        "epoch-N (after N epochs)",
    )
    batch_size: int = Field(256, ge=1, description="images per forward of an attack")
    counterexamples: bool = Field(
        True, description="keep one adversarial image for each image that an attack fools, for sweep.verify"
    )
    diagnostics: bool = Field(False, description="also margins, gradient norms and potentially misclassified images")
    diagnosed: tuple[CheckpointName, ...] = Field(
        (), description="further checkpoints whose margins are measured, without attacks", examples=[["epoch-100"]]
    )


class Resources(Strict):
    """Per trial; absent (auto) is chosen from the devices at hand."""

    gpus: Annotated[
        Annotated[float, Field(ge=0, allow_inf_nan=False)] | None,
        BeforeValidator(auto_or_number),
        AfterValidator(_share_of_one_device),
    ] = Field(None, description="of one trial; parts of one share a GPU", examples=[0.5])
    cpus: Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None, BeforeValidator(auto_or_number)] = Field(
        None, description="of one trial", examples=[4]
    )
    memory: Annotated[int | None, BeforeValidator(auto_or_bytes)] = Field(
        None, description="that one trial needs", examples=["8GB"]
    )
    retries: int = Field(3, ge=0, description="times a trial is started again from its last checkpoint")
    hang_minutes: Annotated[float, Field(gt=0)] = Field(60.0, description="without progress, then it counts as hung")


def searched(label: str) -> str:
    """The column of what the search of a label chose."""
    return f"{label}{SEARCHED}"


class Study(Strict):
    """One YAML file: which methods are trained how, on what, and what they are attacked with."""

    name: str = Field(
        pattern=r"^[\w-]+$",
        description="of the study in stores and tables; the file's unless given",
        examples=["my_mnist"],
    )
    title: str = Field(description="shown above tables and figures", examples=["MNIST, small CNN"])
    dataset: str = Field(description="by name", examples=["mnist"])
    model: str = Field(description="the network, by name", examples=["small_cnn"])
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(
        (0, 1, 2), min_length=1, description="one training of every column each; n in tables"
    )
    train: Recipe = Field(Recipe(), description="how one model is trained")
    selection: Selection = Field(Selection(), description="which epoch's weights are kept")
    methods: dict[str, Annotated[MethodEntry, BeforeValidator(_or_empty)]] = Field(
        min_length=1, description="columns of the tables by label", examples=[{"at": {}, "trades": {}}]
    )
    search: dict[str, Annotated[Search, BeforeValidator(_or_empty)]] = Field(
        {},
        description="hyperparameter searches by label, or `all`; the choice is a column `LABEL_searched`",
        examples=[{"trades": {"candidates": 4}}],
    )
    evaluation: Evaluation = Field(Evaluation(), description="attacks on finished weights")
    resources: Resources = Field(Resources(), description="what one trial takes of the machine")
    train_images: int | None = Field(
        None, ge=1, description="use only the first so many training images", examples=[5000]
    )
    test_images: int | None = Field(None, ge=1, description="use only the first so many test images", examples=[1000])
    papers: tuple[str, ...] = Field(
        (),
        description="whose tables and claims are shown beside ours: shipped papers by name, own ones by folder",
        examples=[["sovr"]],
    )

    _configs: dict[str, TrialConfig] = PrivateAttr(default_factory=dict)
    _templates: dict[tuple[str, str], TrialConfig] = PrivateAttr(default_factory=dict)
    _resolved: dict[str, dict[str, Any]] = PrivateAttr(default_factory=dict)  # hyperparameters as they were checked

    @classmethod
    def load(
        cls,
        name_or_path: str | Path = "digits",
        overrides: Iterable[str] = (),
        methods: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
        plugins: Sequence[str | Path] = (),
        written: Mapping[str, Any] | None = None,
    ) -> Study:
        """The checked study, from its file or as `written` down elsewhere. `methods` keeps these labels (a known method
        that has none is added with its defaults); a plug-in's method becomes a column of its own. All faults are
        raised as one UserError."""
        path = Path(name_or_path) if written is not None else studies.find(name_or_path)
        content = study_file.read(path) if written is None else dict(written)
        as_written, overrides = dict(content), list(overrides)
        study_file.override(content, overrides)
        content.pop("margins", None)  # always recorded; files of earlier versions ask for it
        content.setdefault("name", re.sub(r"[^\w-]", "_", path.stem))
        if isinstance(content.get("papers"), list):
            content["papers"] = [_paper(name, path.parent) for name in content["papers"]]
        if seeds is not None:
            content["seeds"] = list(seeds)
        loaded = _load_plugins(plugins)
        own_faults = list(own.register(content, as_written, path.parent))
        if isinstance(content.get("methods"), dict):
            listed = content["methods"]
            content["methods"] = _selected(listed, methods, loaded)
            if isinstance(content.get("search"), dict):
                # What was left out on purpose needs no search; a misspelt label is still a fault.
                left_out = set(listed) - set(content["methods"])
                content["search"] = {key: value for key, value in content["search"].items() if key not in left_out}
                content["search"] = for_all(content["search"], content["methods"])
                if methods is not None:
                    content["search"].pop(ALL, None)  # none of these few has something to search
        where = f"study {path.stem!r}" if path.parent == studies.FOLDER else f"study {path}"
        if overrides:
            where += f" with --set {' --set '.join(overrides)}"
        study, resolved = checked(cls, content, where, own_faults)
        study._resolved.update(resolved)
        return study

    @property
    def labels(self) -> list[str]:
        return list(self.methods)

    def searches(self) -> dict[str, Search]:
        return {label: search for label, search in self.search.items() if not search.pin}

    def columns(self) -> dict[str, str]:
        """Every column of the tables and the label behind it: what a search chose stands beside the study's values."""
        found, searches = {}, self.searches()
        for label in self.methods:
            found[label] = label
            if label in searches:
                found[searched(label)] = label
        return found

    @property
    def evaluation_norm(self) -> NormName:
        return self.evaluation.norm or self.train.attack.norm

    def method(self, label: str) -> str:
        return self.methods[label].method or label

    def config(self, label: str, hyperparameters: Mapping[str, Any] | None = None, seed: int = 0) -> TrialConfig:
        """The whole configuration of a label's trial, with all defaults written out."""
        if hyperparameters is not None:
            return self._build(label, hyperparameters, seed)
        known = self._configs
        if label not in known:
            known[label] = self._build(label, {}, seed)
        config = known[label]
        return config if config.seed == seed else config.model_copy(update={"seed": seed})

    def search_config(self, label: str, hyperparameters: Mapping[str, Any], seed: int | None = None) -> TrialConfig:
        """The configuration of one candidate of a label's search, with the first of its seeds unless one is given."""
        search = self.search[label]
        config = self.config(label, hyperparameters, search.seeds[0] if seed is None else seed)
        train = merged(search.train, {"epochs": search.epochs} if search.epochs else {})
        margin = {"margin": True} if "margin" in search.objectives else {}
        changed = {
            "recipe": _overridden(config.recipe, train),
            "selection": _overridden(config.selection, {**search.selection, **margin, "keep": None}),
        }
        return config.model_copy(update=changed)

    def _build(self, label: str, hyperparameters: Mapping[str, Any], seed: int) -> TrialConfig:
        entry = self.methods[label]
        resolved = self._resolved.get(label) if not hyperparameters else None
        if resolved is None:
            given = {**entry.hyperparameters, **hyperparameters}
            resolved = composition.resolved_hyperparameters(self.method(label), given)
        # Labels that differ in hyperparameters alone share all the rest: checking it ten thousand times takes seconds.
        key = (entry.method or label, entry.model_dump_json(exclude={"method", "display", "hyperparameters"}))
        templates = self._templates
        if key not in templates:
            templates[key] = self.template(label, resolved)
        return templates[key].model_copy(update={"hyperparameters": resolved, "seed": seed})

    def template(self, label: str, hyperparameters: dict[str, Any]) -> TrialConfig:
        """The configuration of a label with these hyperparameters, whatever they are."""
        entry = self.methods[label]
        name = composition.canonical(self.method(label))
        base, wrappers = composition.parse(name)
        settings = {wrapper: getattr(entry, wrapper) or registry.WRAPPERS.get(wrapper)() for wrapper in wrappers}
        recipe = _overridden(self.train, entry.train)
        return TrialConfig(
            dataset=self.dataset,
            model=self.model,
            method=name,
            hyperparameters=hyperparameters,
            wrappers=settings,
            recipe=recipe,
            selection=self._selection(entry, recipe),
            train_images=self.train_images,
            test_images=self.test_images,
            plugin=registry.fingerprint(base, self.model, self.dataset),
        )

    def _selection(self, entry: MethodEntry, recipe: Recipe) -> Selection:
        """With the epochs whose weights the evaluation asks for, as far as the training has them.

        A training of so many steps counts its epochs only when it knows its data: it keeps none.
        """
        selection = _overridden(self.selection, entry.selection)
        asked = map(kept_epoch, (*self.evaluation.checkpoints, *self.evaluation.diagnosed))
        last = 0 if recipe.steps else recipe.epochs
        kept = sorted({epoch for epoch in (*(selection.keep or ()), *asked) if epoch is not None and epoch <= last})
        return selection.model_copy(update={"keep": tuple(kept) or None})


def _paper(name: Any, beside: Path) -> Any:
    """A folder of the user's own by its whole path, so that reports find it from anywhere; else as it is."""
    folder = beside / str(name)
    return str(folder.resolve()) if (folder / "paper.yaml").is_file() else name


def _overridden(base: Part, changes: Mapping[str, Any]) -> Part:
    return type(base).model_validate(merged(base.model_dump(), changes)) if changes else base


def _load_plugins(paths: Sequence[str | Path]) -> list[str]:
    """The names of those that are methods."""
    try:
        composition.method_names()  # a fault of an installed one is said once, not for every label
        loaded = [registry.load_plugin(path) for path in paths]
        return [name for name in loaded if name in registry.METHODS.names()]
    except ValueError as fault:
        raise UserError(str(fault)) from None


def _selected(entries: dict[Any, Any], wanted: Sequence[str] | None, plugins: Iterable[str]) -> dict[Any, Any]:
    for name in plugins:
        used = {
            (entry or {}).get("method", label)
            for label, entry in entries.items()
            if entry is None or isinstance(entry, dict)
        }
        if not any(str(method).split("+")[0] == name for method in used):
            entries = {**entries, name: {}}
    if wanted is None:
        return entries
    if not wanted:
        raise UserError(f"--methods is empty; the study has {', '.join(map(str, entries))}")
    # An entry that no method is behind stays, for the study's check to name: a misspelt --set leaves one.
    chosen = {label: entry for label, entry in entries.items() if not _is_known(label, entry)}
    faults = []
    for label in wanted:
        label = label if label in entries else label.removesuffix(SEARCHED)  # its search comes with it
        if label in entries:
            chosen[label] = entries[label]
            continue
        try:
            composition.parse(label)
            chosen[label] = {}
        except ValueError as fault:
            known = [*map(str, entries), *composition.method_names()]
            faults.append(str(fault) if "+" in label else f"unknown {label!r}{nearest(label, known)}".rstrip(";"))
    if faults:
        raise UserError(f"--methods: {'; '.join(faults)}\nthe study has {', '.join(map(str, entries))}")
    return chosen


def _is_known(label: Any, entry: Any) -> bool:
    name = entry.get("method") if isinstance(entry, dict) else None
    try:
        composition.parse(str(name or label))
    except ValueError:
        return False
    return True
