"""Runs of a study from Python. Stored results are not computed again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robustsweep.frames import Frames, load
from sweep.commands import option_words, spelled, store_words
from sweep.engine.checks import check_engine
from sweep.engine.options import RunOptions
from sweep.engine.run import run_study
from sweep.store.opening import open_store
from sweep.studies.options import StudyOptions


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
    local: bool = False,
    out: str | Path | None = None,
    retry_failed: bool = False,
    progress: bool = False,
) -> Frames:
    """Train, search and evaluate whatever a study lacks, and load its results.

    Args:
        study: The name of a shipped study, or a YAML file.
        settings: Changes to the study, as for --set: {"train.epochs": 2}.
        local: Run trials one after the other in this process, without Ray.
        out: A folder for tables and figures; by default, none are written.

    Returns:
        The results. A training that fails is a row of `cells` with that status.

    Raises:
        UserError: For a mistake in the study or the options.
    """
    asked = StudyOptions(
        str(study),
        [f"{key}={_text(value)}" for key, value in (settings or {}).items()],
        None if methods is None else ",".join(methods),
        None if seeds is None else ",".join(map(str, seeds)),
        [str(plugin) for plugin in plugins],
        str(store),
    )
    chosen, opened = asked.load(), open_store(store)
    places = option_words(data_dir=None if str(data_dir) == "data" else str(data_dir), address=address)
    places += ["--local"] if local else []
    options = RunOptions(
        address=address,
        local=local,
        data_dir=str(data_dir),
        yes=True,
        progress=progress,
        retry_failed=retry_failed,
        out=None if out is None else Path(out),
        loggers=(),
        command=spelled("sweep.run", *asked.words(), *places, *store_words(opened.uri)),
    )
    check_engine(options)
    trials = run_study(chosen, opened, options).trials
    return Frames(load(opened, [chosen.name]).data, trials)


def _text(value: Any) -> str:
    """Return the value as it would be typed after --set."""
    return str(value) if isinstance(value, str | Path) else json.dumps(value)
