"""Papers whose numbers and claims ours are compared with: one folder each, found by name or path."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from reports.papers.paper import Paper
from sweep.errors import UserError
from sweep.studies import nearest

FOLDER = Path(__file__).parent


def shipped() -> list[str]:
    return sorted(path.parent.name for path in FOLDER.glob("*/paper.yaml"))


@cache
def load(name_or_path: str | Path | None = None) -> Paper:
    """A shipped paper by name, a folder by path; without either the shipped one that calls itself the default."""
    if name_or_path is None:
        return next(paper for paper in map(load, shipped()) if paper.default)
    for folder in (FOLDER / name_or_path, Path(name_or_path)):
        if (folder / "paper.yaml").is_file():
            try:
                paper = Paper.read(folder)
                _ = paper.studies  # every cell is read here once, so that a fault in one is found now
                return paper
            except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as fault:
                raise UserError(f"paper {folder}: {type(fault).__name__}: {fault}") from fault
    known = shipped()
    text = str(name_or_path)
    raise UserError(f"no paper is named {text!r}{nearest(text, known)} known: {', '.join(known)}, or a folder's path")
