"""From records to a cell's values: which trials, which checkpoint, which attack, in percent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from reports.added import added_seeds
from reports.margins import Margins
from reports.measures import DIAGNOSTICS, in_norm, measure_in, no_ball
from reports.papers import load as load_paper
from reports.papers.chosen import chosen
from reports.papers.paper import Paper
from reports.planned import Planned, statuses_together, trains_on, twins
from reports.scores import Score, Scores
from reports.statistics import Sample
from reports.store.load import ReportData, load
from reports.store.rows import OUTSIDE
from reports.tables.table import Key, Rounding, TableCell
from reports.tuning import tuning_text
from sweep.store.base import Store
from sweep.store.records.manifest import PlannedAttack
from trainers.chance import near_chance
from trainers.config import TrialConfig
from trainers.data import dataset_facts, dataset_names
from trainers.values import NORM_DISPLAYS


class Results:
    """Numbers by study, label and measure. A measure is an attack's name, clean, worst, margin or margin_ratio."""

    def __init__(self, data: ReportData, paper: Paper, by_study: Mapping[str, tuple[Paper, ...]] | None = None) -> None:
        """`by_study` has the papers that each study is compared with; without it every study is with this one."""
        self.data = data
        self.paper = paper
        self._by_study = by_study
        self.labels: dict[str, dict[str, str]] = defaultdict(dict)  # study -> label -> display name, in table order
        self.methods: dict[tuple[str, str], str] = {}
        self.hyperparameters: dict[tuple[str, str], dict[str, Any]] = {}
        self._planned: dict[tuple[str, str], list[Planned]] = defaultdict(list)
        self.margins = Margins(data)
        self._twins: dict[str, dict[str, str]] = defaultdict(dict)
        self._added: dict[tuple[str, str], set[int]] = {}
        cells = data.cells
        columns = ("study", "label", "display", "method", "hyperparameters", "seed", "trial", "status", "last_epoch")
        for row in zip(*(cells[name] for name in columns), strict=True):
            study, label, display, method, hyperparameters, seed, trial, status, last_epoch = row
            self.labels[study][label] = display
            self.methods[study, label] = method
            self.hyperparameters[study, label] = hyperparameters or self.hyperparameters.get((study, label), {})
            epoch = last_epoch if isinstance(last_epoch, dict) else {}
            self._planned[study, label].append(Planned(int(seed), trial, status, epoch))
        for study, labels in self.labels.items():
            places = {label: self._place(study, label) for label in labels}
            self.labels[study] = {label: labels[label] for label in sorted(labels, key=places.__getitem__)}
            self._twins[study] = twins({one: self._planned[study, one] for one in labels}, self.searches(study))

    @classmethod
    def read(
        cls, store: Store | str | Path, studies: Iterable[str] | None = None, paper: str | Path | None = None
    ) -> Results:
        """Of these studies, or all of the store; beside the paper of that name or folder, or those that they name."""
        return cls.beside_papers(load(store, studies), paper)

    @classmethod
    def beside_papers(cls, data: ReportData, paper: str | Path | None) -> Results:
        if paper is not None or not data.manifests:
            return cls(data, load_paper(paper))
        found = chosen(data.manifests)
        data = replace(data, problems=[*data.problems, *found.problems])
        return cls(data, found.lead, found.by_study)

    @property
    def papers(self) -> tuple[Paper, ...]:
        """All that some study is compared with, the leading one first."""
        if self._by_study is None:
            return (self.paper,)
        return tuple(dict.fromkeys(paper for found in self._by_study.values() for paper in found))

    def compares(self, study: str) -> bool:
        """Whether the study is compared with this paper: claims and layouts of others are not shown beside it."""
        return self._by_study is None or self.paper in self._by_study.get(study, ())

    def beside(self, paper: Paper) -> Results:
        """The same numbers with the eyes of another paper."""
        if paper is self.paper:
            return self
        other = copy(self)
        other.paper = paper
        return other

    def _place(self, study: str, label: str) -> tuple[bool, bool, int, str, str]:
        """In the paper's order; what it does not have follows by name, plain methods before combined ones."""
        base, _, wrappers = self.methods[study, label].partition("+")
        order = self.paper.method_order
        known = base in order
        return not known, bool(wrappers), order.index(base) if known else 0, wrappers, label

    def title(self, study: str) -> str:
        return self.data.manifests[study].title or study

    def epsilon(self, study: str) -> str:
        return self.data.manifests[study].epsilon

    def norm(self, study: str) -> str:
        return self.data.manifests[study].norm

    def radius_text(self, study: str) -> str:
        """For captions: ε = 8/255, and the norm where it is not the usual one."""
        norm = self.norm(study)
        return f"ε = {self.epsilon(study)}" + ("" if norm == "linf" else f" ({NORM_DISPLAYS[norm]})")

    def protocol(self, study: str) -> str:
        return self.data.manifests[study].protocol

    def asked_attacks(self, study: str) -> tuple[PlannedAttack, ...]:
        return self.data.manifests[study].attacks

    def configs(self, study: str) -> dict[str, TrialConfig]:
        """By label, the seed aside."""
        return self.data.manifests[study].config_by_label

    def searches(self, study: str) -> dict[str, str]:
        """Label -> the search's id."""
        return {entry.label: entry.id for entry in self.data.manifests[study].searches}

    def tuning(self, study: str, label: str) -> str | None:
        """How a search tuned this column; None where it has the study's own values."""
        search = self.searches(study).get(label)
        return None if search is None else tuning_text(self.data.searches.get(search))

    def adversarial(self, study: str, label: str) -> bool:
        """Not so is training on clean images: no rival to the others."""
        known = self.data.manifests[study].inner_attacks.get(label, {}).get("trains_on")
        return (known or trains_on(self.methods[study, label])) != "clean"

    @cached_property
    def _scores(self) -> Scores:
        return Scores(self.data.evaluations)

    def seeds(self, study: str, label: str) -> list[Planned]:
        return self._planned[study, label]

    def added(self, study: str, label: str) -> set[int]:
        """Seeds whose training hung on what earlier ones had shown."""
        if (study, label) not in self._added:
            trials = {one.seed: one.trial for one in self.seeds(study, label)}
            self._added[study, label] = added_seeds(self.data.decisions, study, label, trials)
        return self._added[study, label]

    def planned(self, study: str, label: str) -> list[Planned]:
        """Those that tables and tests show."""
        added = self.added(study, label)
        return [one for one in self.seeds(study, label) if one.seed not in added]

    def _trainings(self, study: str) -> Iterator[Planned]:
        return (one for label in self.labels[study] for one in self.seeds(study, label))

    def from_outside(self, study: str, label: str) -> bool:
        """Whether it is a model from elsewhere, of whose training nothing is known."""
        return self.methods[study, label] == OUTSIDE

    def same_trainings(self, study: str, label: str) -> str:
        """The other label that stands for these very trainings in tests and counts; '' where there is none."""
        return self._twins[study].get(label, "")

    def trainings(self, study: str) -> list[Planned]:
        """Each once, whatever labels show it; those that wait for a search have no name yet."""
        own = [label for label in self.labels[study] if not self.from_outside(study, label)]
        found = {one.trial or (label, one.seed): one for label in own for one in self.seeds(study, label)}
        return list(found.values())

    def attacks(self, study: str, checkpoint: str) -> list[tuple[str, str]]:
        """Name and radius of every attack some trial of the study was evaluated with; pgd-20@l1 is in a norm other
        than the study's."""
        seen: set[tuple[str, str]] = set()
        for planned in self._trainings(study):
            seen.update(self._scores.attacks(planned.trial, checkpoint))
        own = self.norm(study)
        return sorted((measure_in(name, own), radius) for name, radius in seen)

    def checkpoints(self, study: str) -> list[str]:
        """Those with an evaluation, the headline one first."""
        return self._checkpoints.get(study, [])

    def shown_checkpoint(self, study: str) -> str:
        """The headline one, unless the study was evaluated at others only."""
        return (self.checkpoints(study) or [self.data.headline(study)])[0]

    @cached_property
    def _checkpoints(self) -> dict[str, list[str]]:
        found = {}
        for study in self.labels:
            seen = {name for one in self._trainings(study) for name in self._scores.checkpoints(one.trial)}
            headline = self.data.headline(study)
            found[study] = sorted(seen, key=lambda name, headline=headline: (name != headline, name))  # type: ignore[misc]
        return found

    def evaluation(self, study: str, trial: str, checkpoint: str, attack: str, epsilon: str) -> Score | None:
        """The evaluation the study asked for; else, one made apart from it, on the most images."""
        name, _, norm = attack.partition("@")
        radius = "" if no_ball(name) else epsilon
        entries = self._scores.of(trial, checkpoint, in_norm(name, norm or self.norm(study)), radius)
        if len(entries) < 2:
            return entries[0] if entries else None
        asked = {attack.id for attack in self.asked_attacks(study)}
        return max(entries, key=lambda one: (one.attack_id in asked, one.images, one.attack_id))

    def images(self, cells: Iterable[TableCell]) -> list[int]:
        """Over how many test images these numbers are taken; more than one value is worth a remark."""
        return sorted({number for cell in cells if cell.label for number in self._images(cell)})

    def _images(self, cell: TableCell) -> set[int]:
        key = cell.key
        checkpoint = key.checkpoint or self.shown_checkpoint(key.study)
        epsilon = key.epsilon or self.epsilon(key.study)
        names = self.paper.worst_of if key.measure == "worst" else (key.measure,)
        found: set[int] = set()
        for trial in (one.trial for one in self.seeds(key.study, cell.label) if one.seed in cell.seeds):
            known = [self.evaluation(key.study, trial, checkpoint, name, epsilon) for name in names]
            if known == [None] and key.measure == "clean":  # taken from an attack, as by `clean_accuracy`
                by_attack = self._scores.clean(trial, checkpoint)
                found |= {by_attack[0]} if by_attack else set()
            found |= {one.images for one in known if one is not None}
        return found

    def label_for(self, key: Key) -> str | None:
        """The study's label behind a key: the one with the key's hyperparameters if there is one.

        A study that ran the method with other values fills the cell too, unless the key is exact; who shows the cell
        tells the difference. A column that a search tuned fills only a cell that asks for it by its label.
        """
        labels = self.labels.get(key.study, {})
        tuned = self.searches(key.study) if labels else {}
        plain = {label for label in labels if self.methods[key.study, label] == key.label and label not in tuned}
        same = [label for label in labels if label == key.label or label in plain]
        same.sort(key=lambda label: (bool(self.differences(key, label)), label != key.label))
        if not same or (key.exact and self.differences(key, same[0])):
            return None
        return same[0] if same[0] == key.label or not self.differences(key, same[0]) else None

    def differences(self, key: Key, label: str) -> dict[str, tuple[Any, Any]]:
        """Hyperparameter -> (the key's value, the study's)."""
        used = self.hyperparameters[key.study, label]
        return {
            name: (value, used[name])
            for name, value in key.hyperparameters
            if name in used and not _same(value, used[name])
        }

    def cell(self, key: Key, rounding: Rounding | None = None, *, with_added: bool = False) -> TableCell:
        """Of the planned seeds: a mean that also has those of `sweep.decide` leans towards what they were to decide."""
        present = next((study for study in (key.study, *key.elsewhere) if study in self.labels), key.study)
        key = replace(key, study=present)
        label, rounding = self.label_for(key), rounding or Rounding()
        if label is None:
            return TableCell(key, rounding=rounding)
        seeds, planned = self.seeds(key.study, label), self.planned(key.study, label)
        if with_added:
            return self._cell(key, label, seeds, rounding)
        return replace(self._cell(key, label, planned, rounding), added=len(seeds) - len(planned))

    def _cell(self, key: Key, label: str, seeds: list[Planned], rounding: Rounding) -> TableCell:
        statuses = self._statuses(key, seeds)
        checkpoint, epsilon = key.checkpoint or self.shown_checkpoint(key.study), key.epsilon or self.epsilon(key.study)
        values: dict[int, float] = {}
        warned, of_training = False, key.measure in ("margin", "margin_ratio", *DIAGNOSTICS)
        for planned in seeds:
            # A collapsed trial is counted and marked, but its chance accuracy is not averaged into a method's.
            if planned.status != "done":
                continue
            value, warning = self._value(key, planned, checkpoint, epsilon)
            if value is not None:
                values[planned.seed] = value
                warned = warned or warning
        return TableCell(
            key,
            Sample.of([values[seed] for seed in sorted(values)]) if values else None,
            planned=0 if of_training and self.from_outside(key.study, label) else len(seeds),
            warned=warned,
            collapsed=statuses.count("collapsed"),
            failed=statuses.count("failed"),
            done=statuses.count("done"),
            near_chance=sum(self.near_chance(key.study, one.trial, checkpoint) for one in seeds if one.seed in values),
            seeds=tuple(sorted(values)),
            label=label,
            same_as=self.same_trainings(key.study, label),
            rounding=rounding,
        )

    def _value(self, key: Key, planned: Planned, checkpoint: str, epsilon: str) -> tuple[float | None, bool]:
        if key.measure == "margin":
            return self.margins.of(key.study, planned, checkpoint), False
        if key.measure == "margin_ratio":
            return self._margin_ratio(key, planned, checkpoint), False
        if key.measure in DIAGNOSTICS:
            value = self.data.diagnostics_summary(planned.trial, checkpoint, key.study).get(key.measure)
            return (None if value is None else DIAGNOSTICS[key.measure] * float(value)), False
        if key.measure == "clean":
            return self.clean_accuracy(key.study, planned.trial, checkpoint), False
        wanted = self.paper.worst_of if key.measure == "worst" else (key.measure,)
        lowest, warned = 1.0, False
        for name in wanted:
            found = self.evaluation(key.study, planned.trial, checkpoint, name, epsilon)
            if found is None:
                return None, False
            lowest, warned = min(lowest, found.accuracy), warned or found.warned
        return 100 * lowest, warned

    def clean_accuracy(self, study: str, trial: str, checkpoint: str) -> float | None:
        """In percent."""
        own = self.evaluation(study, trial, checkpoint, "clean", "")
        if own is not None:
            return 100 * own.accuracy
        by_attack = self._scores.clean(trial, checkpoint)
        return 100 * by_attack[1] if by_attack else None

    def near_chance(self, study: str, trial: str, checkpoint: str) -> bool:
        """Whether the training learned next to nothing; unknown where the data set is not known here."""
        classes = _classes(self.data.manifests[study].dataset)
        clean = self.clean_accuracy(study, trial, checkpoint) if classes else None
        return classes is not None and clean is not None and near_chance(clean / 100, classes)

    def _statuses(self, key: Key, seeds: list[Planned]) -> list[str]:
        """Of each seed; a ratio needs two trainings of it."""
        ratio = self.paper.margin_ratio if key.measure == "margin_ratio" else None
        return statuses_together(seeds, seeds if ratio is None else self.seeds(key.study, ratio.under.label))

    def _margin_ratio(self, key: Key, planned: Planned, checkpoint: str) -> float | None:
        """Of the label's mean margin loss to that of the paper's reference with the same seed."""
        ratio = self.paper.margin_ratio
        rivals = self.seeds(key.study, ratio.under.label) if ratio is not None else []
        reference = next((one for one in rivals if one.seed == planned.seed), None)
        if reference is None or reference.status != "done":
            return None
        ours, base = (self.margins.of(key.study, one, checkpoint) for one in (planned, reference))
        return ours / base if ours is not None and base else None


@cache
def _classes(dataset: str) -> int | None:
    return dataset_facts(dataset).classes if dataset in dataset_names() else None


def _same(first: Any, second: Any) -> bool:
    numbers = (int, float)
    if isinstance(first, numbers) and isinstance(second, numbers):
        return abs(float(first) - float(second)) < 1e-9
    return bool(first == second)
