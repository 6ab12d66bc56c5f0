"""What people see of a running sweep: plain lines, and how it ended."""

import os
import socket
from pathlib import Path

from sweep.store.opening import open_store
from sweep.store.records.trial import TrialRecord
from sweep.work.display import Display
from sweep.work.summary import Failure, Summary, duration
from sweep.work.work import Work, learned_nothing
from tests.sweep.tiny_study import tiny
from trainers.chance import near_chance


def test_a_pipe_gets_plain_lines(tmp_path, capsys):
    work = Work(tiny(tmp_path, search=None), open_store(tmp_path / "store"))
    display = Display("Tiny")
    display.update(work)
    running = work.next_task()
    running.started = True
    assert "train 0 done, 1 running" in display.line(work)
    display.close()
    work.close()
    assert "0 failed; left unknown" in capsys.readouterr().err


def test_a_sweep_that_waits_for_another_driver_says_for_whom(tmp_path):
    study, store = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0]), open_store(tmp_path / "store")
    other, work = Work(study, store), Work(study, store)
    assert other.next_task() is not None and work.next_task() is None
    line = Display("Tiny").line(work)
    assert f"waiting for process {os.getpid()} on {socket.gethostname()}, which has the rest of this study" in line
    assert "waiting" not in Display("Tiny").line(other)
    other.close()
    work.close()


def test_the_summary_names_failures_paths_and_the_way_on():
    failure = Failure("at seed 1", "0" * 64, "no memory", ("a", "b"), "sweep again")
    text = Summary("s", False, failed=[failure], device_use=0.97, seconds=60, store="/store", command="sweep").text()
    assert "devices 97% busy" in text and "failed: at seed 1: no memory" in text
    assert "run it again: sweep again" in text and "store: /store" in text
    assert duration(30) == "30 s" and duration(600) == "10.0 min" and duration(7200) == "2.0 h"


def test_another_attempt_and_a_training_near_chance_are_said_once(tmp_path, capsys):
    work = Work(tiny(tmp_path, search=None, resources={"retries": 3}), open_store(tmp_path / "store"))
    display = Display("Tiny")
    running = work.next_task()
    running.started, running.failures, running.trouble = True, 1, "RuntimeError: no memory"
    work.near_chance.append("at seed 1")
    for _ in range(3):
        display.update(work)
    said = capsys.readouterr().err
    assert said.count(f"{running.task.title}: attempt 2 of 4: RuntimeError: no memory") == 1
    assert said.count("at seed 1: ended near chance") == 1 and "1 near chance" in display.line(work)
    display.close()
    work.close()


def test_a_record_near_chance_is_told_from_a_weak_one(tmp_path):
    config = tiny(tmp_path, search=None).config("at")
    for clean, told in ((0.15, True), (0.2, True), (0.3, False), (0.9, False)):
        metrics = {"best_validation_validation_clean_accuracy": clean, "last_validation_clean_accuracy": 0.05}
        record = TrialRecord(trial="0" * 64, config=config, status="done", metrics=metrics)
        assert learned_nothing(record) is told
    assert near_chance(0.02, 100) and not near_chance(0.15, 100) and near_chance(0.55, 2) and not near_chance(0.7, 2)


def test_the_summary_has_the_result_before_the_paths():
    text = Summary("s", True, result="method  n\nAT  3", store="/store", written=[Path("reports/tables.md")]).text()
    assert text.index("AT  3") < text.index("store: /store") < text.index("tables.md")
    assert f"written: {Path.cwd()}/reports/tables.md" in text
