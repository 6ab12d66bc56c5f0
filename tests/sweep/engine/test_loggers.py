"""Trackers get one run for each training: its epochs, wherever and however often it ran, and its attacks' results."""

import copy
import inspect
import itertools
import json
import pickle
import struct
import sys
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.air.integrations.wandb import WandbLoggerCallback
from ray.tune.logger import TBXLoggerCallback
from tensorboardX.proto import event_pb2, plugin_hparams_pb2

from sweep.cluster.session import connected
from sweep.engine.loggers import callbacks
from sweep.engine.loggers.runs import NO_RECIPE, attack_name, run_of
from sweep.engine.supervisor import Supervisor
from sweep.errors import UserError
from sweep.evaluation.asked import Evaluation
from sweep.store.opening import open_store
from sweep.work.pieces import Attack, Candidate, Training
from sweep.work.queue import Queue
from tests.records import trial_config
from tests.sweep.tiny_study import tiny
from trainers.attack import AttackSettings
from trainers.attacks import parse

TRIAL = "0123456789abcdef" * 4
CONFIG = trial_config(seed=2, recipe={"epochs": 4})
TRAINING = Training("at", CONFIG, TRIAL)
CANDIDATE = Candidate("sovr", CONFIG, TRIAL, search="s", index=3, cut_offs={}, metric="")
DONE = {"state": "done", "robust_accuracy": 0.5, "clean_accuracy": 0.75, "wall_seconds": 8.0, "epochs": 4}
TUNE = {"time_total_s": 1.0, "pid": 3, "training_iteration": 7, "timestamp": 5, "config": {}}  # added to every report


def attack_on_it(name="pgd-5", checkpoint="best_test", **settings):
    attack = parse(name, AttackSettings(**{"epsilon": "8/255", **settings}))
    return Attack("at", CONFIG, TRIAL, Evaluation(TRIAL, checkpoint, attack, 20))


def row(epoch):
    return {"epoch": epoch, "train_loss": 2.0 - epoch, "seconds": 0.5, "test_pgd_accuracy": 0.25}


class Sweep:
    """Tells loggers of Tune trials as Tune does."""

    def __init__(self, folder, *names):
        self.folder = folder
        self.loggers = callbacks(names, tiny(folder), open_store(folder / "store"))
        self._numbers = itertools.count()
        self.tell("setup")

    def tell(self, event, **info):
        for logger in self.loggers:
            getattr(logger, event)(**info)

    def trial(self, piece, *reports, ends="on_trial_complete"):
        """Run a Tune trial to its end, or leave it running with `ends` None."""
        number = next(self._numbers)
        config = piece.tune_config("tiny") | {"owner": str(number), "attempt": number + 1, "resources": {"cpu": 1.0}}
        trial = SimpleNamespace(trial_id=str(number), config=config, last_result={})
        about = {"iteration": 0, "trials": [], "trial": trial}
        self.tell("on_trial_start", **about)
        for report in reports:
            trial.last_result = {**report, **TUNE}
            self.tell("on_trial_result", **about, result=trial.last_result)
            self.tell("on_step_end", iteration=0, trials=[])
        if ends:
            self.tell(ends, **about)

    def whole_training(self):
        """A training that was lost with its node after two epochs, went on, and was attacked."""
        self.trial(TRAINING, {"node": "n", "host": "h"}, row(0), {"steps": 9}, row(1), ends="on_trial_error")
        self.trial(TRAINING, {**row(3), "earlier": [row(2)]}, DONE)
        self.trial(attack_on_it(), {"images": 10, "free": 1}, {"state": "shared"})
        self.trial(attack_on_it(), {"state": "done", "accuracy": 0.125, "images": 20})
        self.trial(attack_on_it("clean", "last"), {"state": "done", "accuracy": 0.875, "images": 20})


def events(folder):
    """Return all values of a TensorBoard folder."""
    values = []
    for path in sorted(folder.glob("events*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("Q", data[:8])
            event = event_pb2.Event.FromString(data[12 : 12 + length])
            values += [(value.tag, event.step, value) for value in event.summary.value]
            data = data[16 + length :]
    return values


def curve(folder, name):
    return [(step, value.simple_value) for tag, step, value in events(folder) if tag == f"ray/tune/{name}"]


def test_unknown_loggers_are_refused_with_those_there_are(tmp_path):
    assert len(callbacks(["tensorboard"], tiny(tmp_path), open_store(tmp_path / "store"))) == 1
    with pytest.raises(UserError, match="tensorbord.*tensorboard, wandb, mlflow"):
        callbacks(["tensorbord"], tiny(tmp_path), open_store(tmp_path / "store"))


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_logger_that_is_not_installed_is_refused_with_the_way_to_get_it(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=rf"pip install 'robustsweep\[{name}\]'"):
        callbacks([name], tiny(tmp_path), open_store(tmp_path / "store"))


def test_a_training_and_its_attacks_are_one_run_in_every_sweep(tmp_path):
    configs = [piece.tune_config("tiny") for piece in (TRAINING, attack_on_it(), attack_on_it("clean", "last"))]
    configs.append(configs[0] | {"title": "at seed 2 (attempt 2)", "attempt": 2, "owner": "other", "gpu_bytes": 5})
    runs = [run_of(config, lambda name: tmp_path / name) for config in configs]
    assert len(set(runs)) == 1 and all(run.config == runs[0].config for run in runs)
    assert runs[0].trial_id == "0123456789abcdef-tiny" and str(runs[0]) == "at-seed2-01234567"
    assert runs[0].config["settings"] == CONFIG.model_dump(mode="json", exclude_none=True)
    candidate = run_of(CANDIDATE.tune_config("tiny"), lambda name: tmp_path / name)
    assert str(candidate) == "sovr-candidate3-01234567" and candidate.config["search"] == "s"


def test_nothing_of_the_machine_stands_in_a_recipe(tmp_path):
    queue = Queue(tiny(tmp_path, search=None), open_store(tmp_path / "store"))
    config = Supervisor(queue, 2, lambda: {"n"}).start("a", helpers=1)
    piece = queue.taken[next(iter(queue.taken))].piece
    assert config.keys() - NO_RECIPE == piece.tune_config("tiny").keys() - NO_RECIPE
    queue.close()


def test_an_attack_is_named_with_its_radius_where_that_is_not_the_trainings():
    named = [attack_on_it(), attack_on_it("clean"), attack_on_it(checkpoint="last"), attack_on_it("pgd-5@l2:128/255")]
    assert [attack_name(piece.tune_config("tiny")) for piece in named] == [
        "best_test/pgd-5",
        "best_test/clean",
        "last/pgd-5",
        "best_test/pgd-5 l2 128_255",
    ]


def test_tensorboard_gets_one_curve_and_the_results_of_the_attacks(tmp_path):
    Sweep(tmp_path, "tensorboard").whole_training()
    (folder,) = (tmp_path / "store/tensorboard/tiny").iterdir()
    assert folder.name == "at-seed2-01234567"
    assert curve(folder, "train_loss") == [(0, 2.0), (1, 1.0), (2, 0.0), (3, -1.0)]
    assert curve(folder, "best_test/pgd-5") == [(3, 0.125)] and curve(folder, "last/clean") == [(3, 0.875)]
    assert curve(folder, "robust_accuracy") == [(3, 0.5)]
    tags = {tag.removeprefix("ray/tune/") for tag, _, _ in events(folder)}
    assert not tags & {"steps", "images", "free", "epoch", "time_total_s"}


def test_tensorboards_hyperparameters_are_the_recipe(tmp_path):
    Sweep(tmp_path, "tensorboard").whole_training()
    (folder,) = (tmp_path / "store/tensorboard/tiny").iterdir()
    starts = [value for tag, _, value in events(folder) if tag == "_hparams_/session_start_info"]
    content = plugin_hparams_pb2.HParamsPluginData.FromString(starts[0].metadata.plugin_data.content)
    hparams = content.session_start_info.hparams
    assert hparams["settings/recipe/epochs"].number_value == 4 and hparams["method"].string_value == "at"


def test_results_that_come_at_once_do_not_replace_each_other(tmp_path):
    sweep = Sweep(tmp_path, "tensorboard")
    sweep.trial(TRAINING, row(0), row(1), DONE)
    names = [f"pgd-{steps}" for steps in range(1, 6)]
    for name in names:
        sweep.trial(attack_on_it(name), {"state": "done", "accuracy": 0.5})
    (folder,) = (tmp_path / "store/tensorboard/tiny").iterdir()
    assert len(curve(folder, "train_loss")) == 2
    assert all(curve(folder, f"best_test/{name}") for name in names)


def test_a_trial_that_did_nothing_leaves_no_run(tmp_path):
    sweep = Sweep(tmp_path, "tensorboard")
    sweep.trial(TRAINING, {"node": "n", "host": "h"}, {"state": "held", "fault": "no CUDA"})
    sweep.trial(TRAINING, {"state": "taken"})
    sweep.trial(TRAINING, ends="on_trial_error")
    assert not (tmp_path / "store/tensorboard").exists()


def test_curves_of_a_remote_store_are_where_the_driver_works(tmp_path, monkeypatch, endpoint):
    monkeypatch.chdir(tmp_path)
    store = open_store(f"s3://results/loggers?endpoint_override={quote(endpoint, safe='')}&region=us-east-1")
    (logger,) = callbacks(["tensorboard"], tiny(tmp_path), store)
    assert logger.folder == tmp_path


def test_a_logger_that_fails_is_switched_off_with_one_message(tmp_path, capsys):
    sweep = Sweep(tmp_path, "tensorboard")
    (tmp_path / "store").mkdir(exist_ok=True)
    (tmp_path / "store/tensorboard").write_text("in the way")
    sweep.whole_training()
    sweep.tell("on_experiment_end", trials=[])
    assert capsys.readouterr().err.count("\n") == 1 and sweep.loggers[0].is_off


def test_tune_may_copy_and_pickle_loggers(tmp_path):
    sweep = Sweep(tmp_path, "tensorboard")
    sweep.trial(TRAINING, row(0), ends=None)
    (logger,) = sweep.loggers
    assert copy.deepcopy(logger) is logger and pickle.dumps(logger)


def test_what_is_used_of_rays_loggers_beside_their_interface_is_there():
    for kind, names in (
        (TBXLoggerCallback, ["_summary_writer_cls"]),
        (MLflowLoggerCallback, ["_trial_runs", "mlflow_util"]),
        (WandbLoggerCallback, ["_trial_logging_futures", "_cleanup_logging_actors"]),
    ):
        source = inspect.getsource(kind)
        assert all(f"self.{name}" in source for name in names)


def test_mlflow_continues_a_run_and_keeps_the_recipe_and_the_results(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="needs MLflow (the mlflow extra)")
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    sweep = Sweep(tmp_path, "mlflow")
    client = MlflowClient(f"sqlite:///{tmp_path}/store/mlflow.db")

    def run():
        (experiment,) = [one for one in client.search_experiments() if one.name == "tiny"]
        (run,) = client.search_runs([experiment.experiment_id])
        return run

    sweep.trial(TRAINING, row(0), row(1), ends=None)
    sweep.tell("on_experiment_end", trials=[])  # stopped by the user
    assert run().info.status == "FAILED"
    sweep = Sweep(tmp_path, "mlflow")
    sweep.trial(TRAINING, {**row(3), "earlier": [row(2)]}, ends=None)
    assert run().info.status == "RUNNING"
    sweep.trial(TRAINING, DONE)
    sweep.trial(attack_on_it(), {"state": "done", "accuracy": 0.125})
    assert run().info.run_name == "at-seed2-01234567"
    assert run().data.metrics["best_test/pgd-5"] == 0.125 and run().data.metrics["robust_accuracy"] == 0.5
    assert run().data.params["settings/recipe/epochs"] == "4" and not run().data.params.keys() & NO_RECIPE
    losses = client.get_metric_history(run().info.run_id, "train_loss")
    assert [(metric.step, metric.value) for metric in losses] == [(0, 2.0), (1, 1.0), (2, 0.0), (3, -1.0)]


@pytest.mark.timeout(300, func_only=True)
def test_wandb_gets_one_run_with_its_recipe_and_results(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs Weights & Biases (the wandb extra)")
    monkeypatch.setenv("WANDB_MODE", "offline")
    with connected(None):
        sweep = Sweep(tmp_path, "wandb")
        sweep.whole_training()
        sweep.tell("on_experiment_end", trials=[])
        (logger,) = sweep.loggers
        assert not logger.is_off
    (path,) = (tmp_path / "store/wandb").glob("offline-run-*/run-0123456789abcdef-tiny.wandb")
    config, history = read_wandb(path)
    assert config["settings"]["recipe"]["epochs"] == 4 and not config.keys() & NO_RECIPE
    assert [row["train_loss"] for row in history if "train_loss" in row] == [2.0, 1.0, 0.0, -1.0]
    summary = {name: value for row in history for name, value in row.items()}
    assert (summary["best_test/pgd-5"], summary["last/clean"], summary["robust_accuracy"]) == (0.125, 0.875, 0.5)


@pytest.mark.timeout(300, func_only=True)
def test_a_run_that_wandb_refuses_switches_it_off(tmp_path, monkeypatch, capsys):
    pytest.importorskip("wandb", reason="needs Weights & Biases (the wandb extra)")
    monkeypatch.setenv("WANDB_MODE", "no such mode")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    with connected(None):
        sweep = Sweep(tmp_path, "wandb")
        sweep.whole_training()
        sweep.tell("on_experiment_end", trials=[])
    assert sweep.loggers[0].is_off and capsys.readouterr().err.count("wandb is switched off") == 1


def read_wandb(path):
    """Return the config and the rows of an offline run."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    data, config, history = DataStore(), {}, []
    data.open_for_scan(str(path))
    while (content := data.scan_data()) is not None:
        record = wandb_internal_pb2.Record.FromString(content)
        config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        items = record.history.item
        if items:
            history.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    return config, history
