"""retry and gc: what they touch and, above all, what they leave."""

import io
import json
import os
import subprocess
import sys
import time

import pytest
from stored import WEIGHTS, evaluation, trial, write_trial

from sweep import cli
from sweep.store import layout, leases
from sweep.store.base import Store
from sweep.store.leases import Holder
from sweep.store.leftovers import delete_dead
from sweep.store.manifests import write_manifest
from sweep.store.opening import open_store
from sweep.store.records.evaluation import ShardRecord
from sweep.store.records.search import CandidateRecord
from sweep.studies.model import Study
from sweep.trials import cells as planned
from trainers.loop.checkpoint import replacing

# So that tables need `best_test` alone.
PAPER = ("selection.protocol=paper", "selection.validation=0", "evaluation.diagnostics=false")
RESUME = b"r" * 1000


@pytest.fixture
def fill(tmp_path):
    def made(*settings):
        store = open_store(tmp_path)
        study = Study.load("digits", methods=("at", "trades"), seeds=[0, 1], overrides=[*PAPER, *settings])
        cells = planned.expand(study)
        for cell in cells:
            write_trial(store, cell)
            store.write(layout.trial_file(cell.trial, layout.RESUME), RESUME)
            store.write_record(evaluation(study, cell))
        write_manifest(store, planned.manifest(study, cells))
        age(store, *(path for path in store.paths(layout.TRIALS) if path.endswith(layout.WEIGHTS)))
        return store, study, cells

    return made


@pytest.fixture
def sweep(capsys):
    """Runs a command; its exit code, and what it says."""

    def call(*arguments):
        with pytest.raises(SystemExit) as caught:
            cli.main(list(arguments))
        captured = capsys.readouterr()
        return caught.value.code, captured.out + captured.err

    return call


def contents(store: Store) -> dict[str, bytes]:
    return {path: store.read(path) for path in store.paths()}


def age(store: Store, *paths: str, seconds: float = 7200) -> None:
    for path in paths:
        os.utime(store.local(path), (time.time() - seconds,) * 2, follow_symlinks=False)


# retry


def test_retry_frees_failed_trials_and_keeps_their_story(fill, sweep):
    store, _, cells = fill()
    failed, place = cells[0].trial, layout.short(cells[0].trial)
    store.write_record(trial(cells[0], "failed"))
    _, text = sweep("retry", "--store", store.uri, "--dry-run")
    assert f"would retry: at seed 0 ({place})" in text and "1 trial would be set free" in text
    assert store.trial_states()[place] == "failed"
    _, text = sweep("retry", "--store", store.uri, "--study", "digits", "--methods", "at", "--seeds", "0")
    assert f"to be run again: at seed 0 ({place})" in text and "1 trial set free" in text
    assert planned.states(cells, store) == ["missing", "done", "done", "done"]
    assert json.loads(store.read(layout.failed_record(failed, 1)))["status"] == "failed"
    assert store.exists(layout.trial_file(failed, layout.RESUME))


def test_retry_puts_a_broken_record_where_broken_ones_are_kept(fill, sweep):
    store, _, cells = fill()
    path = layout.trial_record(cells[0].trial)
    store.write(path, b"{")
    assert "1 trial set free" in sweep("retry", "--store", store.uri)[1]
    assert not store.exists(path) and store.read(f"broken/{path}.1") == b"{"


def test_retry_leaves_other_methods_seeds_and_outcomes_alone(fill, sweep):
    store, _, cells = fill()
    store.write_record(trial(cells[0], "failed"))
    store.write_record(trial(cells[1], "collapsed"))
    for words in (("--methods", "trades"), ("--methods", "at", "--seeds", "1")):
        assert "0 trials set free" in sweep("retry", "--store", store.uri, *words)[1]
    for words, message in (
        (("--methods", "tradse"), "did you mean 'trades'"),
        (("--methods", ""), "names no method"),
        (("--methods", " , "), "names no method"),
        (("--study", "digit"), "did you mean 'digits'"),
    ):
        code, text = sweep("retry", "--store", store.uri, *words)
        assert code == 2 and message in text


# gc


def test_gc_keeps_what_tables_and_unfinished_trials_need(fill, sweep):
    store, _, cells = fill()
    unfinished = layout.trial_folder(cells[3].trial)
    store.delete(layout.trial_record(cells[3].trial))
    before = contents(store)
    freed = 3 * (len(RESUME) + 2 * len(WEIGHTS))
    assert f"({freed} bytes)" in sweep("gc", "--store", store.uri, "--dry-run")[1] and contents(store) == before
    assert f"({freed} bytes)" in sweep("gc", "--store", store.uri, "--yes")[1]
    for cell in cells[:3]:
        names = {layout.in_trial(path)[1] for path in store.paths(layout.trial_folder(cell.trial))}
        assert names == {"record.json", "log.txt", "best_test.safetensors"}
    assert store.paths(unfinished) == [path for path in before if path.startswith(unfinished)]
    assert "(0 bytes)" in sweep("gc", "--store", store.uri, "--yes")[1]


def test_gc_keeps_every_checkpoint_that_some_study_evaluates(fill, sweep):
    store, _, cells = fill("evaluation.checkpoints=[headline, last]")
    sweep("gc", "--store", store.uri, "--yes")
    kept = [path for path in store.paths(layout.TRIALS) if path.endswith(layout.WEIGHTS)]
    assert len(kept) == 2 * len(cells) and not any("best_validation" in path for path in kept)


def test_gc_keeps_the_weights_of_an_epoch_that_a_study_asks_for(fill, sweep):
    store, _, cells = fill("evaluation.checkpoints=[headline, epoch-30]")
    for cell in cells:
        for epoch in (20, 30):
            store.write(layout.weights(cell.trial, f"epoch-{epoch}"), WEIGHTS)
            age(store, layout.weights(cell.trial, f"epoch-{epoch}"))
    sweep("gc", "--store", store.uri, "--yes")
    kept = {path.rpartition("/")[2] for path in store.paths(layout.TRIALS) if path.endswith(layout.WEIGHTS)}
    assert kept == {"best_test.safetensors", "epoch-30.safetensors"}


def test_gc_with_keep_all_deletes_no_checkpoint(fill, sweep):
    store, _, _ = fill()
    assert f"({4 * len(RESUME)} bytes)" in sweep("gc", "--store", store.uri, "--keep", "all", "--yes")[1]
    assert sum(path.endswith(layout.WEIGHTS) for path in store.paths()) == 12


def test_gc_sweeps_old_leftovers_but_nothing_that_may_be_in_use(fill, sweep):
    store, study, cells = fill()
    sweep("gc", "--store", store.uri, "--yes")
    done = evaluation(study, cells[0]).path.removesuffix(".json")
    merged, unmerged = (
        ShardRecord(folder=folder, first=0, last=8, correct="AA==") for folder in (done, done.replace("clean", "pgd-9"))
    )
    store.write_record(merged)
    store.write_record(unmerged)
    live, expired = layout.lease("trials-live", 1), layout.lease("trials-dead", 1)
    for path, expires in ((live, time.time() + 60), (expired, 1.0)):
        store.write(path, Holder(id="0" * 32, host="elsewhere", pid=1, expires=expires).model_dump_json().encode())
    temporary = "trials/.record.json.abc.tmp"
    store.local(temporary).write_bytes(b"half")
    weights = f"trials/{killed_while_writing(store.local('trials/last.safetensors')).name}"
    every = (merged.path, unmerged.path, live, expired, temporary, weights)
    assert "(0 bytes)" in sweep("gc", "--store", store.uri, "--yes")[1]
    age(store, *every)
    sweep("gc", "--store", store.uri, "--yes")
    assert [store.exists(path) for path in every] == [False, True, True, False, False, False]


def test_gc_leaves_young_checkpoints_alone_and_says_so(fill, sweep):
    """Their record and the manifest that selects them may be about to be written, as by a merge that is going on."""
    store, _, cells = fill()
    weights = [path for path in store.paths(layout.TRIALS) if path.endswith(layout.WEIGHTS)]
    age(store, *weights, seconds=60)
    _, text = sweep("gc", "--store", store.uri, "--yes")
    assert "left alone: 8 files" in text and "an hour" in text
    assert [path for path in weights if not store.exists(path)] == []
    age(store, *weights)
    assert "checkpoints that no study selects: 8 files" in sweep("gc", "--store", store.uri, "--yes")[1]


def test_gc_names_the_merge_that_it_waits_for(fill, sweep):
    store, _, _ = fill()
    with leases.take(store, layout.merge_lease("one"), 30):
        _, text = sweep("gc", "--store", store.uri, "--yes")
    assert f"process {os.getpid()}" in text and "merge" in text
    assert sum(path.endswith(layout.WEIGHTS) for path in store.paths()) == 12


def killed_while_writing(path):
    """What a training leaves that is killed while it saves."""
    with replacing(path):
        (temporary,) = path.parent.glob(f".{path.name}*")
        copy = temporary.read_bytes()
    path.unlink()
    temporary.write_bytes(copy)
    return temporary


def test_gc_deletes_the_lease_of_a_process_that_died_here_at_once(fill, sweep):
    store, _, _ = fill()
    code = "import os, sys; from sweep.store import leases, opening; s = opening.open_store(sys.argv[1]);"
    subprocess.run([sys.executable, "-c", f"{code} leases.take(s, 'dead'); os._exit(0)", store.uri], check=True)
    with leases.take(store, "alive", 30):
        assert "leases that nobody holds: 1 file" in sweep("gc", "--store", store.uri, "--yes")[1]
        assert store.paths(layout.LEASES) == [layout.lease("alive", 1)]


def test_gc_deletes_what_a_pruned_candidate_left_unless_it_trains_again(fill, sweep):
    store, _, cells = fill()
    trials = [cell.trial for cell in cells]
    for pruned in trials[:2]:
        store.delete(layout.trial_record(pruned))
    for pruned in trials[:3]:  # the third was trained to its end by another study
        store.write_record(CandidateRecord(search="s", trial=pruned, curve=()))
    age(store, *store.paths(layout.TRIALS))
    with leases.take(store, layout.trial_lease(trials[1]), 30):
        assert "files of pruned candidates: 5 files" in sweep("gc", "--store", store.uri, "--keep", "all", "--yes")[1]
    assert [len(store.paths(layout.trial_folder(one))) for one in trials[:3]] == [0, 5, 5]


def test_gc_deletes_locks_of_journals_that_nobody_writes(fill, sweep):
    store, _, _ = fill()
    free, led = "sovr-free", "sovr-led"
    locks = [f"{layout.search_journal(name)}.lock" for name in (free, led)]
    for name, lock in zip((free, led), locks, strict=True):
        store.write(layout.search_journal(name), b"")
        store.local(lock).symlink_to(store.local(layout.search_journal(name)))
    assert "locks" not in sweep("gc", "--store", store.uri, "--yes")[1]
    age(store, *locks, seconds=90)
    with leases.take(store, layout.search_lease(led), 30):
        assert "locks of search journals: 1 file" in sweep("gc", "--store", store.uri, "--yes")[1]
    assert [store.local(lock).is_symlink() for lock in locks] == [False, True]
    assert all(store.exists(layout.search_journal(name)) for name in (free, led))


def test_gc_deletes_what_was_set_aside_only_when_told_to(fill, sweep):
    store, _, cells = fill()
    aside = store.set_aside(layout.trial_record(cells[0].trial))
    sweep("gc", "--store", store.uri, "--yes")
    assert store.exists(aside)
    assert "broken records that were set aside: 1 file" in sweep("gc", "--store", store.uri, "--broken", "--yes")[1]
    assert not store.exists(aside)


def test_gc_deletes_nothing_while_a_manifest_cannot_be_read(fill, sweep):
    store, _, _ = fill()
    store.write(layout.manifest("digits"), b"{")
    before = contents(store)
    code, text = sweep("gc", "--store", store.uri, "--yes")
    assert code == 2 and "broken record studies/digits.json" in text and contents(store) == before


def test_gc_deletes_nothing_while_a_folder_is_in_a_manifests_place(fill, sweep):
    store, _, _ = fill()
    store.delete(layout.manifest("digits"))
    store.local(layout.manifest("digits")).mkdir()
    before = contents(store)
    code, text = sweep("gc", "--store", store.uri, "--yes")
    assert code == 2 and "broken record studies/digits.json: it is no file" in text and contents(store) == before


SMALL_FILES = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
from sweep import cli
cli.main(sys.argv[1:])
"""


@pytest.mark.parametrize("command", ["retry", "merge"])
def test_a_file_that_cannot_be_written_whole_is_told_in_one_line_and_leaves_nothing(fill, tmp_path, command):
    store, _, cells = fill()
    store.write_record(trial(cells[0], "failed"))
    target = tmp_path / "target"
    words = ["retry", "--store", store.uri] if command == "retry" else ["merge", store.uri, "--store", str(target)]
    before = contents(store)
    found = subprocess.run([sys.executable, "-c", SMALL_FILES, *words], capture_output=True, text=True)
    assert found.returncode == 2 and found.stderr.startswith("error: File too large: ")
    assert len(found.stderr.splitlines()) == 1
    assert contents(store) == before and store.temporary_files() == []
    assert not [path for path in target.rglob("*") if path.is_file()]


# What every run deletes

KILLED = """
import os, sys
from sweep.store import leases, opening
store = opening.open_store(sys.argv[1])
leases.take(store, "dead")
os.replace = lambda *_: os._exit(0)
store.write("studies/killed.json", b"{}")
"""


def test_every_run_deletes_what_a_killed_process_of_this_machine_left(fill):
    store, _, _ = fill()
    delete_dead(store)
    before = contents(store)
    subprocess.run([sys.executable, "-c", KILLED, store.uri], check=True)
    assert len(store.temporary_files()) == 1 and layout.lease("dead", 1) in store.paths()
    elsewhere = store.local("studies/.other.json.0123abcd-1-1.aa.tmp")
    elsewhere.write_bytes(b"")
    with leases.take(store, "alive", 30), store._replacing("studies/mine.json") as mine:
        mine.write_bytes(b"being written")
        delete_dead(store)
        assert mine.exists() and store.paths(layout.LEASES) == [layout.lease("alive", 1)]
    assert store.temporary_files() == [elsewhere]  # of another machine nobody knows here
    store.delete("studies/mine.json")
    assert contents(store) == before


def test_every_run_deletes_states_of_finished_trainings_and_nothing_of_others(fill):
    store, _, cells = fill()
    trials = [cell.trial for cell in cells]
    store.write_record(trial(cells[1], "failed"))
    store.delete(layout.trial_record(trials[2]))
    with leases.take(store, layout.trial_lease(trials[3]), 30):
        delete_dead(store)
    kept = [store.exists(layout.trial_file(one, layout.RESUME)) for one in trials]
    assert kept == [False, True, True, True]
    assert sum(path.endswith(layout.WEIGHTS) for path in store.paths()) == 12 and store.paths(layout.LEASES) == []


def test_every_run_deletes_what_a_pruned_candidate_left_unless_it_trains_again(fill):
    store, _, cells = fill()
    trials = [cell.trial for cell in cells]
    for pruned in trials[:3]:
        store.delete(layout.trial_record(pruned))
    for pruned in (*trials[:2], trials[3]):  # the last was trained to its end by another study
        store.write_record(CandidateRecord(search="s", trial=pruned, curve=()))
    with leases.take(store, layout.trial_lease(trials[1]), 30):
        delete_dead(store)
    left = [len(store.paths(layout.trial_folder(one))) for one in trials]
    assert left == [0, 5, 5, 5]


def test_a_broken_record_of_a_pruned_candidate_deletes_nothing(fill):
    store, _, cells = fill()
    store.delete(layout.trial_record(cells[0].trial))
    store.write(layout.candidate_record("s", cells[0].trial), b"{")
    delete_dead(store)
    assert len(store.paths(layout.trial_folder(cells[0].trial))) == 5


def test_every_run_deletes_shards_of_finished_evaluations(fill):
    store, study, cells = fill()
    done = evaluation(study, cells[0]).path.removesuffix(".json")
    finished, open_one = (
        ShardRecord(folder=folder, first=0, last=8, correct="AA==") for folder in (done, done.replace("clean", "pgd-9"))
    )
    store.write_record(finished)
    store.write_record(open_one)
    delete_dead(store)
    assert not store.exists(finished.path) and store.exists(open_one.path)


def test_gc_asks_and_deletes_after_a_yes_alone(fill, sweep, monkeypatch):
    store, _, _ = fill()
    before = contents(store)
    for answer, code in (("n\n", 2), ("\n", 2), ("", 2), ("y\n", 0)):  # "": a script, whom nobody asks
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        found, text = sweep("gc", "--store", store.uri)
        assert found == code and "Delete " in text and "[y/N]" in text
        assert (contents(store) == before) is (code == 2)


def test_gc_with_yes_asks_nothing(fill, sweep, monkeypatch):
    store, _, _ = fill()
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "[y/N]" not in sweep("gc", "--store", store.uri, "--yes")[1]
    assert "(0 bytes)" in sweep("gc", "--store", store.uri)[1]
