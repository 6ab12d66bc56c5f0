"""The real queue of a study in virtual time: what it says is left, against what then came."""

import heapq
import json
from pathlib import Path

import numpy as np
import pytest

from sweep.store.opening import open_store
from sweep.store.records.evaluation import ShardRecord
from sweep.store.verdicts import pack
from sweep.studies.model import Study
from sweep.work import pace, ready
from sweep.work.work import Work
from tests import records

ROWS = json.loads((Path(__file__).parent / "digits_trace.json").read_text())
RECORDED_EPOCHS = 90
# Of the images: right, right under PGD, and after the first and the second part of AutoAttack.
SURVIVORS = {
    "st": (0.98, 0.01, 0.005, 0.002),
    "at": (0.98, 0.71, 0.68, 0.66),
    "trades": (0.97, 0.75, 0.72, 0.68),
    "mail": (0.98, 0.69, 0.64, 0.54),
    "mma": (0.98, 0.75, 0.72, 0.70),
}
PARTS = {"clean": 0.01, "apgd-ce": 0.06, "apgd-t": 0.30, "fab-t": 0.28, "square": 0.35}  # of AutoAttack's seconds


class Clock:
    now = 1000.0

    def monotonic(self):
        return self.now


class Run:
    """Tasks take the seconds that they took when `digits` was recorded; models have the accuracies given above."""

    def __init__(self, study, store, slots, monkeypatch):
        self.clock, self.store, self.study = Clock(), store, study
        for module in (pace, ready):
            monkeypatch.setattr(module, "time", self.clock)
        self.began, self.told = self.clock.now, []
        self.work = Work(study, store)
        self.events, self.count = [], 0
        idle = slots
        while not self.work.complete:
            while idle and (assigned := self.work.next_task()) is not None:
                assigned.started = True
                self.work.pace.begin(assigned)
                starts = 2.0 if self.clock.now == self.began else 0.0  # imports, once for each process
                self._plan(assigned, starts)
                idle -= 1
            self.clock.now, _, assigned, epoch, seconds = heapq.heappop(self.events)
            if epoch is not None:
                assigned.reached(epoch)
            else:
                assigned.seconds, assigned.found = seconds, self._result(assigned.task)
                self.work.finished(assigned)
                idle += 1
            self.told.append((self.clock.now, self.work.seconds_left()))
        self.work.close()

    def _plan(self, assigned, starts):
        seconds, epochs = self._seconds(assigned.task), assigned.task.epochs
        is_training = assigned.task.stage == "train"
        for epoch in range(epochs if is_training else 0):
            self._at(starts + seconds * (epoch + 1) / epochs, assigned, epoch, seconds)
        self._at(starts + seconds, assigned, None, seconds)

    def _at(self, after, *what):
        self.count += 1
        heapq.heappush(self.events, (self.clock.now + after, self.count, *what))

    def _seconds(self, task):
        if task.stage == "diagnose":
            return 0.6
        attack = "" if task.stage == "train" else f" {task.item.evaluation.attack.name}"
        found = [row[4] for row in ROWS if row[1] == f"{task.label}{attack}"][task.config.seed]
        if task.stage == "train":
            return found * task.epochs / RECORDED_EPOCHS
        return found * PARTS.get(task.item.phase, 1.0)

    def _result(self, task):
        right, pgd, first, second = SURVIVORS[task.label]
        if task.stage == "train":
            accuracies = {"validation_clean_accuracy": right, "validation_pgd_accuracy": pgd}
            curve = tuple({"epoch": epoch, **accuracies} for epoch in range(3))
            record = records.trial_record(task.trial, config=task.config, curve=curve)
            self.store.write_record(record)
            return [record]
        if task.stage == "diagnose":
            return []
        item, phase = task.item, task.item.phase
        left = {"clean": right, "apgd-ce": first / right, "apgd-t": second / first}.get(phase, 1.0)
        correct = pack(np.arange(item.last - item.first) < round(left * (item.last - item.first)))
        clean = correct if phase in ("", "clean") else None
        shard = ShardRecord(
            folder=item.evaluation.folder, first=item.first, last=item.last, phase=phase, correct=correct, clean=clean
        )
        self.store.write_record(shard)
        return [shard]


def said_and_actual(run, share):
    """What was said to be left after this share of the run, and what was."""
    end = run.told[-1][0]
    at, said = next(one for one in run.told if one[0] - run.began >= share * (end - run.began))
    return said, end - at


TWO, MIXTURE = ("at", "trades"), ("st", "at", "mail", "mma", "trades")


# Few epochs make a run that AutoAttack fills, of which nothing has been seen at a quarter.
@pytest.mark.parametrize(
    ("methods", "epochs", "slots"), [(TWO, 12, 2), (TWO, 60, 1), (MIXTURE, 12, 4), (MIXTURE, 60, 2)]
)
def test_at_a_quarter_the_time_left_is_said_within_a_factor_of_one_and_a_half(
    tmp_path, methods, epochs, slots, monkeypatch
):
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
        assert 1 / 1.5 < said / actual < 1.5, f"at {share:.0%}: said {said:.0f} s, took {actual:.0f} s"
