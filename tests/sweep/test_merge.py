"""merge: what comes together, and what is refused before anything is written."""

import hashlib
import os
import time

import pytest
from stored import WEIGHTS, evaluation, search, trial, write_trial

from sweep.errors import UserError
from sweep.store import layout, leases
from sweep.store.base import Store
from sweep.store.encoding import encode
from sweep.store.leftovers import delete, delete_dead, leftovers
from sweep.store.manifests import write_manifest
from sweep.store.merging import Merge
from sweep.store.opening import open_store
from sweep.store.records.diagnostics import DiagnosticsRecord
from sweep.store.records.search import CandidateRecord
from sweep.store.records.trial import TrialRecord
from sweep.studies.model import Study
from sweep.trials import cells as planned

PAPER = ("selection.protocol=paper", "selection.validation=0")


def load(methods=("at", "trades"), settings=()) -> Study:
    return Study.load("digits", methods=methods, seeds=[0, 1], overrides=[*PAPER, *settings])


def fill(folder, *, accuracy=0.5, status="done", **options) -> tuple[Store, list[planned.Cell]]:
    store, study = open_store(folder), load(**options)
    cells = planned.expand(study)
    for cell in cells:
        write_trial(store, cell, status, accuracy=accuracy)
        store.write(layout.trial_file(cell.trial, layout.RESUME), b"resume")
        store.write_record(evaluation(study, cell))
    write_manifest(store, planned.manifest(study, cells))
    return store, cells


def merge(target, *sources: Store) -> int:
    merging = Merge(target, sources)
    merging.write()
    return len(merging.new)


def refusal(target, *sources: Store) -> str:
    before = contents(target)
    with pytest.raises(UserError) as caught:
        merge(target, *sources)
    assert contents(target) == before
    return str(caught.value)


def contents(store: Store) -> dict[str, bytes]:
    return {path: store.read(path) for path in store.paths()}


@pytest.fixture
def target(tmp_path) -> Store:
    return open_store(tmp_path / "all")


def test_merge_brings_everything_of_disjoint_stores_together(tmp_path, target):
    one, _ = fill(tmp_path / "one", methods=("at",))
    two, _ = fill(tmp_path / "two", methods=("trades",))
    assert len(Merge(target, [one, two]).new) == 9 and not target.root.exists()
    assert merge(target, one, two) == 9
    expected = {**contents(one), **contents(two)}
    found = contents(target)
    assert {cell.label for cell in target.manifest("digits").cells} == {"at", "trades"}
    manifest = layout.manifest("digits")
    del expected[manifest], found[manifest]
    assert found == {path: data for path, data in expected.items() if not path.endswith(layout.RESUME)}
    assert set(target.trial_states().values()) == {"done"}
    assert merge(target, one, two) == 0


def test_a_store_to_publish_has_every_record_and_leaves_the_named_files_behind(tmp_path, target):
    one, cells = fill(tmp_path / "one")
    searching = search(Study.load("digits", methods=["sovr"]), "sovr", ["done"])
    one.write_record(searching)
    one.write(layout.search_journal(searching.id), b"proposals")
    log = layout.trial_file(cells[0].trial, layout.LOG)
    one.write(log, b"printed")
    typed = trial(cells[1]).model_copy(update={"command": "python -m sweep.run --store /home/me/store"})
    one.write_record(typed)
    Merge(target, [one], ["weights", "logs", "journals", "commands"]).write()
    found = contents(target)
    assert not any(b"/home/me" in data for data in found.values())
    assert target.record(TrialRecord, typed.path) == typed.model_copy(update={"command": None})
    assert not any(path.endswith((layout.WEIGHTS, "journal.log")) for path in found) and log not in found
    records = {path for path in contents(one) if layout.kind_at(path)}
    assert records == set(found) and any(layout.kind_at(path) == "search" for path in records)
    assert merge(target, one) == 0


def test_merge_takes_the_same_outcome_of_two_computations_once(tmp_path):
    one, cells = fill(tmp_path / "one")
    two, _ = fill(tmp_path / "two")
    two.write_record(trial(cells[0], wall_seconds=99.0, device="another"))
    before = contents(one)
    merge(one, two)
    assert contents(one) == before


def test_merge_refuses_two_data_sets_of_one_name(tmp_path, target):
    one, _ = fill(tmp_path / "one", methods=("at",))
    two, cells = fill(tmp_path / "two", methods=("trades",))
    for store, sha256 in ((one, "a" * 64), (two, "b" * 64)):
        for path in store.record_paths(TrialRecord):
            record = store.record(TrialRecord, path)
            store.write_record(record.model_copy(update={"data": {"digits": sha256}}))
    message = refusal(target, one, two)
    assert "different data under the name 'digits'" in message and one.uri in message and two.uri in message
    for path in two.record_paths(TrialRecord):
        older = two.record(TrialRecord, path).model_copy(update={"data": {}})  # which does not say
        two.write_record(older)
    assert merge(target, one, two) == 9


def test_merge_warns_where_devices_threads_or_builds_differ(tmp_path, target):
    one, _ = fill(tmp_path / "one", methods=("at",))
    two, _ = fill(tmp_path / "two", methods=("trades",))
    facts = {"device_kind": "cpu", "threads": 1, "versions": {"torch": "2.13.0+cpu"}}
    for store, changes in ((one, {}), (two, {"threads": 2, "versions": {"torch": "2.13.0+cu130"}})):
        for path in store.record_paths(TrialRecord):
            store.write_record(store.record(TrialRecord, path).model_copy(update={**facts, **changes}))
    found = Merge(target, [one, two]).warnings
    assert [warning.partition(";")[0].partition("different ")[2] for warning in found] == [
        "builds of torch: 2.13.0+cpu, 2.13.0+cu130",
        "numbers of threads: 1, 2",
    ]
    assert not Merge(target, [one]).warnings


def test_merge_refuses_conflicts_with_both_sides_named(tmp_path):
    one, cells = fill(tmp_path / "one")
    two, _ = fill(tmp_path / "two", methods=("at", "trades", "mart"))
    two.write_record(trial(cells[0], accuracy=0.6))
    two.write_record(evaluation(load(), cells[1], right=7))
    message = refusal(one, two)
    assert one.uri in message and two.uri in message
    assert f"{layout.trial_record(cells[0].trial)}: two different outcomes of one trial" in message
    assert layout.evaluations_of(cells[1].trial) in message and message.count("two different outcomes") == 2


def test_merge_sees_conflicts_between_two_sources(tmp_path, target):
    one, _ = fill(tmp_path / "one")
    two, _ = fill(tmp_path / "two", accuracy=0.9)
    assert "contradict each other" in refusal(target, one, two) and not target.root.exists()


def test_merge_prefers_what_is_done_to_what_failed(tmp_path):
    one, _ = fill(tmp_path / "one", status="failed")
    two, _ = fill(tmp_path / "two")
    merge(one, two)
    assert set(one.trial_states().values()) == {"done"}
    three, _ = fill(tmp_path / "three", status="failed")
    assert merge(one, three) == 0
    assert set(one.trial_states().values()) == {"done"}


def test_merge_takes_the_finished_search_with_its_journal_and_no_lock(tmp_path, target):
    study = Study.load("digits", methods=["sovr"])
    one, two = open_store(tmp_path / "one"), open_store(tmp_path / "two")
    one.write_record(search(study, "sovr", ["done", "open"]))
    done = search(study, "sovr", ["done", "done"], status="done", chosen={"M": 20})
    two.write_record(done)
    journal = layout.search_journal(done.id)
    two.write(journal, b"journal")
    two.write(f"{journal}.lock", b"")
    merge(target, one, two)
    assert target.search_record(done.id) == done
    assert target.paths() == [journal, done.path]


def test_merge_refuses_one_name_for_two_studies(tmp_path):
    one, _ = fill(tmp_path / "one")
    two, _ = fill(tmp_path / "two", settings=["train.epochs=3"])
    told = refusal(one, two)
    assert "studies/digits.json: the same name for two different studies (train.epochs = " in told and " and 3)" in told
    assert "--set name=digits_variant" in told and "delete studies/digits.json" in told


def test_what_merge_advises_for_a_variant_works(tmp_path):
    one, _ = fill(tmp_path / "one")
    two, _ = fill(tmp_path / "two", settings=["train.epochs=3"])
    renamed = load(settings=["train.epochs=3", "name=digits_variant"])
    write_manifest(two, planned.manifest(renamed, planned.expand(renamed)))
    two.delete("studies/digits.json")
    merge(one, two)
    assert sorted(one.manifests(lambda fault: None)) == ["digits", "digits_variant"]


def test_merge_refuses_one_column_for_two_kinds_of_trials(tmp_path):
    one, _ = fill(tmp_path / "one")
    two, _ = fill(tmp_path / "two", settings=["methods.trades.hyperparameters.beta=3"])
    assert "different trials under 'trades' seed 0" in refusal(one, two)


def test_merge_refuses_broken_records_itself_and_the_future(tmp_path):
    one, cells = fill(tmp_path / "one")
    two, _ = fill(tmp_path / "two")
    assert "into itself" in refusal(one, open_store(tmp_path / "two" / ".." / "one"))
    path = layout.trial_record(cells[0].trial)
    two.write(path, encode({"kind": "trial", "format": 99}))
    assert f"{path} was written by a newer version; update robustsweep first" in refusal(one, two)
    two.write(path, b"{")
    two.write(layout.manifest("digits"), b"{")
    message = refusal(one, two)
    assert f"{two.uri}: broken record {path}" in message and "broken record studies/digits.json" in message


def test_a_record_at_another_s_place_is_refused(tmp_path, target):
    one, cells = fill(tmp_path / "one")
    here, there = layout.trial_record(cells[0].trial), layout.trial_record(cells[1].trial)
    one.write(here, one.read(there))
    assert f"broken record {here}: belongs at {there}" in refusal(target, one)


def test_weights_that_are_not_those_of_their_record_are_refused(tmp_path, target):
    one, cells = fill(tmp_path / "one")
    path = layout.weights(cells[0].trial, "last")
    one.write(path, WEIGHTS[:-1])
    assert f"broken file {path}: it is not the one that" in refusal(target, one)
    one.delete(path)  # as gc does with what no table needs
    merge(target, one)
    assert not target.exists(path)


def test_no_link_is_followed(tmp_path, target):
    one, cells = fill(tmp_path / "one")
    path, secret = layout.weights(cells[0].trial, "last"), tmp_path / "secret"
    secret.write_bytes(WEIGHTS)
    one.delete(path)
    one.local(path).symlink_to(secret)
    assert f"broken file {path}: it is a link" in refusal(target, one)
    one.delete(path)
    (one.local(layout.trial_folder(cells[0].trial)) / "notes.txt").symlink_to(secret)
    os.symlink(tmp_path, one.local(layout.TRIALS) / "outside")
    merge(target, one)
    assert not any("notes.txt" in path or "outside" in path for path in target.paths())


def test_diagnostics_come_with_their_arrays_or_not_at_all(tmp_path, target):
    one, cells = fill(tmp_path / "one")
    content = b"arrays"
    place = layout.diagnostics_record(cells[0].trial, "last", "8/255", None)
    record = DiagnosticsRecord(
        trial=cells[0].trial,
        checkpoint="last",
        epsilon="8/255",
        summary={},
        arrays=f"{place.rpartition('/')[2].removesuffix('.json')}.npz",
        arrays_sha256=hashlib.sha256(content).hexdigest(),
    )
    one.write_record(record)
    assert f"broken record {place}: {record.arrays_path} is absent" in refusal(target, one)
    one.write(record.arrays_path, b"others")
    assert f"broken file {record.arrays_path}" in refusal(target, one)
    one.write(record.arrays_path, content)
    Merge(target, [one], ["diagnostics"]).write()
    assert target.paths(layout.TRIALS) and not target.paths(layout.DIAGNOSTICS)
    merge(target, one)
    assert target.read(record.arrays_path) == content and target.record(DiagnosticsRecord, place) == record


def test_a_broken_candidate_is_left_out_with_a_warning(tmp_path, target):
    one, cells = fill(tmp_path / "one")
    good, broken = (CandidateRecord(search="s", trial=cell.trial, curve=()) for cell in cells[:2])
    one.write_record(good)
    one.write(broken.path, b"{")
    merging = Merge(target, [one])
    merging.write()
    (warning,) = merging.warnings
    assert broken.path in warning and "left out" in warning
    assert target.exists(good.path) and not target.exists(broken.path)


def test_gc_and_run_beside_a_merge_delete_nothing_that_it_brings(tmp_path, target, monkeypatch):
    """Whatever the merge has copied, and however long that took, before the record or the manifest that wants it."""
    one, cells = fill(tmp_path / "one")
    one.write_record(
        CandidateRecord(search="s", trial=cells[0].trial, curve=())
    )  # pruned there, trained to the end too
    write, looks = target.write, []

    def clean_and_write(path, data):
        if layout.kind_at(path):
            for old in target.paths(layout.TRIALS):
                os.utime(target.local(old), (time.time() - 7200,) * 2)
            delete(target, leftovers(target))
            delete_dead(target)
            looks.append(path)
        write(path, data)

    monkeypatch.setattr(target, "write", clean_and_write)
    merge(target, one)
    weights = [path for path in one.paths() if path.endswith(layout.WEIGHTS)]
    assert looks[-1] == layout.manifest("digits") and len(weights) == 12
    assert [path for path in weights if not target.exists(path)] == []
    assert target.paths(layout.LEASES) == []
    monkeypatch.undo()
    assert leftovers(target)  # after the merge what no study selects is unwanted as ever


def test_a_deletion_that_was_agreed_to_before_a_merge_began_spares_checkpoints(tmp_path):
    one, _ = fill(tmp_path / "one")
    for path in one.paths(layout.TRIALS):
        os.utime(one.local(path), (time.time() - 7200,) * 2)
    unwanted = leftovers(one)
    weights = [path for path in one.paths() if path.endswith(layout.WEIGHTS)]
    with leases.take(one, layout.merge_lease("another")):
        delete(one, unwanted)
        assert [path for path in weights if not one.exists(path)] == []
    delete(one, unwanted)
    assert [path for path in weights if not one.exists(path)] != []


def test_merge_leaves_the_journal_of_a_search_that_is_led_here_alone(tmp_path, target):
    study = Study.load("digits", methods=["sovr"])
    one = open_store(tmp_path / "one")
    done = search(study, "sovr", ["done", "done"], status="done", chosen={"M": 20})
    one.write_record(done)
    journal = layout.search_journal(done.id)
    one.write(journal, b"theirs")
    target.write_record(search(study, "sovr", ["done", "open"]))
    target.write(journal, b"being written")
    with leases.take(target, layout.search_lease(done.id)):
        merge(target, one)
        assert target.read(journal) == b"being written" and target.search_record(done.id) == done
    target.write_record(search(study, "sovr", ["done", "open"]))
    merge(target, one)
    assert target.read(journal) == b"theirs"
