"""Curves of running trials for TensorBoard, Weights & Biases or MLflow, by Ray Tune's callbacks, once per epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray.tune.callback import Callback

from sweep.errors import UserError
from sweep.store import Store
from sweep.study import Study

NAMES = ("tensorboard", "wandb", "mlflow")


class TensorBoard(Callback):
    """One run per trial in `<store>/tensorboard`, named by method, seed and trial: open with `tensorboard --logdir`."""

    def __init__(self, folder: Path, study: str) -> None:
        self.folder, self.study = folder, study
        self._writers: dict[str, Any] = {}

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if "epoch" not in result:
            return
        if trial.trial_id not in self._writers:
            from tensorboardX import SummaryWriter

            name = run_name(self.study, trial.config["job"])
            self._writers[trial.trial_id] = SummaryWriter(str(self.folder / name), write_to_disk=True)
        writer = self._writers[trial.trial_id]
        for name, value in curve_values(result).items():
            writer.add_scalar(name, value, result["epoch"])
        writer.flush()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._close(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._close(trial)

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "study": self.study, "_writers": {}}

    def _close(self, trial: Any) -> None:
        writer = self._writers.pop(trial.trial_id, None)
        if writer is not None:
            writer.close()


def run_name(study: str, job: Mapping[str, Any]) -> str:
    what = "candidate" if job["kind"] == "candidate" else f"seed{job['seed']}"
    return f"{study}/{job['label']}-{what}-{job['trial'][:8]}"


def curve_values(result: Mapping[str, Any]) -> dict[str, float]:
    """What the training loop reported, without Tune's own book-keeping."""
    names = ("learning_rate", "train_loss", "train_margin")
    return {
        name: value
        for name, value in result.items()
        if isinstance(value, int | float) and (name in names or name.endswith("_accuracy"))
    }


def callbacks(names: Sequence[str], study: Study, store: Store) -> list[Callback]:
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise UserError(f"unknown logger {', '.join(unknown)}; known: {', '.join(NAMES)}")
    return [_make(name, study, store) for name in names]


def _make(name: str, study: Study, store: Store) -> Callback:
    if name == "tensorboard":
        return TensorBoard(store.local("tensorboard") or Path("tensorboard").absolute(), study.name)
    try:
        if name == "wandb":
            import wandb  # noqa: F401
            from ray.air.integrations.wandb import WandbLoggerCallback

            return WandbLoggerCallback(project="robustsweep", group=study.name, log_config=True)
        import mlflow  # noqa: F401
        from ray.air.integrations.mlflow import MLflowLoggerCallback

        return MLflowLoggerCallback(experiment_name=study.name)
    except ImportError:
        raise UserError(f"logger {name} is not installed: pip install 'robustsweep[{name}]'") from None
