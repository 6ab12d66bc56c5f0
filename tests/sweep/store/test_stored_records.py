"""A record that is read is what was written at its place; all else is broken, counts as missing, and is kept aside."""

import json
import pickle

import pytest

from sweep.store import layout
from sweep.store.base import Store, fault_of
from sweep.store.encoding import BrokenRecord, NewerRecord, encode
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord, attack_id
from sweep.store.records.kinds import RECORD_TYPES
from sweep.store.records.manifest import Manifest
from sweep.store.records.record import Record
from sweep.store.records.search import CandidateRecord
from sweep.store.records.trial import TrialRecord
from tests import records
from trainers.attacks.scoring import suites

OTHER = "cd" * 32
FOLDER = layout.evaluation_folder(records.TRIAL, "best_test", "pgd-20")
KINDS: dict[str, tuple[Record, Record]] = {  # each with one of its kind that belongs elsewhere
    "trial": (records.trial_record(), records.trial_record(OTHER)),
    "evaluation": (records.evaluation_record(), records.evaluation_record(OTHER)),
    "shard": (records.shard_record(FOLDER, 0, 9), records.shard_record(FOLDER, 0, 10)),
    "candidate": (records.candidate_record(), records.candidate_record(OTHER)),
    "search": (records.search_record(), records.search_record("sovr-other")),
    "diagnostics": (records.diagnostics_record(), records.diagnostics_record(images=7)),
    "decision": (records.decision_record(), records.decision_record(OTHER)),
    "row": (records.row_record(), records.row_record("other")),
    "transfer": (records.transfer_record(), records.transfer_record(OTHER)),
    "study": (records.manifest(), records.manifest("other")),
}
NEEDED = {
    "trial": "status",
    "evaluation": "verdicts",
    "shard": "correct",
    "candidate": "curve",
    "search": "chosen",
    "diagnostics": "summary",
    "row": "subject",
    "transfer": "weights",
    "decision": "differences",
    "study": "cells",
}


def changed(record: Record, **changes) -> bytes:
    """Its bytes with other content and a checksum that fits; a key set to None is left out."""
    content = {**json.loads(record.encoded()), **changes}
    return encode({key: value for key, value in content.items() if key != "sha256" and value is not None})


def damaged(kind: str) -> dict[str, bytes]:
    record, elsewhere = KINDS[kind]
    other_kind = KINDS["study" if kind == "trial" else "trial"][0]
    data = record.encoded()
    middle = len(data) // 2
    return {
        "of another place": elsewhere.encoded(),
        "of another kind": other_kind.encoded(),
        "without a key": changed(record, **{NEEDED[kind]: None}),
        "of an older format": changed(record, format=0),
        "with a flipped byte": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "half": data[:middle],
        "empty": b"",
        "a list": b"[]",
        "without a checksum": b'{"kind": "trial"}',
        "binary": b"\xff\xfe",
        "zeros": b"\0" * len(data),
        "nested without end": b'{"sha256": "c", "a":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    }


def test_every_kind_is_tried_here():
    assert set(KINDS) == set(RECORD_TYPES)


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_comes_back_as_it_was_written(store, kind):
    record = KINDS[kind][0]
    store.write_record(record)
    assert store.paths() == [record.path] and layout.kind_at(record.path) == kind
    assert store.record(type(record), record.path) == record
    assert store.usable(type(record), record.path) == record
    assert list(store.records(type(record), [record.path, "trials/none/record.json"])) == [record]
    store.write(record.path, json.dumps(json.loads(record.encoded()), indent=4).encode())
    assert store.record(type(record), record.path) == record  # reformatted by some tool


@pytest.mark.parametrize(("kind", "damage"), [(kind, damage) for kind in KINDS for damage in damaged(kind)])
def test_whatever_is_not_the_record_is_broken_counts_as_missing_and_is_kept_aside(tmp_path, kind, damage):
    store, record = open_store(tmp_path), KINDS[kind][0]
    wrong = damaged(kind)[damage]
    store.write(record.path, wrong)
    with pytest.raises(BrokenRecord) as caught:
        store.record(type(record), record.path)
    assert caught.value.path == record.path and not isinstance(caught.value, NewerRecord)
    assert store.usable(type(record), record.path) is None
    skipped: list[BrokenRecord] = []
    assert list(store.records(type(record), [record.path], skipped.append)) == []
    assert [fault.path for fault in skipped] == [record.path]
    if kind != "shard":  # which counts for nothing until its evaluation is read
        assert [fault.path for fault in store.broken_records()] == [record.path]
    for number in (1, 2):
        place = store.set_aside(record.path)
        assert place == f"broken/{record.path}.{number}" and store.read(place) == wrong
        assert not store.exists(record.path) and not list(store.broken_records())
        store.write(record.path, wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_a_later_versions_record_is_told_and_left_alone(tmp_path, kind):
    store, record = open_store(tmp_path), KINDS[kind][0]
    store.write(record.path, changed(record, format=2, **{NEEDED[kind]: None}))
    for read in (store.record, store.usable):
        with pytest.raises(NewerRecord, match="format 2, this version reads 1"):
            read(type(record), record.path)
    assert list(store.broken_records()) == [] and fault_of(record.path, store.read(record.path)) is None
    assert store.trial_states() == ({layout.short(records.TRIAL): "done"} if kind == "trial" else {})


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_a_later_version_added_is_ignored(tmp_path, kind):
    store, record = open_store(tmp_path), KINDS[kind][0]
    store.write(record.path, changed(record, later="x"))
    assert store.record(type(record), record.path) == record


def test_records_without_what_their_place_says_are_read(tmp_path):
    """As they were written before candidates and shards named their own place, and formats were numbered."""
    store = open_store(tmp_path)
    for record, keys in (
        (KINDS["candidate"][0], ("search", "format")),
        (KINDS["shard"][0], ("folder", "first", "last", "phase")),
    ):
        store.write(record.path, changed(record, **dict.fromkeys(keys)))
        assert store.record(type(record), record.path) == record


def test_verdicts_that_do_not_give_the_accuracy_are_broken(tmp_path):
    store, record = open_store(tmp_path), records.evaluation_record()
    for changes in ({"accuracy": 0.6}, {"images": 50}, {"verdicts": "!"}, {"clean": "AA=="}, {"phases": {"x": ""}}):
        store.write(record.path, changed(record, **changes))
        with pytest.raises(BrokenRecord):
            store.record(EvaluationRecord, record.path)


def test_a_collapsed_trials_nan_is_null_and_an_infinite_hyperparameter_is_text(store):
    infinite = {"Lambda": float("inf")}
    trial = records.trial_record(
        status="collapsed",
        curve=({"train_loss": float("nan")},),
        config=records.trial_config(method="gairat", hyperparameters=infinite),
    )
    cell = records.manifest().cells[0].model_copy(update={"hyperparameters": infinite})
    for record in (trial, records.manifest(cells=(cell,))):
        store.write_record(record)
    found = store.trial_record(records.TRIAL)
    assert b'"train_loss":null' in store.read(trial.path) and found.curve[0]["train_loss"] is None
    assert found.config.hyperparameters == {"Lambda": "inf"}
    assert store.manifest("small").cells[0].hyperparameters == {"Lambda": "inf"}


def test_epochs_that_were_not_evaluated_take_no_room_and_read_as_none(store):
    absent = dict.fromkeys(("test_clean_accuracy", "test_pgd_accuracy", "validation_pgd_accuracy", "train_loss"))
    rows = tuple({"epoch": e, "validation_clean_accuracy": 0.5 if e else None, **absent} for e in range(2))
    trial = records.trial_record(curve=rows)
    store.write_record(trial)
    stored = store.read(trial.path)
    assert b"null" not in stored.partition(b'"curve":')[2].partition(b"]")[0] and stored.count(b"validation_clean") == 1
    found = store.trial_record(records.TRIAL)
    assert found.curve == rows == trial.curve and found.encoded() == stored


def test_states_follow_the_record(store):
    place = layout.short(records.TRIAL)
    assert store.trial_states() == {} and store.trial_record(records.TRIAL) is None
    store.write(layout.trial_file(records.TRIAL, layout.RESUME), b"half way")
    assert store.trial_states() == {}
    for status in ("failed", "done", "collapsed", "done"):
        store.write_record(records.trial_record(status=status))
        assert store.trial_states() == {place: status} and store.trial_record(records.TRIAL).status == status


def test_what_is_no_folder_with_a_record_is_no_trial(tmp_path):
    store = open_store(tmp_path)
    store.write("trials/notes.txt", b"a file among the folders")
    (tmp_path / layout.trial_record(OTHER)).mkdir(parents=True)
    store.write_record(records.trial_record())
    assert store.trial_states() == {layout.short(records.TRIAL): "done"}


@pytest.mark.parametrize("damage", damaged("trial"))
def test_a_damaged_record_is_broken_and_not_done(tmp_path, damage):
    store, path = open_store(tmp_path), KINDS["trial"][0].path
    store.write(path, damaged("trial")[damage])
    assert store.trial_states() == {layout.short(records.TRIAL): "broken"}
    store.write(path, json.dumps(json.loads(KINDS["trial"][0].encoded()), indent=1).encode())
    assert store.trial_states() == {layout.short(records.TRIAL): "done"}


def test_a_broken_record_is_named_and_the_others_are_read(store):
    store.write_record(records.trial_record())
    store.write_record(records.manifest())
    for path in (layout.trial_record("0" * 64), layout.manifest("broken")):
        store.write(path, b"{")
    paths = store.record_paths(TrialRecord)
    with pytest.raises(BrokenRecord):
        list(store.records(TrialRecord, paths))
    broken: list[BrokenRecord] = []
    assert [found.trial for found in store.records(TrialRecord, paths, broken.append)] == [records.TRIAL]
    assert list(store.manifests(broken.append)) == ["small"]
    assert [fault.path for fault in broken] == [f"trials/{'0' * 16}/record.json", "studies/broken.json"]


def test_records_are_found_by_their_place(store):
    for record, _ in KINDS.values():
        store.write_record(record)
    store.write(records.diagnostics_record().arrays_path, b"no record")
    store.write(layout.trial_file(records.TRIAL, layout.PROGRESS), b"no record")
    for kind in (TrialRecord, EvaluationRecord, CandidateRecord, Manifest):
        assert store.record_paths(kind) == [KINDS[kind.kind][0].path]
    assert store.record_paths(EvaluationRecord, layout.evaluations_of(OTHER)) == []
    assert list(store.broken_records()) == []


@pytest.mark.parametrize("suite", suites.SUITES)
def test_an_attacks_id_in_a_record_is_the_attacks_own(tmp_path, suite):
    store: Store = open_store(tmp_path)
    for epsilon, images in (("8/255", None), ("0.031", (0, 1000))):
        for attack in suites.attacks(suites.names_of(suite), epsilon=epsilon, images=images):
            record = records.evaluation_record(attack=attack)
            assert attack_id(record.attack) == attack.id
            store.write_record(record)
            assert store.record(EvaluationRecord, record.path).path.endswith(f"/{attack.id}.json")


def test_a_copy_with_other_values_belongs_where_those_say():
    record = records.evaluation_record()
    assert record.path and record.clean_accuracy is not None
    copied = record.model_copy(update={"checkpoint": "last", "clean": None})
    assert copied.path == layout.evaluation_record(record.trial, "last", attack_id(record.attack))
    assert copied.clean_accuracy is None and record.path != copied.path


@pytest.mark.parametrize("kind", [BrokenRecord, NewerRecord])
def test_a_broken_record_is_told_whole_to_another_process(kind):
    fault = pickle.loads(pickle.dumps(kind("trials/x/record.json", "cut off")))
    assert type(fault) is kind and (fault.path, fault.reason) == ("trials/x/record.json", "cut off")
    assert str(fault) == str(kind("trials/x/record.json", "cut off"))
