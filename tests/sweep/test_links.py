"""Links in a store: whoever made it may have put one to a folder of ours into it, and no command goes through."""

import os
import shutil
import time

import pytest
from stored import evaluation, trial, write_trial
from tiny_study import tiny

from sweep import cli
from sweep.store import layout
from sweep.store.leftovers import delete_dead
from sweep.store.manifests import write_manifest
from sweep.store.opening import open_store
from sweep.store.records.search import CandidateRecord
from sweep.trials import cells as planned
from sweep.work.pieces import Setting, Training
from sweep.work.trainable import trainable

SHORT = "0123456789abcdef"
# Names of the layout, and a few of a user.
BAIT = (
    "trials-dead.1.json",
    "trials/x/record.json.1",
    f"{SHORT}/best_test/autoattack-8_255.npz",
    f"{SHORT}/resume.pt",
    f"{SHORT}/journal.log.lock",
    ".record.json.abc.tmp",
    "id_rsa",
    "a/b/c.npz",
)


@pytest.fixture
def outside(tmp_path):
    """A folder of the user's, with everything in it older than any age limit."""
    folder = tmp_path / "home"
    for name in BAIT:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
        os.utime(folder / name, (time.time() - 7200,) * 2)
    return folder


@pytest.fixture
def filled(tmp_path):
    store, study = open_store(tmp_path / "store"), tiny(tmp_path, methods={"at": {}}, search=None)
    cells = planned.expand(study)
    for cell in cells:
        write_trial(store, cell)
        store.write_record(evaluation(study, cell))
    write_manifest(store, planned.manifest(study, cells))
    return store, study, cells


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def sweep(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        cli.main(list(arguments))
    captured = capsys.readouterr()
    return caught.value.code, captured.out + captured.err


def link(store, name, target):
    """In the place of what is there, which goes to the target's folder under the name that it had."""
    path = store.root / name
    if path.exists():
        shutil.copytree(path, target, dirs_exist_ok=True)
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target, target_is_directory=True)


@pytest.mark.parametrize("name", layout.FOLDERS)
def test_gc_and_run_delete_nothing_through_a_linked_folder_and_say_so(filled, outside, capsys, name):
    store, _, _ = filled
    link(store, name, outside)
    before = files_of(outside)
    delete_dead(store)
    _, text = sweep(capsys, "gc", "--store", store.uri, "--broken", "--yes")
    assert files_of(outside) == before
    assert f"left alone: {name} is a link to {outside}" in text


@pytest.mark.parametrize("name", [f"trials/{SHORT}", "evaluations/x/last", "searches/sovr-1", "broken/trials"])
def test_a_link_further_down_is_left_alone_and_named_too(filled, outside, capsys, name):
    store, _, _ = filled
    store.write_record(CandidateRecord(search="s", trial=SHORT * 4, curve=()))
    link(store, name, outside)
    before = files_of(outside)
    delete_dead(store)
    _, text = sweep(capsys, "gc", "--store", store.uri, "--broken", "--yes")
    assert files_of(outside) == before and (store.root / name).is_symlink()
    assert f"left alone: {name} is a link to {outside}" in text


def test_a_run_with_work_to_do_names_the_link_before_it_starts(filled, outside, tmp_path, capsys):
    store, _, cells = filled
    store.delete(layout.trial_record(cells[0].trial))
    link(store, layout.LEASES, outside)
    before = files_of(outside)
    words = ("--store", store.uri, "--out", str(tmp_path / "out"), "--yes")
    code, text = sweep(capsys, "run", "--study", str(tmp_path / "tiny.yaml"), *words)
    assert code == 2 and "leases is a link to" in text and str(outside) in text and "Traceback" not in text
    assert files_of(outside) == before


@pytest.mark.parametrize(("name", "expected"), [("broken", 0), ("leases", 2)])  # a run cannot do without its leases
def test_a_run_that_finds_all_there_deletes_nothing_through_a_link(tmp_path, outside, capsys, name, expected):
    store = open_store(tmp_path / "store")
    attacks = {"attacks": ["clean"], "epsilon": "0.1", "images": 10, "diagnostics": False}
    study = tiny(tmp_path, methods={"at": {}}, search=None, evaluation=attacks)
    for cell in planned.expand(study):
        write_trial(store, cell)
        store.write_record(evaluation(study, cell))
    link(store, name, outside)
    before = files_of(outside)
    words = ("--store", store.uri, "--out", str(tmp_path / "out"), "--yes")
    code, text = sweep(capsys, "run", "--study", str(tmp_path / "tiny.yaml"), *words)
    assert code == expected and f"left alone: {name} is a link to {outside}" in text
    assert files_of(outside) == before


def test_retry_and_merge_change_nothing_through_a_linked_folder(filled, outside, tmp_path, capsys):
    store, _, cells = filled
    shutil.copytree(store.root, tmp_path / "other")
    store.write_record(trial(cells[0], "failed"))
    link(store, layout.TRIALS, outside)
    before = files_of(outside)
    for words in (("retry",), ("merge", str(tmp_path / "other"))):
        code, text = sweep(capsys, *words, "--store", store.uri)
        assert code == 2 and "trials is a link" in text
        assert files_of(outside) == before


def test_a_store_does_not_write_move_or_delete_through_a_link(filled, outside):
    store, _, _ = filled
    link(store, f"trials/{SHORT}", outside / SHORT)
    path = f"trials/{SHORT}/resume.pt"
    before = files_of(outside)
    for change in (
        lambda: store.delete(path),
        lambda: store.write(path, b"new"),
        lambda: store.create(f"trials/{SHORT}/new", b"new"),
        lambda: store.set_aside(path),
        lambda: store.push_file(outside / "id_rsa", path),
    ):
        with pytest.raises(ValueError, match=f"trials/{SHORT} is a link to"):
            change()
    assert files_of(outside) == before


def test_the_store_itself_may_be_reached_by_a_link(filled, tmp_path, capsys):
    store, _, cells = filled
    (tmp_path / "link").symlink_to(store.root)
    store.write(layout.trial_file(cells[0].trial, layout.RESUME), b"state")
    code, text = sweep(capsys, "gc", "--store", str(tmp_path / "link"), "--yes")
    assert code == 0 and "resume states of finished trials: 1 file" in text and "left alone: trials" not in text


def test_gc_and_run_delete_only_what_has_a_name_of_the_layout(filled, capsys):
    store, _, cells = filled
    store.write_record(CandidateRecord(search="s", trial=SHORT * 4, curve=()))
    theirs = (
        "leases/README",
        "leases/deep/trials-x.1.json",
        "broken/notes.txt",
        f"trials/{SHORT}/notes.txt",
        f"{layout.trial_folder(cells[0].trial)}/my_finetuned.safetensors",
        "evaluations/a/b/c/d.npz",
        "notes/.draft.tmp",
    )
    ours = (f"trials/{SHORT}/log.txt", f"broken/{layout.trial_record(SHORT)}.1")
    for path in (*theirs, *ours):
        (store.root / path).parent.mkdir(parents=True, exist_ok=True)
        (store.root / path).write_text("text")
        os.utime(store.root / path, (time.time() - 7200,) * 2)
    _, text = sweep(capsys, "gc", "--store", store.uri, "--broken", "--yes")
    delete_dead(store)
    assert [path for path in theirs if not (store.root / path).exists()] == []
    assert [path for path in ours if (store.root / path).exists()] == []
    assert "left alone: leases/README" in text and "left alone: broken/notes.txt" in text


def test_a_trials_log_is_not_written_through_a_link(filled, tmp_path):
    store, study, cells = filled
    store.delete(layout.trial_record(cells[0].trial))
    log = store.local(layout.trial_file(cells[0].trial, layout.LOG))
    (tmp_path / "bashrc").write_text("mine")
    log.unlink()
    log.symlink_to(tmp_path / "bashrc")
    config = Training("at", cells[0].config, cells[0].trial).tune_config("tiny")
    trainable(config, Setting(store.uri, str(tmp_path)))
    assert (tmp_path / "bashrc").read_text() == "mine" and "train at" in log.read_text()
