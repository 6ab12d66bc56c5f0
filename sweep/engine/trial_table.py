"""The table of a run's trials: one row per trial of Ray Tune, with its metrics."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sweep.store import layout

if TYPE_CHECKING:
    import pandas as pd

    from sweep.engine.local import Run
    from sweep.work.pieces import Metrics, Setting

# The first columns, and their names in Tune's table. Other metrics and the hyperparameters follow.
COLUMNS = {
    "title": "config/title",
    "study": "config/study",
    "column": "config/column",
    "seed": "config/seed",
    "stage": "config/stage",
    "candidate": "config/candidate",
    "attack": "config/attack/name",
    "norm": "config/attack/norm",
    "epsilon": "config/attack/epsilon",
    "checkpoint": "config/checkpoint",
    "attempt": "config/attempt",
    "state": "state",
    "reason": "reason",
    "accuracy": "accuracy",
    "robust_accuracy": "robust_accuracy",
    "clean_accuracy": "clean_accuracy",
    "epochs": "epochs",
    "images": "images",
    "seconds": "time_total_s",
    "host": "hostname",
    "trial": "config/trial",
}
WHOLE = ("seed", "candidate", "attempt", "epochs", "images")
# Tune's own bookkeeping.
TUNE = frozenset(
    (
        *("checkpoint_dir_name", "date", "done", "experiment_tag", "iterations_since_restore", "logdir", "node_ip"),
        *("pid", "time_since_restore", "time_this_iter_s", "timestamp", "training_iteration", "trial_id"),
    )
)
HYPERPARAMETER = "config/hyperparameters/"


def trial_table(tune: pd.DataFrame) -> pd.DataFrame:
    """Return Tune's table of the trials (`ResultGrid.get_dataframe()`), reduced to columns about the study.

    `accuracy` is that of an attack; `robust_accuracy` and `clean_accuracy` are those of a training's selected weights,
    measured during training. `state` is the state of the record, or `failed` or `stopped`; trials that left their piece
    to others have `taken`, `held` or `elsewhere`. `seconds` are those of the process. Each attempt has its own row.
    """
    import pandas as pd

    table = pd.DataFrame({name: tune.get(source) for name, source in COLUMNS.items()}, index=tune.index)
    table["state"] = table["state"].fillna("stopped")
    table["trial"] = [layout.short(name) for name in table["trial"]]
    table = table.astype(dict.fromkeys(WHOLE, "Int64"))
    for name in tune.columns:
        if name.startswith(HYPERPARAMETER):
            table[f"hyperparameter_{name.removeprefix(HYPERPARAMETER)}"] = tune[name]
        elif "/" not in name and name not in TUNE and name not in COLUMNS.values():
            table[name] = tune[name]
    return table


def table_of(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the same table for pieces that ran without Tune, from the rows that `recorded` has collected."""
    import pandas as pd

    return trial_table(pd.json_normalize([dict(row) for row in rows], sep="/"))


def recorded(run: Run, rows: list[dict[str, Any]]) -> Run:
    """Wrap `run` so that it appends each piece's result to `rows`, as Tune would store it."""

    def run_and_record(config: dict[str, object], setting: Setting, report: Callable[[Metrics], None]) -> Metrics:
        from sweep.work.failures import failure_of

        row: dict[str, Any] = {"config": config, "hostname": platform.node()}
        started = time.monotonic()
        try:
            metrics = run(config, setting, report)
            row |= metrics
            return metrics
        except Exception as error:
            row |= {"state": "failed", "reason": failure_of(error).reason}
            raise
        finally:
            rows.append({**row, "time_total_s": time.monotonic() - started})

    return run_and_record
