"""What people see of a running sweep: plain lines, and how it ended."""

from pathlib import Path

import pytest

from sweep.engine.display import Display
from sweep.store.leases import claim, holder_here
from sweep.store.opening import open_store
from sweep.work.queue import Queue
from sweep.work.summary import Failure, Summary, duration
from tests.sweep.tiny_study import tiny
from trainers.measures.chance import near_chance


@pytest.fixture
def opened(tmp_path):
    made = []

    def make(**changes):
        made.append(Queue(tiny(tmp_path, **{"search": None, **changes}), open_store(tmp_path / "store")))
        return made[-1]

    yield make
    for queue in made:
        queue.close()


def test_a_pipe_gets_plain_lines(opened, capsys):
    queue, display = opened(), Display("Tiny")
    display.update(queue)
    queue.begin(queue.next())
    assert "train 0 done, 1 running" in display.line(queue)
    display.close()
    assert "0 failed; left unknown" in capsys.readouterr().err


def test_a_sweep_that_waits_for_another_driver_says_for_whom(opened):
    queue = opened(methods={"at": {}}, seeds=[0])
    (cell,) = queue.cells.values()
    elsewhere = holder_here(60.0, "their trial").model_copy(update={"host": "far boot", "pid": 7})
    assert "waiting" not in Display("Tiny").line(queue)
    claim(queue.store, f"trials-{cell.trial[:16]}", elsewhere)
    assert queue.next() is None
    assert "waiting for process 7 on far" in Display("Tiny").line(queue)


def test_nodes_that_get_no_more_work_are_said_once(opened, capsys):
    queue, display = opened(), Display("Tiny")
    for _ in range(3):
        display.update(queue, {"far (ab12)": "the disk is full"})
    display.close()
    said = capsys.readouterr().err
    assert said.count("node far (ab12)") == said.count("the disk is full") == 1


def test_the_summary_names_failures_paths_and_the_way_on():
    failure = Failure("at seed 1", "0" * 64, "no memory", ("a", "b"), "sweep again")
    text = Summary("s", False, failed=[failure], device_use=0.97, seconds=60, store="/store", command="sweep").text()
    assert "devices 97% busy" in text and "failed: at seed 1: no memory" in text
    assert "run it again: sweep again" in text and "store: /store" in text
    assert duration(30) == "30 s" and duration(600) == "10.0 min" and duration(7200) == "2.0 h"


def test_another_attempt_and_a_training_near_chance_are_said_once(opened, capsys):
    queue, display = opened(resources={"retries": 3}), Display("Tiny")
    item = queue.next()
    queue.begin(item)
    item.failures, item.trouble = 1, "RuntimeError: no memory"
    queue.near_chance.append("at seed 1")
    for _ in range(3):
        display.update(queue)
    said = capsys.readouterr().err
    assert said.count(f"{item.piece.title}: attempt 2 of 4: RuntimeError: no memory") == 1
    assert said.count("at seed 1: ended near chance") == 1 and "1 near chance" in display.line(queue)
    display.close()


def test_a_training_near_chance_is_told_from_a_weak_one():
    assert near_chance(0.02, 100) and not near_chance(0.15, 100) and near_chance(0.55, 2) and not near_chance(0.7, 2)
    for clean, is_near in ((0.15, True), (0.2, True), (0.3, False), (0.9, False)):
        assert near_chance(clean, 10) is is_near


def test_the_summary_has_the_result_before_the_paths():
    text = Summary("s", True, result="method  n\nAT  3", store="/store", written=[Path("reports/tables.md")]).text()
    assert text.index("AT  3") < text.index("store: /store") < text.index("tables.md")
    assert f"written: {Path.cwd()}/reports/tables.md" in text
