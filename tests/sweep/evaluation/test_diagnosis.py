"""A trial's diagnostics are stored once for each setting, with their arrays."""

import io
from dataclasses import replace

import numpy as np
import pytest

from sweep.evaluation.asked import Diagnosis, diagnoses_of
from sweep.evaluation.diagnosis import diagnose_trial, stored_diagnosis
from sweep.store import layout
from sweep.store.records.diagnostics import DiagnosticsRecord
from sweep.trials.cells import expand
from tests.sweep.tiny_study import tiny


@pytest.fixture(scope="module")
def wanted(trained) -> Diagnosis:
    return Diagnosis(trained[1], "last", "0.1", 20)


def test_diagnostics_are_stored_once_with_their_arrays_and_settings(trained, wanted):
    store, trial, _ = trained
    record = diagnose_trial(store, wanted, None)
    with np.load(io.BytesIO(store.read(record.arrays_path)), allow_pickle=False) as arrays:
        assert arrays["train_margin"].shape == (20,)
        assert record.summary["train_margin_mean"] == pytest.approx(arrays["train_margin"].mean(), rel=1e-5)
    assert (record.epsilon, record.images) == ("0.1", 20)
    place = f"{layout.DIAGNOSTICS}/{layout.short(trial)}"
    before = set(store.paths(place))
    assert diagnose_trial(store, wanted, None) == record == store.record(DiagnosticsRecord, wanted.record)
    assert set(store.paths(place)) == before


def test_diagnostics_with_other_settings_stand_beside_the_first(trained, wanted):
    store = trained[0]
    first = diagnose_trial(store, wanted, None)
    for other in (replace(wanted, images=10), replace(wanted, epsilon="0.3")):
        found = diagnose_trial(store, other, None)
        assert (found.epsilon, found.images) == (other.epsilon, other.images)
        assert found.summary != first.summary and found.arrays != first.arrays
    assert store.record(DiagnosticsRecord, wanted.record) == first


@pytest.mark.parametrize("broken", ["record", "arrays", "missing arrays"])
def test_broken_diagnostics_are_computed_again(trained, wanted, broken):
    store = trained[0]
    first = diagnose_trial(store, wanted, None)
    path = wanted.record if broken == "record" else first.arrays_path
    if broken == "missing arrays":
        store.delete(path)
    else:
        store.write(path, store.read(path)[:200])
    assert [fault.path for fault in store.broken_records()] == [wanted.record]
    assert stored_diagnosis(store, wanted) is None
    assert diagnose_trial(store, wanted, None).summary == first.summary
    assert stored_diagnosis(store, wanted) is not None and list(store.broken_records()) == []


def test_a_study_asks_for_diagnostics_with_its_own_settings(tmp_path):
    evaluation = {"suite": "logit_scaling", "epsilon": "0.1", "images": 20, "diagnostics": True}

    def asked(**changes) -> dict[str, str]:
        study = tiny(tmp_path, methods={"at": {}}, search=None, evaluation={**evaluation, **changes})
        return {one.checkpoint: one.record for one in diagnoses_of(study, expand(study)[0])}

    assert set(asked()) == {"best_validation", "last"} and asked() == asked(shards=2)
    places = [asked()["last"], asked(epsilon="8/255")["last"], asked(images=10)["last"], asked(images=None)["last"]]
    assert len(set(places)) == 4 and len({path.rpartition("/")[0] for path in places}) == 1
