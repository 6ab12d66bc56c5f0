"""What is common to all loggers: the run that a Tune trial belongs to, and what is written of it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ray.air.constants import TRAINING_ITERATION
from ray.tune.logger import LoggerCallback

from sweep.engine.searcher import Unsaved
from sweep.store import layout

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

CURVES = ("learning_rate", "train_loss", "train_margin", "seconds")  # and all accuracies
RESULTS = ("robust_accuracy", "clean_accuracy", "wall_seconds")  # of a training that has ended
# Keys of a Tune trial's config that say where and how a piece is computed, or which piece of a training it is.
NO_RECIPE = frozenset(
    (
        *("title", "stage", "cut_offs", "attack", "checkpoint", "part", "parts", "evaluation", "diagnosis"),
        *("attempt", "owner", "dead_owners", "bad_nodes", "avoided_nodes", "gpu_bytes", "resources", "own_process"),
        "hold_seconds",
    )
)


@dataclass(frozen=True)
class Run:
    """A training with its attacks, which Ray's loggers take for a Tune trial. Its id is the same in every sweep."""

    trial_id: str
    name: str
    experiment_dir_name: str
    local_path: str
    config: dict[str, Any] = field(compare=False)

    def __str__(self) -> str:
        return self.name

    @property
    def evaluated_params(self) -> dict[str, Any]:
        return self.config

    def init_local_path(self) -> None:
        Path(self.local_path).mkdir(parents=True, exist_ok=True)


class RunLogger(Unsaved, LoggerCallback):
    """Tells one of Ray's loggers what to write, of runs instead of Tune trials. A logger that fails is switched off: no
    curve is worth a sweep."""

    package: ClassVar[str]

    def __init__(self, folder: Path, study: str, **options: Any) -> None:
        super().__init__(**options)
        self.folder, self.study, self.is_off = folder, study, False
        self._open: dict[str, Run] = {}  # by the Tune trial's id

    def path(self, name: str) -> Path:
        """Return the folder of a run."""
        return self.folder

    def setup(self, *arguments: Any, **info: Any) -> None:
        self._try(lambda: super(RunLogger, self).setup(*arguments, **info))

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Open nothing yet: the piece may be done already, or its node may refuse it."""

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        rows = [curve_row(row) for row in (*result.get("earlier", ()), result) if "epoch" in row]
        results = final_results(trial.config, result)
        if rows or results:
            self._try(lambda: self._write(iteration, trial, rows, results))

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._try(lambda: self._end(trial.trial_id, failed=False))

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._try(lambda: self._end(trial.trial_id, failed=True))

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        for trial in list(self._open):  # they were stopped with the sweep, of which Tune tells nobody
            self._try(functools.partial(self._end, trial, failed=True))

    def log_results(self, run: Any, results: dict[str, float]) -> None:
        """Add the results of a training or of an attack to its run."""
        epochs = run.config["settings"]["recipe"]["epochs"]
        self.log_trial_result(0, run, {**results, TRAINING_ITERATION: epochs - 1})

    def _write(self, iteration: int, trial: Trial, rows: Sequence[dict[str, Any]], results: dict[str, float]) -> None:
        run: Any = run_of(trial.config, self.path)  # Ray's types know of trials only
        if run not in self._open.values():
            self.log_trial_start(run)
        self._open[trial.trial_id] = run
        for row in rows:
            self.log_trial_result(iteration, run, row)
        if results:
            self.log_results(run, results)

    def _end(self, trial: str, failed: bool) -> None:
        run: Any = self._open.pop(trial, None)
        if run is not None and run not in self._open.values():
            self.log_trial_end(run, failed=failed)

    def _try(self, act: Callable[[], object]) -> None:
        if self.is_off:
            return
        try:
            act()
        except Exception as error:
            self.is_off = True
            lines = str(error).strip().splitlines() or [type(error).__name__]
            print(f"{self.package} is switched off: {lines[-1]}", file=sys.stderr, flush=True)


def run_of(config: Mapping[str, Any], path: Callable[[str], Path]) -> Run:
    """Return the run that a Tune trial with this config belongs to."""
    study, column, trial = config["study"], config["column"], config["trial"]
    number = f"candidate{config['candidate']}" if "candidate" in config else f"seed{config['seed']}"
    recipe = {key: value for key, value in config.items() if key not in NO_RECIPE}
    name = f"{column}-{number}-{trial[:8]}"
    return Run(f"{layout.short(trial)}-{study}"[:64], name, study, str(path(name)), recipe)


def curve_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the training loop reported of an epoch, without what Tune adds to it."""
    names = [name for name in row if name in CURVES or name.endswith("_accuracy")]
    return {**{name: row[name] for name in names}, TRAINING_ITERATION: row["epoch"]}


def final_results(config: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, float]:
    """Return the accuracies that a training or an attack ends with, none while it runs."""
    if "state" not in result:
        return {}
    if config["stage"] == "attack" and "accuracy" in result:
        return {attack_name(config): result["accuracy"]}
    if config["stage"] in ("search", "train"):
        return {name: result[name] for name in RESULTS if name in result}
    return {}


def attack_name(config: Mapping[str, Any]) -> str:
    """Return the name of an attack's accuracy: checkpoint, attack, and its radius unless that is the training's."""
    attack, trained = config["attack"], config["settings"]["recipe"]["attack"]
    is_usual = attack["epsilon"] == "0" or all(attack[name] == trained[name] for name in ("norm", "epsilon"))
    radius = "" if is_usual else f" {attack['norm']} {attack['epsilon'].replace('/', '_')}"
    return f"{config['checkpoint']}/{attack['name']}{radius}"
