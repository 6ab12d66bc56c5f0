"""The order of a sweep's work, its claims, and its loggers, without a Ray cluster."""

import contextlib
import math
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from tiny_study import tiny

from sweep import engine
from sweep.devices import Resources
from sweep.errors import UserError
from sweep.jobs import Job
from sweep.loggers import Curves, callbacks, curve_values, run_name
from sweep.pace import Pace
from sweep.progress import Display, Summary, duration
from sweep.ray_session import WithoutRaylet
from sweep.scheduling import Work
from sweep.store import open_store
from sweep.tuning import Queue, Watch

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


def finish(queue, store, job):
    if job.kind == "train":
        store.write_trial_record(trial_record(job))
    queue.finished(job)


def test_an_idle_device_evaluates_while_trainings_run(tmp_path):
    """Through the searcher that Tune asks, on two devices: both train, one ends, and nothing else is to be trained."""
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"at": {}, "mart": {"train": {"epochs": 9}}}, search=None, seeds=[0])
    pending = work(study, store)
    queue = Queue(pending, Resources(cpus=1.0, gpus=0.0), lambda: False)
    queue._slots, queue._counted = 2, math.inf  # no Ray to ask
    assert [queue.suggest(name)["job"]["label"] for name in ("a", "b")] == ["mart", "at"]
    assert queue.suggest("c") is None
    store.write_trial_record(trial_record(queue.jobs["b"]))
    queue.on_trial_complete("b", {"state": "done"})
    started = queue.suggest("c")["job"]
    assert (started["kind"], started["label"]) == ("evaluate", "at")
    assert queue.jobs["a"].kind == "train" and queue.fault is None
    pending.close()


def test_evaluations_of_whole_columns_come_before_those_of_columns_still_in_training(tmp_path):
    store = open_store(tmp_path / "store")
    methods = {"sovr": {}, "at": {}, "mart": {}}
    queue = work(tiny(tmp_path, methods=methods, search=None, seeds=[0, 1]), store)
    jobs = {(job.label, job.seed): job for job in drain(queue)}
    for label, seed in (("sovr", 0), ("at", 0), ("mart", 0), ("at", 1)):
        finish(queue, store, jobs[label, seed])
    assert len(queue.ready) > 6
    first = [job.label for job in drain(queue)]
    count = first.count("at")
    assert first[:count] == ["at"] * count and {"sovr", "mart"} == set(first[count:])
    queue.close()


def test_a_driver_claims_only_the_evaluations_that_it_begins(tmp_path):
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"at": {}}, search=None)
    first = work(study, store)
    for job in drain(first):
        finish(first, store, job)
    one = first.next_job()
    assert set(store.claims()) == {one.claim}
    two = first.next_job()
    assert set(store.claims()) == {one.claim, two.claim}
    second = work(study, store)
    assert second.next_job().claim not in (one.claim, two.claim)
    first.close()
    second.close()


def test_a_column_is_whole_too_when_its_last_training_failed(tmp_path):
    store = open_store(tmp_path / "store")
    queue = work(tiny(tmp_path, methods={"sovr": {}, "at": {}}, search=None, seeds=[0, 1]), store)
    jobs = {(job.label, job.seed): job for job in drain(queue)}
    finish(queue, store, jobs["sovr", 0])
    finish(queue, store, jobs["at", 0])
    queue.gave_up(jobs["at", 1], "no memory", [])
    assert queue.next_job().label == "at"
    queue.close()
    # The same from the store: `at` has one seed stored and one failed, `sovr` one stored and one to train.
    again = work(tiny(tmp_path, methods={"sovr": {}, "at": {}}, search=None, seeds=[0, 1]), store)
    labels = [(job.kind, job.label) for job in drain(again)]
    assert labels[0] == ("train", "sovr") and labels[1] == ("evaluate", "at") and labels[-1] == ("evaluate", "sovr")
    again.close()


def test_thousands_of_pieces_that_others_finished_are_passed_over(tmp_path):
    store = open_store(tmp_path / "store")
    queue = work(tiny(tmp_path, methods={"at": {}}, search=None, seeds=list(range(1200))), store)
    for job in list(queue.ready):
        store.write_trial_record(trial_record(job, status="collapsed"))
    assert queue.next_job() is None and queue.complete and queue.done["train"] == 1200
    queue.close()


def test_tables_are_written_as_trainings_end_and_a_fault_in_them_ends_nothing(tmp_path, monkeypatch):
    queue = work(tiny(tmp_path, search=None), store := open_store(tmp_path / "store"))
    written, said = [], []
    monkeypatch.setattr(engine, "TABLE_SECONDS", 0.0)
    monkeypatch.setattr(engine, "write_tables", lambda *_, **__: written.append(1))
    tables = engine._Tables(store, tmp_path / "out", queue, said.append)
    tables.update()
    assert not written  # nothing has happened yet
    finish(queue, store, queue.next_job())
    tables.update()
    tables.update()
    assert len(written) == 1
    finish(queue, store, queue.next_job())
    monkeypatch.setattr(engine, "write_tables", lambda *_, **__: 1 / 0)
    tables.update()
    assert said == ["tables could not be written (division by zero); the sweep goes on"]
    queue.close()


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


class Rows(Curves):
    package = "rows"

    def __init__(self, folder, study):
        super().__init__(folder, study)
        self.rows = []

    def open(self, name, job):
        return name

    def log(self, run, values, epoch):
        if epoch == 7:
            raise OSError("no answer")
        self.rows.append((run, epoch, values))

    def close(self, run):
        self.rows.append((run, "closed"))


def test_a_logger_gets_one_row_per_epoch_and_is_switched_off_when_it_fails(tmp_path, capsys):
    rows = Rows(tmp_path, "tiny")
    job = {"kind": "train", "label": "at", "seed": 2, "trial": "0123456789abcdef"}
    trial = SimpleNamespace(trial_id="a", config={"job": job})
    for epoch in range(2):
        rows.on_trial_result(0, [], trial, {"epoch": epoch, "train_loss": 1.0, "seconds": 3.0})
    rows.on_trial_result(0, [], trial, {"images": 20})  # an evaluation
    rows.on_trial_result(0, [], trial, {"state": "done"})
    rows.on_trial_complete(0, [], trial)
    name = "tiny/at-seed2-01234567"
    assert rows.rows == [(name, 0, {"train_loss": 1.0}), (name, 1, {"train_loss": 1.0}), (name, "closed")]
    for epoch in (7, 8):
        rows.on_trial_result(0, [], trial, {"epoch": epoch, "train_loss": 1.0})
    assert len(rows.rows) == 3 and capsys.readouterr().err == "rows is switched off: no answer\n"


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_logger_that_is_not_installed_is_refused_with_the_way_to_get_it(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=rf"logger {name} is not installed: pip install 'robustsweep\[{name}\]'"):
        callbacks([name], tiny(tmp_path), open_store(tmp_path / "store"))


def test_the_time_left_follows_the_pace_of_each_stage(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace = Pace()
    trainings = [Job("train", str(n), str(n), "at", n, cost=10.0, payload={}) for n in range(3)]
    evaluation = Job("evaluate", "e", "e", "at", 0, cost=100.0, payload={})
    assert pace.seconds_left({"train": 10.0}, []) is None
    for job in trainings[:2]:
        pace.begin(job)
    now = 120.0
    for job in trainings[:2]:
        pace.end(job)
    # Two at once, two seconds a unit; what evaluations cost is guessed from trainings.
    assert pace.seconds_left({"train": 30.0, "evaluate": 0.0}, []) == pytest.approx(30)
    assert pace.seconds_left({"train": 30.0, "evaluate": 100.0}, []) == pytest.approx(130)
    pace.begin(evaluation)
    pace.begin(trainings[2])
    now = 130.0
    pace.end(evaluation)
    # Their own pace is a tenth of a second a unit, and counts the more the more of them are done.
    running = [trainings[2]]
    few, many = (pace.seconds_left({"train": 0.0, "evaluate": left}, running) / left for left in (10_000.0, 1.0))
    assert 0.1 / 2 < many < few < 2 / 2
    assert pace.seconds_left({"train": 0.0, "evaluate": 0.0}, running) == 0


def test_the_epochs_of_a_running_training_give_a_time_before_any_has_ended(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace, job = Pace(), Job("train", "t", "t", "at", 0, cost=10.0, payload={"epochs": 10})
    pace.begin(job)
    assert pace.seconds_left({"train": 10.0}, [job]) is None
    now = 106.0
    for epoch in (4, 5, 6):  # it was begun before: four epochs were not trained here
        job.reached(epoch)
    # Two seconds an epoch, three of ten to go.
    assert pace.seconds_left({"train": job.cost * (1 - job.share)}, [job]) == pytest.approx(6)
    now = 112.0
    pace.end(job)
    assert pace.seconds_left({"train": 20.0}, []) == pytest.approx(40)


def test_the_start_of_a_process_is_no_part_of_the_pace(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace, job = Pace(), Job("train", "t", "t", "at", 0, cost=10.0, payload={})
    pace.begin(job)
    now, job.seconds = 130.0, 5.0
    pace.end(job)
    assert pace.seconds_left({"train": 20.0}, []) == pytest.approx(10)


def test_a_piece_whose_process_died_does_not_count_as_running_until_it_starts_again(tmp_path):
    queue = SimpleNamespace(jobs={"a": Job("train", "t", "t", "at", 0, 1.0, {})}, work=SimpleNamespace(pace=Pace()))
    watch, trial = Watch(queue, 60.0, lambda: None), SimpleNamespace(trial_id="a")
    for happens, running in (
        (watch.on_trial_start, True),
        (watch.on_trial_recover, False),
        (watch.on_trial_start, True),
    ):
        happens(0, [], trial)
        assert queue.jobs["a"].started is running


def test_a_pipe_gets_plain_lines(tmp_path, capsys):
    queue = work(tiny(tmp_path, search=None), open_store(tmp_path / "store"))
    display = Display("Tiny")
    display.update(queue)
    display.close()
    queue.close()
    assert "0 failed; left unknown" in capsys.readouterr().err


def test_what_rays_listener_prints_stays_out_of_the_display(capsys):
    with contextlib.redirect_stdout(WithoutRaylet(sys.stdout)):
        for name in ("ray_listen_error_messages", "another"):
            thread = threading.Thread(target=print, args=(f"from {name}",), name=name)
            thread.start()
            thread.join()
        print("from the sweep")
    assert capsys.readouterr().out == "from another\nfrom the sweep\n"


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
