"""Papers to compare our numbers with: one folder each, loaded by name or path."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from reports.papers.paper import Paper
from sweep.errors import UserError
from sweep.studies import nearest

FOLDER = Path(__file__).parent


def shipped() -> list[str]:
    """Return the names of the papers in this package."""
    return sorted(path.parent.name for path in FOLDER.glob("*/paper.yaml"))


@cache
def load(name_or_path: str | Path | None = None) -> Paper:
    """Load a shipped paper by name or a folder by path; without either, load the shipped default.

    Raises:
        UserError: If there is no such paper, or one of its files is invalid.
    """
    if name_or_path is None:
        return next(paper for paper in map(load, shipped()) if paper.default)
    for folder in (FOLDER / name_or_path, Path(name_or_path)):
        if (folder / "paper.yaml").is_file():
            try:
                paper = Paper.read(folder)
                _ = paper.studies  # reads every cell, so that an invalid one raises here
                return paper
            except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as fault:
                raise UserError(f"paper {folder}: {type(fault).__name__}: {fault}") from fault
    names = shipped()
    text = str(name_or_path)
    raise UserError(
        f"no paper is named {text!r}{nearest(text, names)} known: {', '.join(names)}; or give the path of a folder"
    )
