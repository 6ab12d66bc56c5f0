"""Curves of running trials for TensorBoard, Weights & Biases or MLflow: one run per trial, one row per epoch."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ray.tune.callback import Callback

from sweep.store.base import Store
from sweep.studies.model import Study
from sweep.work.options import LOGGERS, check_loggers, not_installed
from sweep.work.tasks import Task


class Curves(Callback):
    """Tune's side of a logger. Evaluations report no epoch and get no run; a logger that fails is switched off."""

    package: ClassVar[str]

    def __init__(self, folder: Path, study: str) -> None:
        self.folder, self.study = folder, study
        self.broken = False
        self._runs: dict[str, Any] = {}

    def open(self, name: str, task: Task) -> Any:
        """A new run, which `log` and `close` get back."""
        raise NotImplementedError

    def log(self, run: Any, values: dict[str, float], epoch: int) -> None:
        raise NotImplementedError

    def close(self, run: Any) -> None:
        raise NotImplementedError

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if "state" in result or "failure" in result:  # the process goes on to another task, or ends
            self._end(trial)
        if "epoch" not in result or self.broken:
            return
        try:
            if trial.trial_id not in self._runs:
                task: Task = trial.config["task"]
                self._runs[trial.trial_id] = self.open(run_name(self.study, task), task)
            for row in (*result.get("earlier", ()), result):
                self.log(self._runs[trial.trial_id], curve_values(row), row["epoch"])
        except Exception as fault:  # a server that does not answer is no reason to end a sweep
            self.broken = True
            print(f"{self.package} is switched off: {fault}", file=sys.stderr, flush=True)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._end(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._end(trial)

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "study": self.study, "broken": self.broken, "_runs": {}}

    def _end(self, trial: Any) -> None:
        run = self._runs.pop(trial.trial_id, None)
        if run is not None:
            with contextlib.suppress(Exception):  # its server may have gone since
                self.close(run)


class TensorBoard(Curves):
    """In the folder `tensorboard` of the store, or of the driver's working folder where the store is none."""

    package = LOGGERS["tensorboard"]

    def open(self, name: str, task: Task) -> Any:
        from tensorboardX import SummaryWriter

        return SummaryWriter(str(self.folder / "tensorboard" / name), write_to_disk=True)

    def log(self, run: Any, values: dict[str, float], epoch: int) -> None:
        for name, value in values.items():
            run.add_scalar(name, value, epoch)
        run.flush()

    def close(self, run: Any) -> None:
        run.close()


class Wandb(Curves):
    """The project is robustsweep unless WANDB_PROJECT says otherwise; local files are in `<store>/wandb`."""

    package = LOGGERS["wandb"]

    def open(self, name: str, task: Task) -> Any:
        self.folder.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("WANDB_CACHE_DIR", str(self.folder / "wandb" / "cache"))  # not the home folder
        import wandb

        return wandb.init(
            project=os.environ.get("WANDB_PROJECT", "robustsweep"),
            group=self.study,
            name=name,
            config=task.config.model_dump(mode="json"),
            dir=os.environ.get("WANDB_DIR", str(self.folder)),
            reinit="create_new",  # several trials run at once
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True),
        )

    def log(self, run: Any, values: dict[str, float], epoch: int) -> None:
        run.log(values, step=epoch)

    def close(self, run: Any) -> None:
        run.finish()


class MLflow(Curves):
    """At MLFLOW_TRACKING_URI, or in `<store>/mlflow.db`. The experiment is the study."""

    package = LOGGERS["mlflow"]

    def open(self, name: str, task: Task) -> Any:
        client = self._client()
        known = client.get_experiment_by_name(self.study)
        experiment = known.experiment_id if known else client.create_experiment(self.study)
        run = client.create_run(experiment, run_name=name, tags={"trial": task.trial, "label": task.label}).info
        for key, value in (*task.config.hyperparameters.items(), ("seed", task.config.seed)):
            client.log_param(run.run_id, key, value)
        return client, run.run_id

    def log(self, run: Any, values: dict[str, float], epoch: int) -> None:
        client, identity = run
        for name, value in values.items():
            client.log_metric(identity, name, value, step=epoch)

    def close(self, run: Any) -> None:
        client, identity = run
        client.set_terminated(identity)

    def _client(self) -> Any:
        from mlflow.tracking import MlflowClient

        self.folder.mkdir(parents=True, exist_ok=True)
        return MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{self.folder}/mlflow.db")


KINDS: dict[str, type[Curves]] = {"tensorboard": TensorBoard, "wandb": Wandb, "mlflow": MLflow}


def run_name(study: str, task: Task) -> str:
    what = "candidate" if task.stage == "search" else f"seed{task.config.seed}"
    return f"{study}/{task.label}-{what}-{task.trial[:8]}"


def curve_values(result: Mapping[str, Any]) -> dict[str, float]:
    """What the training loop reported, without Tune's own book-keeping."""
    names = ("learning_rate", "train_loss", "train_margin")
    return {
        name: value
        for name, value in result.items()
        if isinstance(value, int | float) and (name in names or name.endswith("_accuracy"))
    }


def callbacks(names: Sequence[str], study: Study, store: Store) -> list[Callback]:
    """What is unknown or not installed is refused before anything starts."""
    check_loggers(names)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    for name in names:
        try:
            importlib.import_module(KINDS[name].package)
        except ImportError:
            raise not_installed(name) from None
    return [KINDS[name](store.local("") or Path.cwd(), study.name) for name in names]
