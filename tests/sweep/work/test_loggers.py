"""Curves of running trials go to a logger, one row per epoch."""

import sys
from types import SimpleNamespace

import pytest

from sweep.errors import UserError
from sweep.store.opening import open_store
from sweep.work.loggers import Curves, callbacks, curve_values, run_name
from sweep.work.tasks import CandidateTraining, Training
from tests.records import trial_config
from tests.sweep.tiny_study import tiny

TASK = Training("at", trial_config(seed=2), "0123456789abcdef")


def test_loggers_are_named_and_missing_ones_say_how_to_get_them(tmp_path):
    study, store = tiny(tmp_path), open_store(tmp_path / "store")
    assert len(callbacks(["tensorboard"], study, store)) == 1
    with pytest.raises(UserError, match="known: tensorboard"):
        callbacks(["tensorbord"], study, store)
    assert run_name("tiny", TASK) == "tiny/at-seed2-01234567"
    candidate = CandidateTraining("at", TASK.config, TASK.trial, search="s", index=0, cut_offs={}, metric="")
    assert run_name("tiny", candidate) == "tiny/at-candidate-01234567"
    row = {"train_loss": 1.0, "test_pgd_accuracy": 0.5, "pid": 3, "time_total_s": 1.0, "validation_pgd_accuracy": None}
    assert curve_values(row) == {"train_loss": 1.0, "test_pgd_accuracy": 0.5}


class Rows(Curves):
    package = "rows"

    def __init__(self, folder, study):
        super().__init__(folder, study)
        self.rows = []

    def open(self, name, task):
        return name

    def log(self, run, values, epoch):
        if epoch == 7:
            raise OSError("no answer")
        self.rows.append((run, epoch, values))

    def close(self, run):
        self.rows.append((run, "closed"))


def test_a_logger_gets_one_row_per_epoch_and_is_switched_off_when_it_fails(tmp_path, capsys):
    rows = Rows(tmp_path, "tiny")
    trial = SimpleNamespace(trial_id="a", config={"task": TASK})
    earlier = [{"epoch": 0, "train_loss": 1.0, "seconds": 3.0}]  # quick epochs are told together
    rows.on_trial_result(0, [], trial, {"epoch": 1, "train_loss": 1.0, "seconds": 3.0, "earlier": earlier})
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
