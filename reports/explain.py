"""`python -m reports explain CELL`: each setting in which our cell departs from the paper's, and what it is worth."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reports.departures import differing, shipped
from reports.diff import against_paper
from reports.names import attack_name
from reports.papers.paper import Printed
from reports.results import Results
from reports.significance import seed_list
from reports.statistics import Sample, compare
from reports.tables.markdown import escape, grid
from reports.tables.table import Key, TableCell, p_text, signed
from sweep.errors import UserError
from sweep.store.encoding import canonical
from sweep.studies.written import written_study
from trainers.data import dataset_facts, dataset_names

# Another data set or network is another study: no setting that could be changed alone.
ANOTHER_STUDY = ("dataset", "model")
SELECTION = ("selection.protocol", "checkpoint")


@dataclass(frozen=True)
class Explained:
    setting: str
    words: str
    effect: str


@dataclass(frozen=True)
class Subject:
    """Our cell and the printed one that it is held against."""

    cell: TableCell
    printed: Printed

    @property
    def study(self) -> str:
        return self.cell.key.study

    @property
    def label(self) -> str:
        return self.cell.label

    @property
    def nearest_only(self) -> bool:
        return self.study not in (self.printed.key.study, *self.printed.key.elsewhere)


def text(results: Results, name: str) -> str:
    """Markdown."""
    subject = find(results, name)
    cell, printed = subject.cell, subject.printed
    assert cell.sample is not None
    found = explained(results, subject)
    difference = against_paper(cell.sample, printed.sample)
    theirs = f"table {printed.table}, {printed.key.study}/{printed.key.label}"
    measure = attack_name(printed.key.measure)
    parts = [
        f"# {escape(f'{subject.study}/{subject.label}')}, {escape(measure)}",
        f"Ours {cell.text} (n = {cell.sample.n}); the paper {printed.text} (n = {printed.sample.n}; {theirs}); "
        f"difference {signed(difference.difference)}, p = {p_text(difference.welch)} (Welch).",
    ]
    if subject.nearest_only:
        parts.append(
            f"{subject.study} is no setting of the paper: what follows compares with the nearest cell that is."
        )
    if found:
        rows = [[escape(one.words), one.effect] for one in found]
        parts.append(grid(rows, ["Departs", "With the paper's value instead of ours"], numbers=False))
    else:
        parts.append("No recorded setting departs from the paper's: what is left is chance and what no record holds.")
    if results.paper.contradictions:
        count = len(results.paper.contradictions)
        parts.append(
            f"In {count} points the paper contradicts itself or the codes it used; what was decided there holds for "
            "all cells alike: `python -m reports diff --paper` lists them."
        )
    return "\n\n".join(parts) + "\n"


def find(results: Results, name: str) -> Subject:
    """`study/label/measure`, or `tableN/study/label` with a measure where the table has several."""
    words = name.strip("/").split("/")
    match = re.fullmatch(r"table(\d+)", words[0])
    if len(words) not in ((3, 4) if match else (3,)):
        raise UserError(f"cell {name!r}: must look like digits/sovr/autoattack or table1/cifar10_rn18/sovr")
    every = [cell for table in results.paper.tables for cell in table.cells()]
    if match:
        wanted = [
            one
            for one in every
            if (one.table, one.key.study, one.key.label) == (int(match[1]), *words[1:3])
            and (len(words) < 4 or one.key.measure == words[3])
        ]
        if not wanted:
            known = sorted({f"{one.key.study}/{one.key.label}" for one in every if one.table == int(match[1])})
            raise UserError(
                f"cell {name!r}: the paper has no such cell; table {match[1]} has {', '.join(known) or 'none'}"
            )
        return Subject(_ours(results, wanted[0].key, name), wanted[0])
    study, label, measure = words
    method = results.methods.get((study, label), label)
    same = [one for one in every if one.key.measure == measure and one.key.label in (label, method)]
    own = [one for one in same if study in (one.key.study, *one.key.elsewhere)]
    if not same:
        of_label = sorted({one.key.measure for one in every if one.key.label in (label, method)})
        labels = sorted({one.key.label for one in every if one.key.measure == measure})
        raise UserError(
            f"cell {name!r}: the paper prints no {measure} of {label}; of {label} it prints "
            f"{', '.join(of_label) or 'nothing'}, and {measure} of {', '.join(labels) or 'no method'}"
        )
    return Subject(_ours(results, Key(study, label, measure), name), (own or same)[0])


def _ours(results: Results, key: Key, name: str) -> TableCell:
    cell = results.cell(key)
    if cell.sample is None:
        if key.study not in results.labels:
            known = ", ".join(results.labels) or "no study"
            raise UserError(f"cell {name!r}: the store has no study {key.study!r}; it has {known}")
        known = ", ".join(results.labels[key.study])
        raise UserError(f"cell {name!r}: no number of ours is there; {key.study} has the labels {known}")
    return cell


def explained(results: Results, subject: Subject) -> list[Explained]:
    """Every setting that departs, in the order of the configuration, then evaluation and seeds."""
    theirs = shipped(subject.printed.key.study, subject.printed.key.label)
    ours = results.configs(subject.study).get(subject.label)
    found = []
    if theirs is not None and ours is not None:
        mine = _settings(results, subject.study, subject.label)
        for setting, words in differing(theirs, mine).items():
            effect = _training_effect(results, subject, setting, mine, theirs)
            found.append(Explained(setting, words, effect))
        found += _hyperparameters(results, subject, mine, theirs)
    found += _evaluation(results, subject, {one.setting for one in found})
    found += _seeds(subject)
    return found


def _settings(results: Results, study: str, label: str) -> dict[str, Any]:
    """The configuration with the hyperparameters that were used, which a search may have chosen."""
    config = results.configs(study)[label].model_dump(mode="json")
    return {**config, "hyperparameters": results.hyperparameters[study, label]}


def _hyperparameters(
    results: Results, subject: Subject, ours: dict[str, Any], theirs: dict[str, Any]
) -> Iterator[Explained]:
    wanted = {**theirs["hyperparameters"], **dict(subject.printed.key.hyperparameters)}
    searched = " (a search chose it)" if subject.label in results.searches(subject.study) else ""
    used = ours["hyperparameters"]
    for name, value in wanted.items():
        if name in used and canonical(used[name]) != canonical(value):
            setting = f"hyperparameters.{name}"
            target = {**theirs, "hyperparameters": {**theirs["hyperparameters"], name: value}}
            effect = _training_effect(results, subject, setting, ours, target)
            yield Explained(setting, f"{name} {used[name]}{searched} instead of {value}", effect)


def _evaluation(results: Results, subject: Subject, known: set[str]) -> Iterator[Explained]:
    cell, printed = subject.cell, subject.printed
    study, label, measure = subject.study, subject.label, printed.key.measure
    ours, theirs = cell.key.epsilon or results.epsilon(study), printed.key.epsilon or results.paper.epsilon
    of_images = measure == "clean" or any(name == measure for name, _ in results.attacks(study, _shown(results, cell)))
    if measure != "clean" and of_images and ours != theirs:
        other = results.cell(replace(cell.key, epsilon=theirs))
        run = command(results, subject, "evaluation.epsilon", theirs)
        effect = _effect(other.sample, cell.sample, f"{study}/{label} at both radii") or _unknown(run)
        yield Explained("evaluation.epsilon", f"attack radius {ours} instead of {theirs}", effect)
    shown, wanted = _shown(results, cell), printed.key.checkpoint or results.paper.checkpoint
    if of_images and shown != wanted and not known & set(SELECTION):
        yield Explained("checkpoint", f"checkpoint {shown} instead of {wanted}", _selection_effect(results, subject))
    dataset = results.data.manifests[study].dataset
    images = results.images([cell]) if of_images else []
    every = dataset_facts(dataset).test_images if dataset in dataset_names() else None
    if images and every is not None and min(images) != every and "test_images" not in known:
        words = f"test images attacked {min(images):,} instead of {every:,}"
        yield Explained("evaluation.images", words, _images_effect(results, subject, every))


def _images_effect(results: Results, subject: Subject, every: int) -> str:
    """The same trainings on all images, where another study of the store has attacked them."""
    trials = {one.trial for one in results.seeds(subject.study, subject.label)}
    for study, labels in results.labels.items():
        for label in labels:
            other = results.cell(replace(subject.cell.key, study=study, label=label))
            same = {one.trial for one in results.seeds(study, label)} <= trials
            if same and other.sample is not None and results.images([other]) == [every]:
                where = f"the same trainings on {every:,} images, {study}/{label}"
                return _effect(other.sample, subject.cell.sample, where)
    return _unknown(command(results, subject, "evaluation.images", None))


def _shown(results: Results, cell: TableCell) -> str:
    return cell.key.checkpoint or results.shown_checkpoint(cell.key.study)


def _seeds(subject: Subject) -> Iterator[Explained]:
    ours, theirs = subject.cell.sample, subject.printed.sample
    if ours is not None and ours.n != theirs.n:
        spread = ours.std if ours.spread_known else theirs.std
        words = f"n {ours.n} instead of {theirs.n}"
        if spread == spread:
            effect = (
                f"moves no expectation; the mean's standard error is {spread / ours.n**0.5:.2f} in place of "
                f"{spread / theirs.n**0.5:.2f}"
            )
        else:
            effect = "moves no expectation; how much chance is in it needs a second seed"
        yield Explained("n", words, effect)


def _training_effect(
    results: Results, subject: Subject, setting: str, ours: dict[str, Any], theirs: Mapping[str, Any]
) -> str:
    if setting in ANOTHER_STUDY:
        run = f"python -m sweep.run --study {subject.printed.key.study} --methods {subject.printed.key.label}"
        return (
            f"unknown, and no setting that can be changed alone; this command would measure the paper's cell: `{run}`"
        )
    if setting in SELECTION:
        return _selection_effect(results, subject)
    values = _at(ours, setting), _at(theirs, setting)
    exact, nearby = "", ""
    for one, other, swapped in _twins(results, setting, subject.printed.key.measure):
        first, second = one.settings, other.settings
        where = f"{other.name} against {one.name}"
        if canonical([_at(first, setting), _at(second, setting)]) == canonical(list(values)):
            exact = exact or _effect(other.sample, one.sample, where)
        elif not swapped:
            between = f"{_at(first, setting)} to {_at(second, setting)}, {where}"
            nearby = nearby or _effect(other.sample, one.sample, between)
    return exact or _unknown(command(results, subject, setting, values[1])) + (
        f"; at other values: {nearby}" if nearby else ""
    )


def _selection_effect(results: Results, subject: Subject) -> str:
    """The same trainings at the paper's choice of the epoch; weights that they did not keep need another training."""
    cell = subject.cell
    wanted = subject.printed.key.checkpoint or results.paper.checkpoint
    other = results.cell(replace(cell.key, checkpoint=wanted))
    where = f"the same trainings at {wanted} against {_shown(results, cell)}"
    if results.protocol(cell.key.study) == "heldout" and wanted == "best_test":
        run = command(results, subject, "selection.protocol", "paper")
    else:
        run = command(results, subject, "evaluation.checkpoints", ["headline", wanted])
    return _effect(other.sample, cell.sample, where) or _unknown(run)


def _effect(theirs: Sample | None, ours: Sample | None, where: str) -> str:
    """'' where one of the two is not there."""
    if theirs is None or ours is None:
        return ""
    found = compare(theirs, ours)
    interval = "" if found.low is None or found.high is None else f", 95 % {signed(found.low)} to {signed(found.high)}"
    return f"{signed(found.difference)} ({escape(where)}{interval}; n = {theirs.n} and {ours.n})"


def _unknown(command: str) -> str:
    if not command.startswith("python"):
        return f"unknown; {command}"
    return f"unknown; this command would measure it: `{command}`".replace("|", "\\|")


@dataclass(frozen=True)
class _Known:
    name: str
    settings: dict[str, Any]
    sample: Sample


def _twins(results: Results, setting: str, measure: str) -> Iterator[tuple[_Known, _Known, bool]]:
    """Pairs of cells of the store that differ in this setting alone, each in both orders; the second time swapped."""
    groups: dict[str, list[_Known]] = {}
    for study, labels in results.labels.items():
        for label in labels:
            if label in results.configs(study):
                sample = results.cell(Key(study, label, measure)).sample
                settings = _settings(results, study, label)
                if sample is not None:
                    # What is measured must agree too: the radius, and the rule that chose the epoch.
                    kept, checkpoint = _without(settings, setting), results.shown_checkpoint(study)
                    if setting == "selection.validation":  # without held-out images, another rule chooses the epoch
                        kept, checkpoint = _without(kept, "selection.protocol"), ""
                    rest = [kept, results.epsilon(study), checkpoint]
                    group = groups.setdefault(json.dumps(canonical(rest), sort_keys=True), [])
                    group.append(_Known(f"{study}/{label}", settings, sample))
    for group in groups.values():
        for place, one in enumerate(group):
            for other in group[place + 1 :]:
                if canonical(_at(one.settings, setting)) != canonical(_at(other.settings, setting)):
                    yield one, other, False
                    yield other, one, True


def _at(settings: Mapping[str, Any], setting: str) -> Any:
    found: Any = settings
    for name in setting.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _without(settings: Mapping[str, Any], setting: str) -> dict[str, Any]:
    """All that could move a number but this."""
    name, _, rest = setting.partition(".")
    kept = {key: value for key, value in settings.items() if key not in (name, "seed", "margins")}
    if rest and isinstance(settings.get(name), Mapping):
        kept[name] = _without(settings[name], rest)
    return kept


def command(results: Results, subject: Subject, setting: str, value: Any) -> str:
    """Our cell again with one setting as the paper has it, under a name of its own: our columns stay.

    Where the setting is one of the evaluation, the trainings are those in the store.
    """
    study, label = subject.study, subject.label
    name, changes = f"{study}_{setting.replace('.', '_')}", [(setting, value)]
    theirs, mine = shipped(study, label), _settings(results, study, label)
    changed = {setting for setting, _ in changes}
    if ("selection.validation", 0) in changes and mine["selection"]["protocol"] == "heldout":
        changes = [*changes, ("selection.protocol", "paper")]  # nothing is held out that could choose the epoch
    if theirs is None:
        return _from_record(results, subject, changes, name)
    kept = [(setting, _at(mine, setting)) for setting in differing(theirs, mine) if setting not in changed]
    values = theirs["hyperparameters"]
    for key, used in mine["hyperparameters"].items():
        if f"hyperparameters.{key}" not in changed and canonical(values.get(key)) != canonical(used):
            kept.append((f"hyperparameters.{key}", used))
    evaluation, usual = results.data.manifests[study].study.get("evaluation") or {}, written_study(study).evaluation
    for key, used in usual.model_dump(mode="json").items():
        if evaluation.get(key, used) != used and f"evaluation.{key}" not in changed:
            kept.append((f"evaluation.{key}", evaluation[key]))
    words = ["python", "-m", "sweep.run", "--study", study, *_run_words(subject), "--set", f"name={name}"]
    if label in written_study(study).searches():
        words += ["--set", f"search.{label}.pin=true"]
    for setting, value in (*kept, *changes):
        words += ["--set", f"{_study_key(study, label, setting)}={json.dumps(value)}"]
    return shlex.join([*words, *_store_words(results)])


def _from_record(results: Results, subject: Subject, changes: list[tuple[str, Any]], name: str) -> str:
    """Of a study that is not shipped: the command that made the trial, with the changes after it."""
    cells = results.data.cells
    made = cells[(cells["study"] == subject.study) & (cells["label"] == subject.label)]["command"]
    known = next((command for command in made if isinstance(command, str) and "--study" in command), None)
    settings = [f"{_study_key(None, subject.label, setting)}={json.dumps(value)}" for setting, value in changes]
    if known is None:
        return f"a copy of the study's file named {name}, with {', '.join(settings)}, would measure it"
    words = [*_run_words(subject), "--set", f"name={name}", *(word for one in settings for word in ("--set", one))]
    return f"{known} {shlex.join(words)}"


def _run_words(subject: Subject) -> list[str]:
    return ["--methods", subject.label, "--seeds", seed_list(list(subject.cell.seeds))]


def _store_words(results: Results) -> list[str]:
    return ["--store", results.data.store.uri]


def _study_key(study: str | None, label: str, setting: str) -> str:
    """Where a study's file says what a configuration says: a method's own entry wins over the study's."""
    head, _, rest = setting.partition(".")
    if head == "hyperparameters":
        return f"methods.{label}.hyperparameters.{rest}"
    part = {"recipe": "train", "selection": "selection"}.get(head)
    if part is None:
        plain = head in ("train_images", "test_images", "evaluation")
        return setting if plain else f"methods.{label}.{setting}"
    entry = written_study(study).methods[label] if study is not None else None
    own = getattr(entry, part) if entry is not None else {}
    name = rest.split(".")[0]
    return f"methods.{label}.{part}.{rest}" if name in own else f"{part}.{rest}"
