"""What another shell is told about a sweep, from the store alone."""

import json
import threading
import time

import pytest
from stored import evaluation, search, trial

from sweep import cli
from sweep.errors import UserError
from sweep.store import layout, leases
from sweep.store.folder import FolderStore
from sweep.store.lease_upkeep import held
from sweep.store.manifests import write_manifest
from sweep.store.opening import open_store
from sweep.store.records.trial import Progress
from sweep.studies.model import Study
from sweep.trials import cells as planned
from sweep.trials.identity import search_id
from sweep.trials.standing import standings


@pytest.fixture
def sweep(tmp_path):
    study = Study.load("digits", methods=["at", "sovr", "trades"])
    store = open_store(tmp_path)
    cells = planned.expand(study)
    write_manifest(store, planned.manifest(study, cells))
    return study, store, cells


def refuse(fault):
    raise fault


def standing(store, study=None):
    (found,) = standings(store, study, refuse)
    return found


def states(store) -> list[str]:
    return [one.state for one in standing(store).trials]


def told(capsys, store, *arguments):
    with pytest.raises(SystemExit) as caught:
        cli.main(["status", "--store", store.uri, *arguments])
    return caught.value.code, *capsys.readouterr()


def note(store, cell, **changes):
    facts = {"trial": cell.trial, "label": cell.label, "seed": cell.seed, "epoch": 3, "epochs": 20, "started": 0.0}
    progress = Progress(**{**facts, "updated": time.time(), "host": "here", "pid": 1, **changes})
    store.write(layout.trial_file(cell.trial, layout.PROGRESS), progress.model_dump_json().encode())


def test_every_state_is_told_per_method_and_seed(sweep):
    study, store, cells = sweep
    assert states(store) == ["left"] * 12
    for cell, status in zip(cells, ("done", "failed", "collapsed"), strict=False):
        store.write_record(trial(cell, status))
    running = next(cell for cell in cells if cell.label == "trades")
    lease = leases.take(store, layout.trial_lease(running.trial), 30)
    note(store, running)
    store.write_record(evaluation(study, cells[0]))
    store.write_record(evaluation(study, cells[0], checkpoint="last"))  # another study's
    found = standing(store, "digits")
    assert found.counts == {"done": 1, "failed": 1, "collapsed": 1, "left": 8, "running": 1}
    assert found.evaluations == {"stored": 1, "wanted": 10 * 3}
    by_cell = {(one.label, one.seed): one for one in found.trials}
    assert by_cell["trades", 0].progress.epoch == 3
    assert by_cell["sovr_searched", 0].trial is None and by_cell["sovr_searched", 0].state == "left"
    lease.release()
    assert states(store).count("running") == 0


def test_the_text_names_failed_and_running_seeds(sweep, capsys):
    _, store, cells = sweep
    store.write_record(trial(cells[1], "failed"))
    with leases.take(store, layout.trial_lease(cells[2].trial), 30):
        _, text, _ = told(capsys, store)
    line = next(line for line in text.splitlines() if line.startswith("at "))
    assert "1 failed" in line and "2 starts" in line
    assert "12 trials: 1 running, 1 failed, 10 left" in text
    assert (
        "at seed 1 failed: it failed here" in text
        and "to run failed trials again: python -m sweep.run --study " in text
    )


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"epoch": "x"}'])
def test_a_broken_note_of_progress_is_passed_over(sweep, capsys, content):
    _, store, cells = sweep
    with leases.take(store, layout.trial_lease(cells[0].trial), 30):
        store.write(layout.trial_file(cells[0].trial, layout.PROGRESS), content)
        code, text, _ = told(capsys, store)
        assert code == 0 and "0 starts" in text
        note(store, cells[0], host="there")
        assert "0 epoch 3/20 on there 0 s ago" in told(capsys, store)[1]


def test_trials_of_an_older_numerics_version_are_told_in_one_line(sweep, capsys):
    _, store, cells = sweep
    store.write_record(trial(cells[0]))
    assert told(capsys, store)[2] == ""
    for cell in cells[1:3]:
        store.write_record(trial(cell, numerics=2))
    code, _, told_aside = told(capsys, store)
    assert code == 0 and told_aside.count("\n") == 1
    assert "holds 2 trials of numerics version 2; this version makes version 3 and trains anew" in told_aside


def test_a_search_is_told_with_its_candidates_and_its_choice(sweep, capsys):
    study, store, _ = sweep
    store.write_record(search(study, "sovr", ["done", "pruned", "open"]))
    assert "search sovr_searched: left, 2/8 candidates" in told(capsys, store)[1]
    with leases.take(store, layout.search_lease(search_id(study, "sovr")), 30):
        assert "search sovr_searched: running, 2/8 candidates" in told(capsys, store)[1]
    store.write_record(search(study, "sovr", ["done"] * 8, status="done", chosen={"M": 20, "lam": 0.6}))
    assert "search sovr_searched: done, 8/8 candidates, chose M=20 lam=0.6" in told(capsys, store)[1]


def test_json_is_json(sweep, capsys):
    study, store, cells = sweep
    store.write_record(trial(cells[0], "failed"))
    with leases.take(store, layout.trial_lease(cells[1].trial), 30):
        (facts,) = json.loads(told(capsys, store, "--json")[1])
    assert list(facts) == [
        "study",
        "title",
        "trials",
        "counts",
        "evaluations",
        "searches",
        "device_hours",
        "budget_left",
    ]
    failed, running, left = facts["trials"][:3]
    shared = {"label": "at", "evaluations": 0}
    assert failed == {**shared, "seed": 0, "trial": cells[0].trial, "state": "failed", "reason": "it failed here"}
    assert running == {**shared, "seed": 1, "trial": cells[1].trial, "state": "running", "progress": None}
    assert left == {**shared, "seed": 2, "trial": cells[2].trial, "state": "left"}
    (found,) = facts["searches"]
    assert found == {
        "label": "sovr_searched",
        "id": search_id(study, "sovr"),
        "state": "left",
        "finished": 0,
        "wanted": None,
        "chosen": None,
    }


def test_an_unknown_study_is_named_with_the_nearest(sweep):
    _, store, _ = sweep
    with pytest.raises(UserError, match="did you mean 'digits'"):
        standings(store, "digit", refuse)


def test_an_empty_store_says_so(tmp_path, capsys):
    assert "holds no study yet" in told(capsys, open_store(tmp_path))[1]


def test_a_broken_manifest_is_named_and_written_anew_by_the_study(sweep, capsys):
    study, store, cells = sweep
    store.write(layout.manifest("digits"), b'{"name": "dig')
    for words in ([], ["--study", "digits"]):
        code, _, errors = told(capsys, store, *words)
        assert code == 2 and "broken record studies/digits.json" in errors
        assert "running the study again writes it" in errors
    write_manifest(store, planned.manifest(study, cells).model_copy(update={"name": "other"}))
    _, text, errors = told(capsys, store, "--json")
    assert [facts["study"] for facts in json.loads(text)] == ["other"] and "studies/digits.json" in errors
    write_manifest(store, planned.manifest(study, cells))
    assert "12 trials" in told(capsys, store, "--study", "digits")[1]


def test_a_broken_search_is_told_and_the_rest_is_shown(sweep, capsys):
    study, store, _ = sweep
    path = layout.search_record(search_id(study, "sovr"))
    store.write(path, b"{")
    _, text, errors = told(capsys, store)
    assert "search sovr_searched: broken" in text and path in errors and "running the study again" in errors


def test_running_a_part_keeps_the_other_columns_and_a_changed_recipe_does_not(sweep):
    study, store, cells = sweep

    def run_part(**options):
        part = Study.load("digits", **options)
        write_manifest(store, planned.manifest(part, planned.expand(part)))
        return store.manifest("digits")

    def columns(manifest):
        return {(cell.label, cell.seed) for cell in manifest.cells}

    whole = columns(store.manifest("digits"))
    assert columns(run_part(methods=["at"], seeds=[0])) == whole
    wider = run_part(methods=["mart"], seeds=[7])
    assert columns(wider) == whole | {("mart", 7)}
    assert 7 in wider.seeds and set(wider.config_by_label) == {"at", "sovr", "sovr_searched", "trades", "mart"}
    assert set(wider.inner_attacks) == {"at", "sovr", "sovr_searched", "trades", "mart"}
    # Another value in one column drops that column's other seeds: they were trained differently.
    other = run_part(methods=["trades"], seeds=[0], overrides=["methods.trades.hyperparameters.beta=3"])
    assert {seed for label, seed in columns(other) if label == "trades"} == {0}
    assert ("at", 2) in columns(other)
    longer = run_part(methods=["at"], seeds=[0], overrides=["train.epochs=3"])
    assert columns(longer) == {("at", 0)}


def test_two_writers_of_a_manifest_lose_nothing_of_each_other(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    whole_write = FolderStore.write

    def slow_write(self, path, data):
        if path == layout.manifest("digits"):
            time.sleep(0.2)
        whole_write(self, path, data)

    monkeypatch.setattr(FolderStore, "write", slow_write)

    def write(method):
        part = Study.load("digits", methods=[method])
        write_manifest(store, planned.manifest(part, planned.expand(part)))

    threads = [threading.Thread(target=write, args=(method,)) for method in ("at", "st", "trades")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {cell.label for cell in store.manifest("digits").cells} == {"at", "st", "trades"}
    assert not held(store)
