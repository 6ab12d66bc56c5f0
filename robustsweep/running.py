"""Running a study from Python: what the store holds already is not computed again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robustsweep.frames import Frames, load
from sweep.commands import option_words, spelled, store_words
from sweep.engine import run_study
from sweep.store.opening import open_store
from sweep.studies.options import StudyOptions
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
    options = RunOptions(
        address=address,
        data_dir=str(data_dir),
        yes=True,
        progress=progress,
        retry_failed=retry_failed,
        out=None if out is None else Path(out),
        loggers=(),
        command=spelled("sweep.run", *asked.words(), *places, *store_words(opened.uri)),
    )
    run_study(chosen, opened, options)
    return load(opened, [chosen.name])


def _text(value: Any) -> str:
    """As --set would be typed."""
    return str(value) if isinstance(value, str | Path) else json.dumps(value)
