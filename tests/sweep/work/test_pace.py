"""What people see of a running sweep: the time left, plain lines, the closing summary."""

import contextlib
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from tests.sweep.tiny_study import tiny

from sweep.cluster.session import WithoutRaylet
from sweep.cluster.tune import Watch
from sweep.store.opening import open_store
from sweep.work.display import Display, Summary, duration
from sweep.work.pace import Pace
from sweep.work.tasks import Job
from sweep.work.work import Work


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


def test_a_training_that_begins_again_says_nothing_before_its_next_epoch(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace, job = Pace(), Job("train", "t", "t", "at", 0, cost=10.0, payload={"epochs": 10})
    pace.begin(job)
    job.reached(4)
    pace.begin(job)  # its process died
    now = 101.0
    assert pace.seconds_left({"train": 5.0}, [job]) is None


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
    store = open_store(tmp_path / "store")
    common = {"store": store.uri, "data_dir": "", "cpus": 1.0, "plugins": {}, "commit": None}
    queue = Work(tiny(tmp_path, search=None), store, common={**common, "numerics": 1, "command": "sweep"})
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
