"""The real queue of a study in virtual time: what it says is left, against what then came."""

import heapq
import json
from pathlib import Path

import pytest

from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.work import item as items
from sweep.work import pace
from sweep.work import queue as queues
from sweep.work.pieces import evaluation_metrics, trial_metrics
from sweep.work.queue import Queue
from tests import records

ROWS = json.loads((Path(__file__).parent / "digits_trace.json").read_text())
RECORDED_EPOCHS = 90
ACCURACIES = {"st": (0.98, 0.01), "at": (0.98, 0.71), "trades": (0.97, 0.75), "mail": (0.98, 0.69), "mma": (0.98, 0.75)}


class Clock:
    now = 1000.0

    def monotonic(self):
        return self.now


class Run:
    """Pieces take the seconds that they took when `digits` was recorded; models have the accuracies given above."""

    def __init__(self, study, store, slots, monkeypatch):
        self.clock, self.store, self.study = Clock(), store, study
        for module in (pace, items, queues):
            monkeypatch.setattr(module, "time", self.clock)
        self.began, self.told = self.clock.now, []
        self.queue = Queue(study, store)
        self.events, self.count = [], 0
        idle = slots
        while not self.queue.complete:
            while idle and (item := self.queue.next()) is not None:
                self.queue.begin(item)
                starts = 2.0 if self.clock.now == self.began else 0.0  # imports, once for each process
                self._plan(item, starts)
                idle -= 1
            self.clock.now, _, item, epoch = heapq.heappop(self.events)
            if epoch is not None:
                item.reached(epoch)
            else:
                self.queue.finished(item, self._result(item.piece))
                idle += 1
            self.told.append((self.clock.now, self.queue.seconds_left()))
        self.queue.close()

    def _plan(self, item, starts):
        seconds, epochs = self._seconds(item.piece), item.piece.epochs
        is_training = item.piece.stage == "train"
        for epoch in range(epochs if is_training else 0):
            self._at(starts + seconds * (epoch + 1) / epochs, item, epoch)
        self._at(starts + seconds, item, None)

    def _at(self, after, *what):
        self.count += 1
        heapq.heappush(self.events, (self.clock.now + after, self.count, *what))

    def _seconds(self, piece):
        if piece.stage == "diagnose":
            return 0.6
        attack = "" if piece.stage == "train" else f" {piece.evaluation.attack.name}"
        seconds = [row[4] for row in ROWS if row[1] == f"{piece.label}{attack}"][piece.config.seed]
        return seconds * piece.epochs / RECORDED_EPOCHS if piece.stage == "train" else seconds

    def _result(self, piece):
        clean, pgd = ACCURACIES[piece.label]
        if piece.stage == "train":
            accuracies = {"validation_clean_accuracy": clean, "validation_pgd_accuracy": pgd}
            curve = tuple({"epoch": epoch, **accuracies} for epoch in range(3))
            record = records.trial_record(piece.trial, config=piece.config, curve=curve)
            self.store.write_record(record)
            return trial_metrics(record)
        if piece.stage == "diagnose":
            return {"state": "done"}
        evaluation = piece.evaluation
        record = records.evaluation_record(piece.trial, evaluation.attack, checkpoint=evaluation.checkpoint)
        self.store.write_record(record)
        return evaluation_metrics(record)


def said_and_actual(run, share):
    """What was said to be left after this share of the run, and what was."""
    end = run.told[-1][0]
    at, said = next(pair for pair in run.told if pair[0] - run.began >= share * (end - run.began))
    return said, end - at


TWO, MIXTURE = ("at", "trades"), ("st", "at", "mail", "mma", "trades")


# Few epochs make a run that AutoAttack fills, of which nothing has been seen at a quarter; and how many images reach
# its later parts differs by method.
@pytest.mark.parametrize(
    ("methods", "epochs", "slots"), [(TWO, 12, 2), (TWO, 60, 1), (MIXTURE, 12, 4), (MIXTURE, 60, 2)]
)
def test_at_a_quarter_the_time_left_is_said_within_a_factor_of_two(tmp_path, methods, epochs, slots, monkeypatch):
    train = {"epochs": epochs, "schedule": {"kind": "constant"}}
    overrides = [f"train.epochs={epochs}", 'train.schedule={"kind": "constant"}', "search={}"]
    overrides += [f"methods.{name}.train={json.dumps(train)}" for name in methods]
    overrides += [f"methods.{name}.selection={{from_epoch: {epochs // 2}}}" for name in methods]
    study = Study.load("digits", overrides, methods, [0, 1, 2])
    run = Run(study, open_store(tmp_path / "store"), slots, monkeypatch)
    assert run.told[0][1] is None  # the first epoch
    for share in (0.25, 0.5):
        said, actual = said_and_actual(run, share)
        assert said is not None
        assert 1 / 2 < said / actual < 2, f"at {share:.0%}: said {said:.0f} s, took {actual:.0f} s"
