"""The setup of Ray Tune for the trials of a study."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.callback import Callback
from ray.tune.trainable import wrap_function

from sweep.cluster.compat import SilentProgress, idle_actors_end, show_title
from sweep.cluster.resources import resources_of
from sweep.engine.searcher import StopWhenOver, StudySearcher, Watch
from sweep.work.pieces import Metrics, Setting
from sweep.work.trainable import Report, trainable

Trainer = Callable[[Mapping[str, Any], Setting, Report, str], Metrics]

IDLE_SECONDS = 10.0  # a process that finds no further piece ends, on a cluster that scales: its node may go
ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # a file per format and trial; `FinalResults` writes one line per trial
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # attacks report no epoch
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # our handler stops cleanly even while Tune waits for work
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # Tune's own state is never restored; the store is what counts
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_MAX_PENDING_TRIALS_PG": "100000",  # the searcher limits how many wait
    "TUNE_RESULT_BUFFER_LENGTH": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
}


def fit(
    searcher: StudySearcher,
    setting: Setting,
    watch: Watch,
    callbacks: list[Callback],
    scratch: Path,
    function: Trainer = trainable,
) -> tune.ResultGrid:
    """Run every missing trial of a study. The result has one row per trial."""
    os.environ.update(ENVIRONMENT)
    for name in ("ray.tune", "ray.train"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    trial = tune.with_resources(tune_trainable(setting, function), resources_of)
    trial.__name__ = trial.__qualname__ = "StudyTrial"  # the actors' class in Ray's dashboard
    tuner = tune.Tuner(
        trial,
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            num_samples=-1,
            reuse_actors=True,
            trial_name_creator=lambda trial: str(trial.config["title"]),
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        ),
        run_config=tune.RunConfig(
            name=setting.study,
            storage_path=str(scratch),
            verbose=0,
            stop=StopWhenOver(searcher),
            failure_config=tune.FailureConfig(max_failures=0),  # a failed piece is suggested again: see supervisor.py
            callbacks=[watch, FinalResults(), SilentProgress(), *callbacks],
        ),
    )
    with _working_in(scratch), idle_actors_end(IDLE_SECONDS) if searcher.scales else contextlib.nullcontext():
        results = tuner.fit()
    if searcher.fault is not None:
        raise searcher.fault
    return results


def tune_trainable(setting: Setting, function: Trainer = trainable) -> type[tune.Trainable]:
    """Return the trainer function as a Tune trainable. Its trials bear their piece's title in Ray's tools."""

    def piece(config: dict[str, Any]) -> Metrics:
        return function(config, setting, RayReport(config["title"]), ray.get_runtime_context().get_node_id())

    class StudyTrial(wrap_function(piece)):  # type: ignore[misc]
        def __repr__(self) -> str:
            return str(self.config["title"] if self.config["own_process"] else f"{self.config['study']} worker")

    return StudyTrial


class RayReport:
    """A reporter to Tune. Its first report includes the actor's handle, with which the driver can end a hung actor."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._first: Metrics = {"actor": ray.get_runtime_context().current_actor}
        show_title(title)
        print(f":actor_name:{title}", flush=True)  # Ray prefixes the following lines with it

    def __call__(self, metrics: Metrics) -> None:
        tune.report({**metrics, **self._first})
        self._first = {}
        show_title(self.title)  # Ray has replaced it in the meantime


class FinalResults(Callback):
    """A callback that writes the last result of every trial to the file that `ResultGrid.get_dataframe` reads."""

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._write(trial, trial.last_result)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        result = trial.last_result or {}
        self._write(trial, {**result, "state": "failed", "reason": result.get("failure", {}).get("reason")})

    def _write(self, trial: Any, result: Metrics) -> None:
        folder = Path(trial.local_path)
        folder.mkdir(parents=True, exist_ok=True)
        numbers = {name: value for name, value in result.items() if not isinstance(value, dict | list)}
        (folder / "result.json").write_text(json.dumps(numbers, default=str) + "\n")


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """Change the working directory for the block.

    Tune needs an existing one, and a Ray job's folder disappears when another node of its machine unpacks it again.
    """
    here = os.open(".", os.O_RDONLY)
    os.chdir(folder)
    try:
        yield
    finally:
        os.fchdir(here)
        os.close(here)
