"""The time left follows from what is done: the pace of each stage, and the epochs of running trainings."""

import time
from dataclasses import dataclass

import pytest

from sweep.work.pace import Pace
from sweep.work.ready import Assigned


@dataclass
class Known:
    """A task of a known cost."""

    stage: str
    cost: float
    epochs: int = 1


def assigned(stage="train", cost=10.0, epochs=10) -> Assigned:
    return Assigned(Known(stage, cost, epochs))


def test_the_time_left_follows_the_pace_of_each_stage(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace = Pace()
    trainings = [assigned() for _ in range(3)]
    evaluation = assigned("evaluate", 100.0)
    assert pace.seconds_left({"train": 10.0}, []) is None
    for training in trainings[:2]:
        pace.begin(training)
    now = 120.0
    for training in trainings[:2]:
        pace.end(training)
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
    pace, training = Pace(), assigned()
    pace.begin(training)
    assert pace.seconds_left({"train": 10.0}, [training]) is None
    now = 106.0
    for epoch in (4, 5, 6):  # it was begun before: four epochs were not trained here
        training.reached(epoch)
    # Two seconds an epoch, three of ten to go.
    assert pace.seconds_left({"train": training.task.cost * (1 - training.share)}, [training]) == pytest.approx(6)
    now = 112.0
    pace.end(training)
    assert pace.seconds_left({"train": 20.0}, []) == pytest.approx(40)


def test_a_training_that_begins_again_says_nothing_before_its_next_epoch(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace, training = Pace(), assigned()
    pace.begin(training)
    training.reached(4)
    pace.begin(training)  # its process died
    now = 101.0
    assert pace.seconds_left({"train": 5.0}, [training]) is None


def test_the_start_of_a_process_is_no_part_of_the_pace(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace, training = Pace(), assigned()
    pace.begin(training)
    now, training.seconds = 130.0, 5.0
    pace.end(training)
    assert pace.seconds_left({"train": 20.0}, []) == pytest.approx(10)
