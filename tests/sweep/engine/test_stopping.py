"""A stop is heard whatever the main thread does, and ends the process within seconds."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweep.engine.stopping import Stop
from sweep.errors import SweepEnded
from tests.patience import patience

ROOT = Path(__file__).parents[3]
BEGIN = """
import ctypes, signal, sys, threading, time
from sweep.engine import stopping
stopping.PATIENCE_SECONDS = float(sys.argv[1])
stop = stopping.Stop("python -m sweep.run --study mine")
stop.last_acts += [lambda: 1 / 0, lambda: print("lease released", flush=True)]
with stop:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))  # as Ray does
    stop.listen()
    print("in", flush=True)
"""
WORKS = "    while not stop.asked(): time.sleep(0.01)\nprint('ended cleanly', flush=True)\n"
BLOCKED = "    ctypes.CDLL(None).pause(); ctypes.CDLL(None).sleep(60); ctypes.CDLL(None).sleep(60)\n"
DEAF = "    while True: ctypes.CDLL(None).sleep(60)\n"


def begin(body: str, seconds: float = 1.0) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN + body, str(seconds)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "in\n"
    return process


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_work_that_looks_ends_cleanly_even_where_the_signal_comes_twice(kind):
    process = begin(WORKS, seconds=60)
    process.send_signal(kind)
    os.killpg(process.pid, kind)
    output, errors = process.communicate(timeout=patience(30))
    assert process.returncode == 0 and output == "ended cleanly\n"
    assert errors == "stopping after the current step; press Ctrl-C again to end at once\n"


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("body", [BLOCKED, DEAF])
def test_work_that_hangs_is_ended_with_the_way_to_go_on(kind, body):
    process = begin(body)
    os.killpg(process.pid, kind)
    output, errors = process.communicate(timeout=patience(30))
    assert process.returncode == 130 and output == "lease released\n"
    assert errors.splitlines()[-1] == "to go on: python -m sweep.run --study mine" and "Traceback" not in errors


def test_a_second_press_ends_at_once():
    process = begin(DEAF, seconds=60)
    process.send_signal(signal.SIGINT)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=patience(30))
    assert process.returncode == 130 and "lease released" in output and "to go on" in errors


def test_lost_ground_ends_a_hanging_process_with_the_reason():
    process = begin("    stop.lost('no node is alive')\n" + DEAF)
    output, errors = process.communicate(timeout=patience(30))
    assert process.returncode == 1 and output == "lease released\n"
    assert errors == "error: no node is alive\nto go on: python -m sweep.run --study mine\n"


def test_what_was_asked_decides_what_a_sweep_ends_with():
    stop = Stop("again")
    assert isinstance(stop.fault(), KeyboardInterrupt) and not stop.asked() and not stop.is_lost
    with stop:
        stop.lost("the head is gone")
        assert stop.asked() and stop.is_lost
        fault = stop.fault()
    assert isinstance(fault, SweepEnded) and str(fault) == "the head is gone\nto go on: again"


def test_handlers_are_as_they_were_afterwards():
    before = [signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)]
    with Stop():
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert [signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.set_wakeup_fd(-1) == -1
