"""The order of a sweep's work, its claims, and its loggers, without a Ray cluster."""

import pytest
from tiny_study import tiny

from sweep.errors import UserError
from sweep.loggers import callbacks, curve_values, run_name
from sweep.progress import Display, Summary, duration
from sweep.scheduling import Work
from sweep.store import open_store

COMMON = {"store": "", "data_dir": "", "cpus": 1.0, "plugins": {}, "commit": None, "numerics": 1, "command": "sweep"}


def work(study, store, **more):
    return Work(study, store, common={**COMMON, "store": store.uri}, **more)


def drain(queue):
    jobs = []
    while (job := queue.next_job()) is not None:
        jobs.append(job)
    return jobs


def trial_record(job, status="done", **more):
    curve = [{"validation_pgd_accuracy": 0.5, "validation_clean_accuracy": 0.6}] * 3
    kept = {"best_validation": {"epoch": 0}}
    return {"trial": job.payload["trial"], "status": status, "curve": curve, "checkpoints": kept, "metrics": {}, **more}


def test_candidates_come_first_and_then_the_longest_trainings(tmp_path):
    methods = {"st": {}, "sovr": {}, "at": {}, "mart": {"train": {"epochs": 9}}}
    queue = work(tiny(tmp_path, methods=methods, seeds=[0]), open_store(tmp_path / "store"))
    jobs = drain(queue)
    assert [job.kind for job in jobs] == ["candidate"] * 4 + ["train"] * 3
    assert [job.label for job in jobs[4:]] == ["mart", "at", "st"]
    queue.close()


def test_the_next_generation_and_then_the_trainings_follow_a_search(tmp_path):
    store = open_store(tmp_path / "store")
    queue = work(tiny(tmp_path, methods={"sovr": {}}, seeds=[0]), store)
    for expected in (4, 2):
        jobs = drain(queue)
        assert [job.kind for job in jobs] == ["candidate"] * expected
        for job in jobs:
            store.write_trial_record(trial_record(job))
            queue.finished(job)
    (training,) = drain(queue)
    assert training.kind == "train" and training.label == "sovr"
    assert queue.chosen["sovr"] == {"M": 40, "lam": 0.4}  # all equal: the paper's value
    assert store.manifest("tiny")["cells"][0]["trial"] == training.payload["trial"]
    queue.close()


def test_what_another_driver_does_is_left_to_it_and_its_result_taken(tmp_path):
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0])
    first, second = work(study, store), work(study, store)
    (job,) = drain(first)
    assert drain(second) == [] and not second.complete
    store.write_trial_record(trial_record(job, status="collapsed"))
    first.finished(job)
    for waiting in second.ready:
        waiting.not_before = 0.0
    assert drain(second) == [] and second.complete and second.done["train"] == 1


def test_a_budget_holds_back_what_has_not_started(tmp_path):
    allowed = iter([True, False, False])
    study = tiny(tmp_path, methods={"at": {}}, search=None)
    queue = work(study, open_store(tmp_path / "store"), may_start=lambda: next(allowed))
    assert len(drain(queue)) == 1 and queue.left == 2
    queue.close()


def test_a_failed_trial_gets_a_record_that_says_how_to_go_on(tmp_path):
    store = open_store(tmp_path / "store")
    queue = work(tiny(tmp_path, methods={"at": {}}, search=None, seeds=[3]), store)
    (job,) = drain(queue)
    queue.gave_up(job, "out of memory", ["last line"])
    record = store.trial_record(job.payload["trial"])
    assert (record["status"], record["reason"], record["log"]) == ("failed", "out of memory", ["last line"])
    assert record["command"] == "sweep --methods at --seeds 3 --retry-failed"
    assert queue.complete and queue.failed and not store.claims()
    again = work(tiny(tmp_path, methods={"at": {}}, search=None, seeds=[3]), store, retry_failed=True)
    assert [job.kind for job in drain(again)] == ["train"]
    again.close()


def test_a_search_that_failed_whole_is_taken_up_again_when_asked(tmp_path):
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"sovr": {}}, seeds=[0], search={"sovr": {"candidates": 2}})
    queue = work(study, store)
    for job in drain(queue):
        queue.gave_up(job, "no memory", [])
    assert drain(queue) == [] and queue.complete and "search of sovr" in [one["title"] for one in queue.failed]
    assert drain(work(study, store)) == []
    again = work(study, store, retry_failed=True)
    assert [job.kind for job in drain(again)] == ["candidate"] * 2
    again.close()


def test_a_broken_record_is_computed_again(tmp_path):
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0])
    (job,) = drain(first := work(study, store))
    first.close()
    store.write(f"{job.payload['folder']}/record.json", b'{"cut off')
    (again,) = drain(second := work(study, store))
    assert again.payload["trial"] == job.payload["trial"]
    second.close()


def test_loggers_are_named_and_missing_ones_say_how_to_get_them(tmp_path):
    study, store = tiny(tmp_path), open_store(tmp_path / "store")
    assert len(callbacks(["tensorboard"], study, store)) == 1
    with pytest.raises(UserError, match="known: tensorboard"):
        callbacks(["tensorbord"], study, store)
    job = {"kind": "train", "label": "at", "seed": 2, "trial": "0123456789abcdef"}
    assert run_name("tiny", job) == "tiny/at-seed2-01234567"
    row = {"train_loss": 1.0, "test_pgd_accuracy": 0.5, "pid": 3, "time_total_s": 1.0, "validation_pgd_accuracy": None}
    assert curve_values(row) == {"train_loss": 1.0, "test_pgd_accuracy": 0.5}


def test_a_pipe_gets_plain_lines(tmp_path, capsys):
    queue = work(tiny(tmp_path, search=None), open_store(tmp_path / "store"))
    display = Display("Tiny")
    display.update(queue)
    display.close()
    queue.close()
    assert "0 failed; left unknown" in capsys.readouterr().err


def test_the_summary_names_failures_paths_and_the_way_on():
    failure = {
        "title": "at seed 1",
        "reason": "no memory",
        "log": ["a", "b"],
        "command": "sweep again",
        "trial": "0" * 64,
    }
    text = Summary("s", False, failed=[failure], device_use=0.97, seconds=60, store="/store", command="sweep").text()
    assert "devices 97% busy" in text and "failed: at seed 1: no memory" in text
    assert "run it again: sweep again" in text and "store: /store" in text
    assert duration(30) == "30 s" and duration(600) == "10.0 min" and duration(7200) == "2.0 h"
