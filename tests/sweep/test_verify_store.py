"""verify-store: finds what is not what was written, leaves what gc deleted alone, and repairs only when asked to."""

import hashlib
import os

import pytest
from stored import evaluation, write_trial

from sweep import cli
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.manifests import write_manifest
from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.trials import cells as planned
from tests import records

PAPER = ("selection.protocol=paper", "selection.validation=0", "evaluation.diagnostics=false")


@pytest.fixture(params=["folder", "s3"])
def store(request, tmp_path) -> Store:
    if request.param == "folder":
        return open_store(tmp_path / "store")
    address = request.getfixturevalue("endpoint")
    return open_store(f"s3://results/{tmp_path.name}?endpoint_override={address}&region=us-east-1")


@pytest.fixture
def cells(store):
    """A whole store: two trials with weights and evaluations, one with diagnostics, and their manifest."""
    study = Study.load("digits", methods=("at", "trades"), seeds=[0], overrides=PAPER)
    found = planned.expand(study)
    for cell in found:
        write_trial(store, cell, command=f"python -m sweep.run --study digits --methods {cell.label} --seeds 0")
        store.write_record(evaluation(study, cell))
    diagnosed = diagnostics(found[0])
    store.write(diagnosed.arrays_path, b"arrays")
    store.write_record(diagnosed)
    write_manifest(store, planned.manifest(study, found))
    return found


@pytest.fixture
def verify(store, capsys):
    def call(*options):
        with pytest.raises(SystemExit) as caught:
            cli.main(["verify-store", "--store", store.uri, *options])
        return caught.value.code, capsys.readouterr().out

    return call


def diagnostics(cell):
    return records.diagnostics_record(cell.trial, arrays_sha256=hashlib.sha256(b"arrays").hexdigest())


def contents(store: Store) -> dict[str, bytes]:
    return {path: store.read(path) for path in store.paths()}


def row(text: str, kind: str) -> list[int]:
    """checked, damaged, missing"""
    return next([int(word) for word in line.split()[1:]] for line in text.splitlines() if line.split()[0] == kind)


def test_a_whole_store_has_nothing_wrong_with_it(store, cells, verify):
    before = contents(store)
    code, text = verify("--repair")
    assert code == 0 and "nothing is wrong" in text and contents(store) == before
    assert [row(text, kind) for kind in ("study", "trial", "evaluation", "diagnostics", "weights", "arrays")] == [
        *([1, 0, 0], [2, 0, 0], [2, 0, 0], [1, 0, 0], [6, 0, 0], [1, 0, 0])
    ]


def test_weights_that_gc_deleted_are_absent_and_those_that_a_study_selects_are_missing(store, cells, verify):
    store.delete(layout.weights(cells[0].trial, "last"))
    code, text = verify()
    assert code == 0 and "1 checkpoint absent that no study selects" in text and row(text, "weights") == [5, 0, 0]
    selected = layout.weights(cells[0].trial, "best_test")
    store.delete(selected)
    code, text = verify()
    assert code == 1 and f"missing: {selected}\n" in text and row(text, "weights") == [4, 0, 1]
    verify("--repair")
    assert layout.short(cells[0].trial) not in store.trial_states()


def test_damaged_weights_are_found_and_repaired_by_training_again(store, cells, verify):
    path, record = layout.weights(cells[1].trial, "best_test"), layout.trial_record(cells[1].trial)
    damaged = bytes([store.read(path)[0] ^ 1]) + store.read(path)[1:]  # one flipped bit
    store.write(path, damaged)
    before = contents(store)
    code, text = verify()
    assert code == 1 and f"damaged: {path}: not the file that was written" in text
    assert row(text, "weights") == [6, 1, 0] and contents(store) == before  # only --repair changes anything
    code, text = verify("--repair")
    assert code == 1 and text.endswith("again:\n  python -m sweep.run --study digits --methods trades --seeds 0\n")
    assert store.read(f"broken/{path}.1") == damaged and store.read(f"broken/{record}.1") == before[record]
    assert store.trial_states() == {layout.short(cells[0].trial): "done"}  # the other is planned again
    # What was measured on the lost weights went with them; the other trial's stays.
    assert [path.split("/")[1] for path in store.paths(layout.EVALUATIONS)] == [layout.short(cells[0].trial)]
    assert any(path.startswith(f"broken/{layout.evaluations_of(cells[1].trial)}/") for path in contents(store))
    assert verify()[0] == 0


@pytest.mark.parametrize("damage", ["changed", "absent"])
def test_damaged_arrays_take_their_record_along(store, cells, verify, damage):
    record = diagnostics(cells[0])
    store.write(record.arrays_path, b"other") if damage == "changed" else store.delete(record.arrays_path)
    assert [fault.path for fault in store.broken_records()] == [record.path]
    code, text = verify("--repair")
    assert code == 1 and row(text, "arrays") == ([1, 1, 0] if damage == "changed" else [0, 0, 1])
    assert "--methods at --seeds 0" in text and not store.exists(record.path)
    assert list(store.broken_records()) == [] and verify()[0] == 0


def test_a_run_reads_arrays_only_where_they_are_younger_than_their_record(store, cells, monkeypatch):
    if store.local("") is None:
        pytest.skip("S3 has no times that could be set")
    record, read = diagnostics(cells[0]), []
    check = Store.file_fault
    monkeypatch.setattr(
        Store, "file_fault", lambda self, path, sha256: (read.append(path), check(self, path, sha256))[1]
    )
    written = store.local(record.path).stat().st_mtime
    os.utime(store.local(record.arrays_path), (written - 1, written - 1))
    assert list(store.broken_records()) == [] and read == []
    store.write(record.arrays_path, b"other")
    os.utime(store.local(record.arrays_path), (written + 1, written + 1))
    assert [fault.path for fault in store.broken_records()] == [record.path] and read == [record.arrays_path]


@pytest.mark.parametrize("kind", ["trial", "evaluation", "diagnostics", "study"])
def test_half_a_record_of_any_kind_is_found_and_set_aside(store, cells, verify, kind):
    path = next(path for path in store.paths() if layout.kind_at(path) == kind)
    half = store.read(path)[: len(store.read(path)) // 2]
    store.write(path, half)
    code, text = verify("--repair")
    assert code == 1 and row(text, kind)[1:] == [1, 0] and f"damaged: {path}: not JSON" in text
    assert store.read(f"broken/{path}.1") == half and not store.exists(path)
    assert "python -m sweep.run --study digits" in text and verify()[0] == 0


def test_a_folder_in_the_place_of_weights_is_told_and_does_not_end_the_repair(tmp_path, capsys):
    store = open_store(tmp_path)
    write_trial(store, planned.expand(Study.load("digits", methods=("at",), seeds=[0], overrides=PAPER))[0])
    path = next(path for path in store.paths() if path.endswith(layout.WEIGHTS))
    store.delete(path)
    store.local(path).mkdir()
    with pytest.raises(SystemExit) as caught:
        cli.main(["verify-store", "--store", store.uri, "--repair"])
    text = capsys.readouterr().out
    assert caught.value.code == 1 and f"damaged: {path}: Is a directory" in text and store.trial_states() == {}
