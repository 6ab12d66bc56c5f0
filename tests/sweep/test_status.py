"""What another shell is told about a sweep, from the store alone."""

import json
import threading
import time

import pytest

from sweep import status
from sweep.errors import UserError
from sweep.store.base import open_store
from sweep.studies.model import Study
from sweep.trials import cells as plan


@pytest.fixture
def sweep(tmp_path):
    study = Study.load("digits", methods=["at", "sovr", "trades"])
    store = open_store(tmp_path)
    cells = plan.expand(study)
    store.write_manifest(plan.manifest(study, cells))
    return study, store, cells


def finish(store, cell, outcome="done"):
    reason = None if outcome == "done" else f"it {outcome} here"
    store.write_trial_record({"kind": "trial", "trial": cell.trial, "status": outcome, "reason": reason})


def states(store) -> list[str]:
    (facts,) = status.gather(store)
    return [trial["state"] for trial in facts["trials"]]


def test_every_state_is_told_per_method_and_seed(sweep):
    _, store, cells = sweep
    assert states(store) == ["left"] * 9
    finish(store, cells[0])
    finish(store, cells[1], "failed")
    finish(store, cells[2], "collapsed")
    running = cells[6]
    claim = store.claim(f"trials-{running.trial[:16]}", 30)
    progress = {"epoch": 3, "epochs": 20, "updated": time.time(), "host": "here"}
    store.write(f"trials/{running.trial[:16]}/progress.json", json.dumps(progress).encode())
    folder = f"evaluations/{cells[0].trial[:16]}/best_validation"
    wanted = store.manifest("digits")["attacks"][0]["id"]
    for name in (wanted, "pgd-20-of-another-study"):
        store.write_json(f"{folder}/{name}.json", {"kind": "evaluation"})
    (facts,) = status.gather(store, "digits")
    assert facts["counts"] == {"done": 1, "failed": 1, "collapsed": 1, "left": 5, "running": 1}
    assert facts["evaluations"] == {"stored": 1, "wanted": 7 * 3}
    told = {(trial["label"], trial["seed"]): trial for trial in facts["trials"]}
    assert told["trades", 0]["progress"]["epoch"] == 3
    assert told["sovr", 0]["trial"] is None and told["sovr", 0]["state"] == "left"
    claim.release()
    assert states(store).count("running") == 0


def test_the_text_names_failed_and_running_seeds(sweep, capsys):
    _, store, cells = sweep
    finish(store, cells[1], "failed")
    claim = store.claim(f"trials-{cells[2].trial[:16]}", 30)
    status.show(store.uri)
    text = capsys.readouterr().out
    line = next(line for line in text.splitlines() if line.startswith("at "))
    assert "1 failed" in line and "2 starts" in line
    assert "9 trials: 1 running, 1 failed, 7 left" in text
    assert "at seed 1 failed: it failed here" in text and "sweep retry" in text
    claim.release()


def test_a_search_is_told_with_its_candidates_and_its_choice(sweep, capsys):
    study, store, _ = sweep
    identity = plan.search_id(study, "sovr")
    record = {
        "kind": "search",
        "status": "running",
        "wanted": 8,
        "chosen": None,
        "candidates": [{"state": "done"}, {"state": "pruned"}, {"state": "open"}],
    }
    store.write_json(f"searches/{identity}/record.json", record)
    status.show(store.uri)
    assert "search sovr: left, 2/8 candidates" in capsys.readouterr().out
    with store.claim(f"searches-{identity}", 30):
        status.show(store.uri)
    assert "search sovr: running, 2/8 candidates" in capsys.readouterr().out
    done = {**record, "status": "done", "chosen": {"M": 20, "lam": 0.6}, "candidates": [{"state": "done"}] * 8}
    store.write_json(f"searches/{identity}/record.json", done)
    status.show(store.uri)
    assert "search sovr: done, 8/8 candidates, chose M=20 lam=0.6" in capsys.readouterr().out


def test_json_is_json(sweep, capsys):
    _, store, _ = sweep
    status.show(store.uri, as_json=True)
    (facts,) = json.loads(capsys.readouterr().out)
    assert facts["study"] == "digits" and len(facts["trials"]) == 9


def test_an_unknown_study_is_named_with_the_nearest(sweep):
    _, store, _ = sweep
    with pytest.raises(UserError, match="did you mean 'digits'"):
        status.gather(store, "digit")


def test_an_empty_store_says_so(tmp_path, capsys):
    status.show(str(tmp_path))
    assert "holds no study yet" in capsys.readouterr().out


def test_a_broken_manifest_is_named_and_written_anew_by_the_study(sweep, capsys):
    study, store, cells = sweep
    store.write("studies/digits.json", b'{"name": "dig')
    for name in (None, "digits"):
        with pytest.raises(UserError, match="broken record studies/digits.json.*running the study again writes it"):
            status.show(store.uri, name)
    store.write_manifest({**plan.manifest(study, cells), "name": "other"})
    status.show(store.uri, as_json=True)
    told = capsys.readouterr()
    assert [facts["study"] for facts in json.loads(told.out)] == ["other"] and "studies/digits.json" in told.err
    store.write_manifest(plan.manifest(study, cells))
    status.show(store.uri, "digits")
    assert "9 trials" in capsys.readouterr().out


def test_a_broken_search_is_told_and_the_rest_is_shown(sweep, capsys):
    study, store, _ = sweep
    path = f"searches/{plan.search_id(study, 'sovr')}/record.json"
    store.write(path, b"{")
    status.show(store.uri)
    told = capsys.readouterr()
    assert "search sovr: broken" in told.out and path in told.err and "delete this file" in told.err


def test_running_a_part_keeps_the_other_columns_and_a_changed_recipe_does_not(sweep):
    study, store, cells = sweep

    def run_part(**options):
        part = Study.load("digits", **options)
        store.write_manifest(plan.manifest(part, plan.expand(part)))
        return store.manifest("digits")

    def columns(manifest):
        return {(cell["label"], cell["seed"]) for cell in manifest["cells"]}

    whole = columns(store.manifest("digits"))
    assert columns(run_part(methods=["at"], seeds=[0])) == whole
    wider = run_part(methods=["mart"], seeds=[7])
    assert columns(wider) == whole | {("mart", 7)}
    assert 7 in wider["seeds"] and set(wider["config_by_label"]) == {"at", "sovr", "trades", "mart"}
    assert set(wider["inner_attacks"]) == {"at", "sovr", "trades", "mart"}
    # Another value in one column drops that column's other seeds: they were trained differently.
    other = run_part(methods=["trades"], seeds=[0], overrides=["methods.trades.hyperparameters.beta=3"])
    assert {seed for label, seed in columns(other) if label == "trades"} == {0}
    assert ("at", 2) in columns(other)
    longer = run_part(methods=["at"], seeds=[0], overrides=["train.epochs=3"])
    assert columns(longer) == {("at", 0)}


def test_two_writers_of_a_manifest_lose_nothing_of_each_other(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    whole_write = type(store).write_json

    def slow_write(self, path, record):
        time.sleep(0.2)
        whole_write(self, path, record)

    monkeypatch.setattr(type(store), "write_json", slow_write)

    def write(method):
        part = Study.load("digits", methods=[method])
        store.write_manifest(plan.manifest(part, plan.expand(part)))

    threads = [threading.Thread(target=write, args=(method,)) for method in ("at", "st", "trades")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {cell["label"] for cell in store.manifest("digits")["cells"]} == {"at", "st", "trades"}
    assert not store.claims()
