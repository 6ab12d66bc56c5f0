"""MLflow."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from ray.air.integrations.mlflow import MLflowLoggerCallback

from sweep.engine.loggers.runs import RunLogger


class MLflow(RunLogger, MLflowLoggerCallback):
    """At MLFLOW_TRACKING_URI, or in `<store>/mlflow.db`. The experiment is the study."""

    package = "mlflow"

    def __init__(self, folder: Path, study: str) -> None:
        address = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder / 'mlflow.db'}"
        super().__init__(folder, study, tracking_uri=address, experiment_name=study)
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)  # they tell how they make a database

    def log_trial_start(self, run: Any) -> None:
        """Continue the run of an earlier sweep or attempt. MLflow chooses ids by itself, so a tag names it."""
        from mlflow.tracking import MlflowClient

        client, experiment = MlflowClient(self.tracking_uri), self.mlflow_util.experiment_id
        stored = client.search_runs([experiment], f"tags.run = '{run.trial_id}'", max_results=1)
        if stored:
            self._trial_runs[run] = stored[0].info.run_id
            client.update_run(stored[0].info.run_id, status="RUNNING")
        else:
            self.tags = {"run": run.trial_id}
            super().log_trial_start(run)
