"""What the records of a store say about one setting: pairs of cells that differ in it alone, and by how much."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reports.measuring import at, settings_of
from reports.results import Results
from reports.statistics import Sample, compare
from reports.tables.markdown import escape
from reports.tables.table import Key, signed
from sweep.store.encoding import canonical


def effect_text(theirs: Sample | None, ours: Sample | None, where: str) -> str:
    """'' where one of the two is not there."""
    if theirs is None or ours is None:
        return ""
    found = compare(theirs, ours)
    interval = "" if found.low is None or found.high is None else f", 95 % {signed(found.low)} to {signed(found.high)}"
    return f"{signed(found.difference)} ({escape(where)}{interval}; n = {theirs.n} and {ours.n})"


@dataclass(frozen=True)
class Known:
    name: str
    settings: dict[str, Any]
    sample: Sample


def twins(results: Results, setting: str, measure: str) -> Iterator[tuple[Known, Known, bool]]:
    """Pairs of cells of the store that differ in this setting alone, each in both orders; the second time swapped."""
    groups: dict[str, list[Known]] = {}
    for study, labels in results.labels.items():
        for label in labels:
            if label in results.configs(study):
                sample = results.cell(Key(study, label, measure)).sample
                settings = settings_of(results, study, label)
                if sample is not None:
                    # What is measured must agree too: the radius, and the rule that chose the epoch.
                    kept, checkpoint = without(settings, setting), results.shown_checkpoint(study)
                    if setting in ("selection.validation", "selection.protocol"):  # another rule chooses the epoch
                        kept, checkpoint = without(kept, "selection.protocol"), ""
                    rest = [kept, results.epsilon(study), checkpoint]
                    group = groups.setdefault(json.dumps(canonical(rest), sort_keys=True), [])
                    group.append(Known(f"{study}/{label}", settings, sample))
    for group in groups.values():
        for place, one in enumerate(group):
            for other in group[place + 1 :]:
                if canonical(at(one.settings, setting)) != canonical(at(other.settings, setting)):
                    yield one, other, False
                    yield other, one, True


def without(settings: Mapping[str, Any], setting: str) -> dict[str, Any]:
    """All that could move a number but this."""
    name, _, rest = setting.partition(".")
    kept = {key: value for key, value in settings.items() if key not in (name, "seed", "margins")}
    if rest and isinstance(settings.get(name), Mapping):
        kept[name] = without(settings[name], rest)
    return kept
