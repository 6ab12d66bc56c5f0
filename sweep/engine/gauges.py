"""The state of a sweep as gauges of Ray's metrics, for Prometheus and docs/grafana_dashboard.json.

Ray exports them under these names with the prefix `ray_`. Without ray[default] nothing collects them, which is
harmless.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ray.tune.callback import Callback
from ray.util.metrics import Gauge

from sweep.engine.searcher import Unsaved
from sweep.work.queue import Queue

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

TAGS = ("study", "column", "seed", "stage", "title")
OF_A_TRIAL = {
    "robustsweep_epoch": "Epochs that a training has finished.",
    "robustsweep_epoch_seconds": "Seconds that the latest epoch took, evaluation included.",
    "robustsweep_robust_accuracy": "Accuracy under attack: of the latest epoch, or of an attack that has ended.",
    "robustsweep_clean_accuracy": "Accuracy on unperturbed images: of the latest epoch, or of a clean evaluation.",
}
TRIALS, TRIALS_HELP = "robustsweep_trials", "Trials of a study by state: waiting, running, done or failed."
LOOK_SECONDS = 1.0  # trials are counted at most this often


class Gauges(Unsaved, Callback):
    """A callback that sets the gauges from the reports of Tune's trials and from the sweep's queue."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._gauges = {name: Gauge(name, text, TAGS) for name, text in OF_A_TRIAL.items()}
        self._trials = Gauge(TRIALS, TRIALS_HELP, ("study", "state"))
        self._looked = -LOOK_SECONDS

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        tags = {name: ascii_text(trial.config[name]) for name in TAGS}
        for name, value in gauge_values(trial.config, result).items():
            self._gauges[name].set(value, tags=tags)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        study = ascii_text(self.queue.study.name)
        for state, count in trial_counts(self.queue).items():
            self._trials.set(count, tags={"study": study, "state": state})


def ascii_text(value: object) -> str:
    """Return a tag's value in ASCII, the only characters that Ray's metrics accept."""
    return str(value).replace("·", "-").encode("ascii", "replace").decode()


def gauge_values(config: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, float]:
    """Return the gauge values in a report of a Tune trial, by the gauge's name."""
    if "epoch" in result:
        split = "validation" if "validation_clean_accuracy" in result else "test"
        values = {
            "robustsweep_epoch": result["epoch"] + 1,
            "robustsweep_epoch_seconds": result.get("seconds"),
            "robustsweep_robust_accuracy": result.get(f"{split}_pgd_accuracy"),
            "robustsweep_clean_accuracy": result.get(f"{split}_clean_accuracy"),
        }
    elif config["stage"] == "attack" and "accuracy" in result:
        kind = "clean" if config["attack"]["kind"] == "clean" else "robust"
        values = {f"robustsweep_{kind}_accuracy": result["accuracy"]}
    else:
        return {}
    return {name: float(value) for name, value in values.items() if value is not None}


def trial_counts(queue: Queue) -> dict[str, int]:
    """Return how many trials of a sweep are in each state. Attacks count as waiting once their model is trained."""
    running = len(queue.running)
    return {
        "waiting": len(queue.items) - running,
        "running": running,
        "done": sum(queue.done.values()),
        "failed": len(queue.failed),
    }
