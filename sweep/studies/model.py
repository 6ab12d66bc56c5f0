"""The `Study` model: data set, network, methods, seeds and recipe, validated as a whole before any trial starts.

Does not import torch.
"""

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
from trainers import composition
from trainers.config import Recipe, Selection, TrialConfig, kept_epoch
from trainers.plugins import registry
from trainers.values import NormName, Strict

Part = TypeVar("Part", Recipe, Selection)


def _or_empty(value: Any) -> Any:
    return {} if value is None else value


def searched(label: str) -> str:
    """Return the name of the column that holds the result of a label's search."""
    return f"{label}{SEARCHED}"


class Study(Strict):
    """One study file: the methods, their training recipe, the data set, the network and the evaluation attacks."""

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

    # Cached properties instead of pydantic's private attributes: reading one of those costs about a microsecond, and
    # each of thousands of labels reads three.
    @cached_property
    def _configs(self) -> dict[str, TrialConfig]:
        return {}

    @cached_property
    def _templates(self) -> dict[tuple[str, str], TrialConfig]:
        return {}

    @cached_property
    def _resolved(self) -> dict[str, dict[str, Any]]:
        """Return the validated hyperparameters by label, filled in by `load`."""
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
        """Load and check a study from its file, or from the content in `written`.

        `methods` selects labels; a known method without a label is added with its defaults. A plug-in's method becomes
        a column of its own. All faults are raised together as one UserError.
        """
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
                # Drop the searches of labels that --methods excludes. A misspelt label remains a fault.
                left_out = set(listed) - set(content["methods"])
                content["search"] = {key: value for key, value in content["search"].items() if key not in left_out}
                content["search"] = for_all(content["search"], content["methods"])
                if methods is not None:
                    content["search"].pop(ALL, None)  # none of the selected methods has a search space
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
        """Map each table column to its label; a searched label has a second column, for the values its search chose."""
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
        """Return the full configuration of a label's trial, with all defaults written out."""
        if hyperparameters is not None:
            return self._build(label, hyperparameters, seed)
        known = self._configs
        if label not in known:
            known[label] = self._build(label, {}, seed)
        config = known[label]
        return config if config.seed == seed else config.model_copy(update={"seed": seed})

    def search_config(self, label: str, hyperparameters: Mapping[str, Any], seed: int | None = None) -> TrialConfig:
        """Return the configuration of a search candidate; `seed` defaults to the first seed of the search."""
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
        # Labels that differ only in hyperparameters share a template: validating ten thousand copies takes seconds.
        others = entry.model_fields_set - {"method", "display", "hyperparameters"}
        key = (entry.method or label, entry.model_dump_json(include=others) if others else "")
        templates = self._templates
        if key not in templates:
            templates[key] = self.template(label, resolved)
        return templates[key].model_copy(update={"hyperparameters": resolved, "seed": seed})

    def template(self, label: str, hyperparameters: dict[str, Any]) -> TrialConfig:
        """Return the configuration of a label with the given hyperparameters, which are not checked."""
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
        """Return a label's selection, extended by the epochs whose weights the evaluation needs.

        Epochs beyond the end of the training are dropped. A recipe measured in steps keeps none, because its number of
        epochs is known only once its data are loaded.
        """
        selection = _overridden(self.selection, entry.selection)
        asked = map(kept_epoch, (*self.evaluation.checkpoints, *self.evaluation.diagnosed))
        last = 0 if recipe.steps else recipe.epochs
        kept = sorted({epoch for epoch in (*(selection.keep or ()), *asked) if epoch is not None and epoch <= last})
        return selection.model_copy(update={"keep": tuple(kept) or None})


def _name_faults(content: Mapping[str, Any], shipped: Mapping[str, Any], name: str) -> Iterator[Fault]:
    """Refuse other data or another network under a shipped study's name, by which papers' tables find their rows."""
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
    """Return the absolute path of a user's paper folder, so that reports find it from anywhere; else the name as is."""
    folder = beside / str(name)
    return str(folder.resolve()) if (folder / "paper.yaml").is_file() else name


def _overridden(base: Part, changes: Mapping[str, Any]) -> Part:
    return type(base).model_validate(merged(base.model_dump(), changes)) if changes else base
