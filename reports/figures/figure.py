"""What a figure's file declares of itself: its function `figures` gives these for a paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure


@dataclass(frozen=True)
class ReportFigure:
    """`draw` gives the picture and its caption, from a study's view if it needs one, or raises `Missing`."""

    place: int  # on the page, among the others
    name: str  # of its files
    title: str
    draw: Callable[..., tuple[Figure, str]]
    needs_study: bool = True
