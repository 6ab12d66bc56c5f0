"""What people see of a running sweep: plain lines, and how it ended."""

import os
import socket

from sweep.store.opening import open_store
from sweep.work.display import Display
from sweep.work.summary import Failure, Summary, duration
from sweep.work.work import Work
from tests.sweep.tiny_study import tiny


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
