"""A study: data set, model, methods, seeds and recipe, checked as a whole before anything starts. Loads no torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field

from sweep import studies
from sweep.studies import file as study_file
from sweep.studies import own
from sweep.studies.check import checked
from sweep.studies.check_search import ALL, SEARCHED, for_all
from sweep.studies.columns import load_plugins, selected
from sweep.studies.file import Fault, merged
from sweep.studies.sections import Evaluation, MethodEntry, Resources, Search
from trainers import composition, registry
from trainers.config import Recipe, Selection, TrialConfig, kept_epoch
from trainers.values import NormName, Strict

Part = TypeVar("Part", Recipe, Selection)


def _or_empty(value: Any) -> Any:
    return {} if value is None else value


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
    dataset: str = Field(description="by name, or your own: folder:PATH, npz:PATH, my_data.py:load", examples=["mnist"])
    model: str = Field(description="the network, by name, or your own: my_net.py:build", examples=["small_cnn"])
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

    # No private attributes of pydantic, each look at which takes a microsecond: thousands of labels take three.
    @cached_property
    def _configs(self) -> dict[str, TrialConfig]:
        return {}

    @cached_property
    def _templates(self) -> dict[tuple[str, str], TrialConfig]:
        return {}

    @cached_property
    def _resolved(self) -> dict[str, dict[str, Any]]:
        """Hyperparameters as they were checked."""
        return {}

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
        if written is not None:
            own.require_code_from_user(content, overrides, path.name)
        content.pop("margins", None)  # always recorded; files of earlier versions ask for it
        content.setdefault("name", re.sub(r"[^\w-]", "_", path.stem))
        if isinstance(content.get("papers"), list):
            content["papers"] = [_paper(name, path.parent) for name in content["papers"]]
        if seeds is not None:
            content["seeds"] = list(seeds)
        loaded = load_plugins(plugins)
        own_faults = list(own.register(content, as_written, path.parent))
        if written is None and path.parent == studies.FOLDER:
            own_faults += _name_faults(content, as_written, path.stem)
        if isinstance(content.get("methods"), dict):
            listed = content["methods"]
            content["methods"] = selected(listed, methods, loaded)
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
        attacked: dict[str, Any] = {name: True for name in ("margin", "quick") if name in search.objectives}
        changed = {
            "recipe": _overridden(config.recipe, train),
            "selection": _overridden(config.selection, {**search.selection, **attacked, "keep": None}),
        }
        return config.model_copy(update=changed)

    def _build(self, label: str, hyperparameters: Mapping[str, Any], seed: int) -> TrialConfig:
        entry = self.methods[label]
        resolved = self._resolved.get(label) if not hyperparameters else None
        if resolved is None:
            given = {**entry.hyperparameters, **hyperparameters}
            resolved = composition.resolved_hyperparameters(self.method(label), given)
        # Labels that differ in hyperparameters alone share all the rest: checking it ten thousand times takes seconds.
        others = entry.model_fields_set - {"method", "display", "hyperparameters"}
        key = (entry.method or label, entry.model_dump_json(include=others) if others else "")
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


def _name_faults(content: Mapping[str, Any], shipped: Mapping[str, Any], name: str) -> Iterator[Fault]:
    """Refuse other data or another network under a shipped study's name: papers' tables find their rows by it."""
    if content["name"] not in studies.shipped():
        return
    for key, things in (("dataset", registry.DATASETS), ("model", registry.NETWORKS)):
        value = content.get(key)
        if value != shipped[key] and value in things.names():
            free = re.sub(r"[^\w-]+", "_", f"{name}_{value}").strip("_")
            rule = (
                f"a shipped study's name stands for its own data and network in tables, and {name} has {key} "
                f"{shipped[key]}; with {key} {value} give it a name of its own: --set name={free}"
            )
            yield Fault("name", rule, content["name"])
            return


def _paper(name: Any, beside: Path) -> Any:
    """A folder of the user's own by its whole path, so that reports find it from anywhere; else as it is."""
    folder = beside / str(name)
    return str(folder.resolve()) if (folder / "paper.yaml").is_file() else name


def _overridden(base: Part, changes: Mapping[str, Any]) -> Part:
    return type(base).model_validate(merged(base.model_dump(), changes)) if changes else base
