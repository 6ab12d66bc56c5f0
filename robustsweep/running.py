"""Running a study from Python: what the store holds already is not computed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robustsweep.frames import Frames, load
from sweep.engine import run_study
from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.work.options import RunOptions


def run(
    study: str | Path = "digits",
    *,
    store: str | Path = "store",
    settings: Mapping[str, Any] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    plugins: Sequence[str | Path] = (),
    data_dir: str | Path = "data",
    address: str | None = None,
    out: str | Path | None = None,
    retry_failed: bool = False,
    progress: bool = False,
) -> Frames:
    """Trains, searches and evaluates what is missing of a study, a shipped one's name or a YAML file, and loads it.

    `settings` are those of --set: {"train.epochs": 2}. `out` is a folder for tables and figures; none are written
    without it. A mistake in the study is a UserError; a training that fails is a row of `cells` with that status.
    """
    chosen = Study.load(
        study,
        overrides=[f"{key}={_text(value)}" for key, value in (settings or {}).items()],
        methods=methods,
        seeds=seeds,
        plugins=plugins,
    )
    opened = open_store(store)
    options = RunOptions(
        address=address,
        data_dir=str(data_dir),
        yes=True,
        progress=progress,
        retry_failed=retry_failed,
        out=None if out is None else Path(out),
        loggers=(),
    )
    run_study(chosen, opened, options)
    return load(opened, [chosen.name])


def _text(value: Any) -> str:
    """As --set would be typed."""
    return {True: "true", False: "false", None: "null"}[value] if isinstance(value, bool | None) else str(value)
