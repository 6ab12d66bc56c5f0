"""Weights & Biases."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.air.integrations.wandb import WandbLoggerCallback

from sweep.engine.loggers.runs import Run, RunLogger

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

UPLOAD_SECONDS = 120.0  # a run that has ended may take this long to reach W&B
STOP_SECONDS = 3.0  # the same where the user waits for an end
IDLE_SECONDS, IDLE_RUNS = 30.0, 8  # a run stays open for results that may follow


class Wandb(RunLogger, WandbLoggerCallback):
    """The project is robustsweep unless WANDB_PROJECT says otherwise; local files are in `<store>/wandb`.

    Ray's logger starts a process for each run, and nothing else can write to the run until that has uploaded it. So the
    process is kept for a while: attacks end soon after each other.
    """

    package = "wandb"

    def __init__(self, folder: Path, study: str) -> None:
        # The process that writes may run in a cluster that does not have this process's environment.
        variables = {name: os.environ.get(f"WANDB_{name.upper()}") for name in ("mode", "entity", "dir")}
        settings = {"silent": True, "console": "off", "x_disable_stats": True, "disable_git": True}
        if "WANDB_BASE_URL" in os.environ:
            settings["base_url"] = os.environ["WANDB_BASE_URL"]
        super().__init__(
            folder,
            study,
            project=os.environ.get("WANDB_PROJECT", "robustsweep"),
            group=study,
            resume="allow",
            settings=settings,
            **{name: value for name, value in variables.items() if value},
        )
        self._idle: dict[Run, float] = {}  # open, though no Tune trial writes to it now; since when

    def log_trial_start(self, run: Any) -> None:
        if self._idle.pop(run, None) is not None:
            return
        upload = self._trial_logging_futures.get(run)
        if upload is not None:
            ray.wait([upload], timeout=UPLOAD_SECONDS)
            self._cleanup_logging_actors()
        run.init_local_path()
        super().log_trial_start(run)

    def log_results(self, run: Any, results: dict[str, float]) -> None:
        self.log_trial_result(0, run, results)  # without an epoch: W&B takes one row of each

    def log_trial_end(self, run: Any, failed: bool = False) -> None:
        self._idle[run] = time.monotonic()

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        self._try(self._end_idle_runs)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        was_stopped = bool(self._open)
        super().on_experiment_end(trials, **info)
        self._try(lambda: self._end_idle_runs(most=0))
        self._try(lambda: self._raise_faults(STOP_SECONDS if was_stopped else UPLOAD_SECONDS))
        self._try(lambda: self._cleanup_logging_actors(kill_on_timeout=True))

    def _end_idle_runs(self, most: int = IDLE_RUNS) -> None:
        """End the processes that nothing was sent to for a while."""
        self._raise_faults()
        self._cleanup_logging_actors()
        for run, since in list[tuple[Any, float]](self._idle.items()):
            if len(self._idle) > most or time.monotonic() - since > IDLE_SECONDS:
                del self._idle[run]
                super().log_trial_end(run)

    def _raise_faults(self, seconds: float = 0.0) -> None:
        """Raise what a process has failed with; wait this long for those that have not ended."""
        uploads = list(self._trial_logging_futures.values())
        ray.get(ray.wait(uploads, num_returns=len(uploads), timeout=seconds)[0])
