"""The names under which results are stored, as they were when the first of them were published."""

import json
from pathlib import Path

import pytest

from sweep import studies
from sweep.evaluation.asked import diagnoses_of
from sweep.studies.model import Study
from sweep.trials.cells import evaluation_attacks, expand
from sweep.trials.identity import search_id

NAMES = json.loads((Path(__file__).parent / "names.json").read_text())


def test_every_shipped_study_has_its_names_here():
    assert {name.split(" ")[0] for name in NAMES["evaluations"]} == set(studies.shipped())


@pytest.mark.parametrize("name", studies.shipped())
def test_trials_searches_and_diagnostics_keep_their_names(name):
    study = Study.load(name)
    cells = expand(study, {label: study.config(label).hyperparameters for label in study.searches()})
    found = {f"{name}/{cell.label}/{cell.seed}": cell.trial for cell in cells}
    known = {place: trial for place, trial in NAMES["trials"].items() if place.startswith(f"{name}/")}
    assert known and {place: found[place] for place in known} == known
    searches = {f"{name}/{label}": search_id(study, label) for label in study.searches()}
    assert searches == {place: one for place, one in NAMES["searches"].items() if place.startswith(f"{name}/")}
    diagnoses = {one.checkpoint: one.record for one in diagnoses_of(study, cells[0])}
    assert diagnoses == NAMES["diagnostics"].get(name, {})


@pytest.mark.parametrize("asked", NAMES["evaluations"])
def test_evaluations_keep_their_names(asked):
    name, *overrides = asked.split(" --set ")
    assert [attack.id for attack in evaluation_attacks(Study.load(name, overrides=overrides))] == NAMES["evaluations"][
        asked
    ]
