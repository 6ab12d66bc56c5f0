"""The time left follows from what is done: the pace of each stage, and the epochs of running trainings."""

import json
import random
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweep.work.item import Item
from sweep.work.pace import Pace


@dataclass
class Known:
    """A piece of a known cost."""

    stage: str
    cost: float
    epochs: int = 1


def item_of(stage="train", cost=10.0, epochs=10) -> Item:
    return Item(Known(stage, cost, epochs))


def begin(pace, item):
    """As a queue does when a worker has begun with a piece."""
    item.begin()
    pace.begin()


def test_the_time_left_follows_the_pace_of_each_stage(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace = Pace()
    trainings = [item_of() for _ in range(3)]
    attack = item_of("attack", 100.0)
    assert pace.seconds_left({"train": 10.0}, []) is None
    for training in trainings[:2]:
        begin(pace, training)
    now = 120.0
    for training in trainings[:2]:
        pace.end(training)
    # Two at once, two seconds a unit; what attacks cost is guessed from trainings.
    assert pace.seconds_left({"train": 30.0, "attack": 0.0}, []) == pytest.approx(30)
    assert pace.seconds_left({"train": 30.0, "attack": 100.0}, []) == pytest.approx(130)
    begin(pace, attack)
    begin(pace, trainings[2])
    now = 130.0
    pace.end(attack)
    # Their own pace is a tenth of a second a unit, and counts the more the more of them are done.
    pace.end(trainings[2])
    few, many = (pace.seconds_left({"train": 0.0, "attack": left}, []) / left for left in (10_000.0, 1.0))
    assert 0.1 / 2 < many < few < 2 / 2
    assert pace.seconds_left({"train": 0.0, "attack": 0.0}, []) == 0


def test_the_epochs_of_a_running_training_give_a_time_before_any_has_ended(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace, training = Pace(), item_of()
    begin(pace, training)
    assert pace.seconds_left({"train": 10.0}, [training]) is None
    now = 140.0  # imports and data
    training.reached(4)  # it was begun before: four epochs were not trained here
    assert pace.seconds_left({"train": 5.0}, [training]) is None  # one epoch says nothing of the next
    for epoch in (5, 6):
        now += 2.0
        training.reached(epoch)
    # Two seconds an epoch, three of ten to go.
    rest = training.piece.cost * (1 - training.share)
    assert pace.seconds_left({"train": rest}, [training]) == pytest.approx(6)
    now = 148.0
    pace.end(training)  # 48 s for six of ten epochs, imports and data included
    assert pace.seconds_left({"train": 20.0}, []) == pytest.approx(20 * 48 / 6)


def test_a_training_that_begins_again_says_nothing_before_its_next_epoch(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace, training = Pace(), item_of()
    begin(pace, training)
    training.reached(4)
    begin(pace, training)  # its process died
    now = 101.0
    assert pace.seconds_left({"train": 5.0}, [training]) is None


def test_what_another_driver_did_says_nothing_of_the_pace_here():
    pace = Pace()
    pace.begin()
    pace.end(item_of())
    assert pace.seconds_left({"train": 10.0}, []) is None


def test_a_piece_is_expected_to_take_as_long_as_those_like_it(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace, training = Pace(), item_of(cost=10.0)
    before = pace.expected_seconds(training)
    begin(pace, training)
    now = 150.0
    pace.end(training)
    assert pace.expected_seconds(item_of(cost=20.0)) == pytest.approx(100)
    assert pace.expected_seconds(item_of("search", cost=20.0)) == pytest.approx(100)  # trainings too
    assert pace.expected_seconds(item_of("attack", cost=10.0)) == before  # nothing is known of attacks


START = 1000.0  # of a simulated run, by the monotonic clock


def recorded() -> list[tuple[str, float, int, float]]:
    """Stage, cost, epochs and seconds of every training and attack of `digits`, as two processes took them."""
    rows = json.loads((Path(__file__).parent / "digits_trace.json").read_text())
    return [(stage.replace("evaluate", "attack"), cost, epochs, seconds) for stage, _, cost, epochs, seconds in rows]


def simulated(seed: int) -> list[tuple[str, float, int, float]]:
    """A large study: methods up to twice as slow as their cost says, attacks somewhat faster than trainings."""
    draws = random.Random(seed)
    methods = [draws.uniform(0.7, 1.4) for _ in range(10)]
    tasks = []
    for method in methods:
        for _ in range(3):
            tasks.append(("train", 1000.0, 100, 60.0 * method * draws.uniform(0.9, 1.1)))
            tasks.append(("attack", 300.0, 1, 18.0 * draws.uniform(0.6, 1.0)))
    return tasks


def estimates(tasks, slots, start_seconds, monkeypatch) -> list[tuple[float, float | None]]:
    """The share of the run that was over and the estimated whole, at every end of an epoch or task; trainings first."""
    clock = [START]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    pace, told = Pace(), []
    waiting = sorted(tasks, key=lambda task: (task[0] != "train", -task[1]))
    running: dict[int, tuple[Item, list[float]]] = {}
    left = {"train": 0.0, "attack": 0.0}
    for stage, cost, _, _ in tasks:
        left[stage] += cost
    while waiting or running:
        for slot in range(slots):
            if waiting and slot not in running:
                stage, cost, epochs, seconds = waiting.pop(0)
                item = item_of(stage, cost, epochs)
                begin(pace, item)
                begins = clock[0] + (start_seconds if clock[0] == START else 0.0)  # processes are used again
                running[slot] = item, [begins + seconds * (k + 1) / epochs for k in range(epochs)]
        slot = min(running, key=lambda number: running[number][1][0])
        item, ends = running[slot]
        clock[0] = ends.pop(0)
        if item.piece.stage == "train":
            item.reached(item.piece.epochs - len(ends) - 1)
        if not ends:
            pace.end(item)
            left[item.piece.stage] -= item.piece.cost
            del running[slot]
        items = [item for item, _ in running.values()]
        begun = {stage: sum(o.piece.cost * o.share for o in items if o.piece.stage == stage) for stage in left}
        rest = pace.seconds_left({stage: left[stage] - begun[stage] for stage in left}, items)
        told.append((clock[0], None if rest is None else clock[0] + rest))
    last = clock[0] - START
    return [((at - START) / last, None if whole is None else (whole - START) / last) for at, whole in told]


@pytest.mark.parametrize("tasks", [recorded(), *map(simulated, range(5))], ids=["digits", *map(str, range(5))])
@pytest.mark.parametrize("slots", [1, 2, 8])
def test_from_a_quarter_of_the_run_on_the_estimate_is_within_a_factor_of_one_and_a_half(tasks, slots, monkeypatch):
    told = estimates(tasks, slots, 30.0, monkeypatch)
    later = [whole for share, whole in told if share >= 0.25]
    assert later and None not in later
    assert 1 / 1.5 < min(later) and max(later) < 1.5
    first = next(whole for _, whole in told if whole is not None)
    assert 1 / 3 < first < 3
