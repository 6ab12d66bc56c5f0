"""The values of a cell, in percent: find its trials, their checkpoint and the attack among a store's records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from reports.analysis.added_seeds import added_seeds
from reports.analysis.margins import Margins
from reports.analysis.measures import DIAGNOSTICS, in_norm, measure_in, no_ball
from reports.analysis.planned import Planned, statuses_together, trains_on, twins
from reports.analysis.scores import EvaluationScore, ScoreIndex
from reports.analysis.statistics import Sample
from reports.analysis.tuning import tuning_text
from reports.papers import load as load_paper
from reports.papers.chosen import chosen
from reports.papers.paper import Paper
from reports.store.load import ReportData, load
from reports.store.rows import OUTSIDE
from reports.tables.table import Key, Rounding, TableCell
from sweep.store.base import Store
from sweep.store.records.manifest import PlannedAttack
from trainers.config import TrialConfig
from trainers.data import dataset_facts, dataset_names
from trainers.measures.chance import near_chance
from trainers.values import NORM_DISPLAYS


class Results:
    """The numbers of a store by study, label and measure.

    A measure is the name of an attack, clean, worst, margin, margin_ratio or one of `DIAGNOSTICS`.
    """

    def __init__(self, data: ReportData, paper: Paper, by_study: Mapping[str, tuple[Paper, ...]] | None = None) -> None:
        """Index the cells of `data`.

        by_study: the papers that each study is compared with; None compares every study with `paper`.
        """
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
            order = {label: self._sort_key(study, label) for label in labels}
            self.labels[study] = {label: labels[label] for label in sorted(labels, key=order.__getitem__)}
            self._twins[study] = twins({label: self._planned[study, label] for label in labels}, self.searches(study))

    @classmethod
    def read(
        cls, store: Store | str | Path, studies: Iterable[str] | None = None, paper: str | Path | None = None
    ) -> Results:
        """Load studies from a store; None loads all.

        paper: name or folder of the paper to compare with; None uses those that the studies name.
        """
        return cls.beside_papers(load(store, studies), paper)

    @classmethod
    def beside_papers(cls, data: ReportData, paper: str | Path | None) -> Results:
        """Return the results of loaded records, compared with `paper` or with the papers that the studies name."""
        if paper is not None or not data.manifests:
            return cls(data, load_paper(paper))
        papers = chosen(data.manifests)
        data = replace(data, problems=[*data.problems, *papers.problems])
        return cls(data, papers.lead, papers.by_study)

    @property
    def papers(self) -> tuple[Paper, ...]:
        """Return all papers that some study is compared with, the leading one first."""
        if self._by_study is None:
            return (self.paper,)
        return tuple(dict.fromkeys(paper for papers in self._by_study.values() for paper in papers))

    def compares(self, study: str) -> bool:
        """Return whether the study is compared with this paper. If not, its claims and layouts do not concern it."""
        return self._by_study is None or self.paper in self._by_study.get(study, ())

    def beside(self, paper: Paper) -> Results:
        """Return the same numbers, compared with another paper."""
        if paper is self.paper:
            return self
        other = copy(self)
        other.paper = paper
        return other

    def _sort_key(self, study: str, label: str) -> tuple[bool, bool, int, str, str]:
        """Return the key for the table order: the paper's methods first, then others by name; plain ones first."""
        base, _, wrappers = self.methods[study, label].partition("+")
        order = self.paper.method_order
        in_paper = base in order
        return not in_paper, bool(wrappers), order.index(base) if in_paper else 0, wrappers, label

    def title(self, study: str) -> str:
        return self.data.manifests[study].title or study

    def epsilon(self, study: str) -> str:
        return self.data.manifests[study].epsilon

    def norm(self, study: str) -> str:
        return self.data.manifests[study].norm

    def radius_text(self, study: str) -> str:
        """Return the radius for captions, such as ε = 8/255, with the norm unless it is L∞."""
        norm = self.norm(study)
        return f"ε = {self.epsilon(study)}" + ("" if norm == "linf" else f" ({NORM_DISPLAYS[norm]})")

    def protocol(self, study: str) -> str:
        return self.data.manifests[study].protocol

    def asked_attacks(self, study: str) -> tuple[PlannedAttack, ...]:
        return self.data.manifests[study].attacks

    def configs(self, study: str) -> dict[str, TrialConfig]:
        """Return the configuration of each label, without its seed."""
        return self.data.manifests[study].config_by_label

    def searches(self, study: str) -> dict[str, str]:
        """Return the id of the search of each searched label."""
        return {entry.label: entry.id for entry in self.data.manifests[study].searches}

    def tuning(self, study: str, label: str) -> str | None:
        """Return in words how a search tuned this label; None if it has the study's own values."""
        search = self.searches(study).get(label)
        return None if search is None else tuning_text(self.data.searches.get(search))

    def adversarial(self, study: str, label: str) -> bool:
        """Return whether the label trains on attacked images. Training on clean images is no rival to the others."""
        recorded = self.data.manifests[study].inner_attacks.get(label, {}).get("trains_on")
        return (recorded or trains_on(self.methods[study, label])) != "clean"

    @cached_property
    def _scores(self) -> ScoreIndex:
        return ScoreIndex(self.data.evaluations)

    def seeds(self, study: str, label: str) -> list[Planned]:
        """Return all trainings of a label, with seeds that `sweep.decide` added."""
        return self._planned[study, label]

    def added(self, study: str, label: str) -> set[int]:
        """Return the seeds that `sweep.decide` added because of what earlier seeds had shown."""
        if (study, label) not in self._added:
            trials = {planned.seed: planned.trial for planned in self.seeds(study, label)}
            self._added[study, label] = added_seeds(self.data.decisions, study, label, trials)
        return self._added[study, label]

    def planned(self, study: str, label: str) -> list[Planned]:
        """Return the trainings that tables and tests show: all but the added seeds."""
        added = self.added(study, label)
        return [planned for planned in self.seeds(study, label) if planned.seed not in added]

    def _trainings(self, study: str) -> Iterator[Planned]:
        return (planned for label in self.labels[study] for planned in self.seeds(study, label))

    def from_outside(self, study: str, label: str) -> bool:
        """Return whether the label is a model from elsewhere, whose training is unknown."""
        return self.methods[study, label] == OUTSIDE

    def same_trainings(self, study: str, label: str) -> str:
        """Return the label that stands for these trainings in tests and counts, or '' if there is no other."""
        return self._twins[study].get(label, "")

    def trainings(self, study: str) -> list[Planned]:
        """Return each training once, whichever labels show it. Those that wait for a search have no trial yet."""
        own = [label for label in self.labels[study] if not self.from_outside(study, label)]
        trainings = {
            planned.trial or (label, planned.seed): planned for label in own for planned in self.seeds(study, label)
        }
        return list(trainings.values())

    def attacks(self, study: str, checkpoint: str) -> list[tuple[str, str]]:
        """Return name and radius of every attack on some trial of the study.

        A name such as pgd-20@l1 is in a norm other than the study's.
        """
        seen: set[tuple[str, str]] = set()
        for planned in self._trainings(study):
            seen.update(self._scores.attacks(planned.trial, checkpoint))
        own = self.norm(study)
        return sorted((measure_in(name, own), radius) for name, radius in seen)

    def checkpoints(self, study: str) -> list[str]:
        """Return the checkpoints that have an evaluation, the headline one first."""
        return self._checkpoints.get(study, [])

    def shown_checkpoint(self, study: str) -> str:
        """Return the headline checkpoint, or another if the study was evaluated only at others."""
        return (self.checkpoints(study) or [self.data.headline(study)])[0]

    @cached_property
    def _checkpoints(self) -> dict[str, list[str]]:
        by_study = {}
        for study in self.labels:
            names = {name for planned in self._trainings(study) for name in self._scores.checkpoints(planned.trial)}
            headline = self.data.headline(study)
            others = sorted(names - {headline})
            by_study[study] = [headline, *others] if headline in names else others
        return by_study

    def evaluation(self, study: str, trial: str, checkpoint: str, attack: str, epsilon: str) -> EvaluationScore | None:
        """Return the evaluation that the study asks for, or else the one on most images."""
        name, _, norm = attack.partition("@")
        radius = "" if no_ball(name) else epsilon
        entries = self._scores.of(trial, checkpoint, in_norm(name, norm or self.norm(study)), radius)
        if len(entries) < 2:
            return entries[0] if entries else None
        asked_ids = {attack.id for attack in self.asked_attacks(study)}
        return max(entries, key=lambda score: (score.attack_id in asked_ids, score.images, score.attack_id))

    def images(self, cells: Iterable[TableCell]) -> list[int]:
        """Return the different numbers of test images behind these cells."""
        return sorted({number for cell in cells if cell.label for number in self._images(cell)})

    def _images(self, cell: TableCell) -> set[int]:
        key = cell.key
        checkpoint = key.checkpoint or self.shown_checkpoint(key.study)
        epsilon = key.epsilon or self.epsilon(key.study)
        names = self.paper.worst_of if key.measure == "worst" else (key.measure,)
        numbers: set[int] = set()
        for planned in self.seeds(key.study, cell.label):
            if planned.seed not in cell.seeds:
                continue
            scores = [self.evaluation(key.study, planned.trial, checkpoint, name, epsilon) for name in names]
            if scores == [None] and key.measure == "clean":  # taken from an attack, as in `clean_accuracy`
                by_attack = self._scores.clean(planned.trial, checkpoint)
                numbers |= {by_attack[0]} if by_attack else set()
            numbers |= {score.images for score in scores if score is not None}
        return numbers

    def label_for(self, key: Key) -> str | None:
        """Return the study's label for a key, preferably one with the key's hyperparameters, or None.

        Unless the key is exact, the label of that name fills the cell with other values too, which `differences` lists.
        A label that a search tuned fills only a cell that asks for this very label.
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
        """Return hyperparameters that differ, each with the key's value and the study's."""
        used = self.hyperparameters[key.study, label]
        return {
            name: (value, used[name])
            for name, value in key.hyperparameters
            if name in used and not _same(value, used[name])
        }

    def cell(self, key: Key, rounding: Rounding | None = None, *, with_added: bool = False) -> TableCell:
        """Return the cell of a key, filled from the planned seeds.

        with_added: use the seeds added by `sweep.decide` too. Their mean is biased towards the decision.
        """
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
            # Collapsed trials are counted and marked, but their accuracies are not part of the mean.
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
            near_chance=sum(
                self.near_chance(key.study, planned.trial, checkpoint) for planned in seeds if planned.seed in values
            ),
            seeds=tuple(sorted(values)),
            label=label,
            same_as=self.same_trainings(key.study, label),
            rounding=rounding,
        )

    def _value(self, key: Key, planned: Planned, checkpoint: str, epsilon: str) -> tuple[float | None, bool]:
        """Return the value of one training and whether its evaluation has a warning."""
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
            score = self.evaluation(key.study, planned.trial, checkpoint, name, epsilon)
            if score is None:
                return None, False
            lowest, warned = min(lowest, score.accuracy), warned or score.warned
        return 100 * lowest, warned

    def clean_accuracy(self, study: str, trial: str, checkpoint: str) -> float | None:
        """Return the accuracy on clean images, in percent."""
        own = self.evaluation(study, trial, checkpoint, "clean", "")
        if own is not None:
            return 100 * own.accuracy
        by_attack = self._scores.clean(trial, checkpoint)
        return 100 * by_attack[1] if by_attack else None

    def near_chance(self, study: str, trial: str, checkpoint: str) -> bool:
        """Return whether the model is close to chance. False if the data set is unknown here."""
        classes = _classes(self.data.manifests[study].dataset)
        clean = self.clean_accuracy(study, trial, checkpoint) if classes else None
        return classes is not None and clean is not None and near_chance(clean / 100, classes)

    def _statuses(self, key: Key, seeds: list[Planned]) -> list[str]:
        """Return the status of each seed. A margin ratio needs two trainings per seed."""
        ratio = self.paper.margin_ratio if key.measure == "margin_ratio" else None
        return statuses_together(seeds, seeds if ratio is None else self.seeds(key.study, ratio.under.label))

    def _margin_ratio(self, key: Key, planned: Planned, checkpoint: str) -> float | None:
        """Return the ratio of the label's mean margin to that of the paper's reference with the same seed."""
        ratio = self.paper.margin_ratio
        candidates = self.seeds(key.study, ratio.under.label) if ratio is not None else []
        reference = next((candidate for candidate in candidates if candidate.seed == planned.seed), None)
        if reference is None or reference.status != "done":
            return None
        ours, base = (self.margins.of(key.study, training, checkpoint) for training in (planned, reference))
        return ours / base if ours is not None and base else None


@cache
def _classes(dataset: str) -> int | None:
    return dataset_facts(dataset).classes if dataset in dataset_names() else None


def _same(first: Any, second: Any) -> bool:
    """Return whether two values are equal; numbers may differ by rounding."""
    numbers = (int, float)
    if isinstance(first, numbers) and isinstance(second, numbers):
        return abs(float(first) - float(second)) < 1e-9
    return bool(first == second)
