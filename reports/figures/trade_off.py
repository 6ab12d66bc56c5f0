"""Robust against clean accuracy, with lines of equal sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from reports.figures import style
from reports.figures.view import MethodView, MissingResults, ReportFigure, StudyView

# Positions of a name around its point, tried in turn: offset in points, horizontal and vertical alignment.
OFFSETS = (
    ((7, 4), "left", "bottom"),
    ((7, -4), "left", "top"),
    ((-7, 4), "right", "bottom"),
    ((-7, -4), "right", "top"),
    ((0, 9), "center", "bottom"),
    ((0, -9), "center", "top"),
    ((16, 12), "left", "bottom"),
    ((16, -12), "left", "top"),
    ((-16, 12), "right", "bottom"),
    ((-16, -12), "right", "top"),
    ((16, 26), "left", "bottom"),
    ((16, -26), "left", "top"),
    ((-16, 26), "right", "bottom"),
    ((-16, -26), "right", "top"),
    ((28, 0), "left", "center"),
    ((-28, 0), "right", "center"),
)
# Positions of a sum along its line, the ends first, because the points crowd in the middle.
SHARES = (0.08, 0.93, 0.2, 0.3, 0.8, 0.4, 0.7, 0.5, 0.6)
APART = 0.15  # least distance between two lines, in inches
ON_LINE: dict[str, Any] = {
    "fontsize": 8,
    "color": "#444444",
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.5},
}
# The point, the offset in points, and the horizontal and vertical alignment of a label.
Position = tuple[tuple[float, float], tuple[int, int], str, str]

LEADER = {"arrowstyle": "-", "color": style.GREY, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 4}


class Point(NamedTuple):
    """The accuracies of one method in percent, by seed."""

    method: MethodView
    clean: np.ndarray
    robust: np.ndarray

    @property
    def sum(self) -> float:
        return float(self.clean.mean() + self.robust.mean())


def draw(study: StudyView) -> tuple[Figure, str]:
    caption = (
        f"Robust accuracy under AutoAttack against clean accuracy, {study.radius}, {study.checkpoint_name}: "
        "means over seeds with one standard deviation. The sum of both is constant along a dashed line."
    )
    return _draw([study], style.width(0.6 * len(study.adversarial_methods)), 4.4), caption


def draw_together(*studies: StudyView) -> tuple[Figure, str]:
    settings = [f"{study.title} ({study.radius}, {study.checkpoint_name})" for study in studies]
    caption = (
        "Robust accuracy under AutoAttack against clean accuracy: means over seeds with one standard deviation. "
        f"{'; '.join(settings)}. Hollow points are combinations. The sum of both is constant along a dashed line."
    )
    return _draw(studies, style.FULL, 6.2), caption


def _draw(studies: Sequence[StudyView], width: float, height: float) -> Figure:
    points = []
    for method in (method for study in studies for method in study.adversarial_methods):
        clean, robust = method.accuracies("clean"), method.accuracies("autoattack")
        if clean.size and robust.size:
            points.append(Point(method, clean, robust))
    if not points:
        raise MissingResults("no method was evaluated with AutoAttack", studies[0].command())
    # Of two close points, the upper one is labelled first and gets the upper position.
    points.sort(key=lambda point: -point.robust.mean())
    figure, axes = style.canvas(width, height)
    axis = axes[0, 0]
    for method, clean, robust in points:
        axis.errorbar(
            clean.mean(),
            robust.mean(),
            xerr=style.deviation(clean),
            yerr=style.deviation(robust),
            linestyle="none",
            markersize=8,
            elinewidth=0.9,
            **method.style.points(),
        )
    axis.margins(0.16)
    sums = _equal_sums(axis, points, studies[0].paper.proposed)
    axis.set_xlabel("clean accuracy (%)")
    axis.set_ylabel("robust accuracy, AutoAttack (%)")
    _place_names(figure, axis, points, sums)
    return figure


def _equal_sums(axis: Axes, points: list[Point], proposed: str) -> list[float]:
    """Draw lines through the proposed method and its combinations, or through the largest sum if there is none.

    Returns the sums of the lines drawn.
    """
    through: dict[str, float] = {}
    for point in points:
        if point.method.base == proposed:
            through[point.method.method] = max(point.sum, through.get(point.method.method, point.sum))
    low, high = axis.get_xlim()
    bottom, top = axis.get_ylim()
    near = APART * axis.figure.dpi / axis.bbox.height * (top - bottom)
    drawn: list[float] = []
    for total in sorted(through.values() or [max(point.sum for point in points)], reverse=True):
        # Nearly equal sums would give one thick line with overlapping numbers.
        if any(abs(total - drawn_sum) < near for drawn_sum in drawn):
            continue
        drawn.append(total)
        axis.plot([low, high], [total - low, total - high], color=style.GREY, linestyle="--", linewidth=0.9, zorder=0)
    axis.set_xlim(low, high)
    axis.set_ylim(bottom, top)
    return drawn


def _place_names(figure: Figure, axis: Axes, points: list[Point], sums: list[float]) -> None:
    """Label lines with their sums and points with their names, each where it covers the least."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the positions below require fixed axes
    centres = axis.transData.transform([(clean.mean(), robust.mean()) for _, clean, robust in points])
    occupied = [Bbox.from_bounds(x - 6, y - 6, 12, 12) for x, y in centres]
    (low, high), (bottom, top) = axis.get_xlim(), axis.get_ylim()
    for total in sums:
        ends = max(low, total - top), min(high, total - bottom)
        along = [ends[0] + share * (ends[1] - ends[0]) for share in SHARES]
        _put(
            axis, f"sum {total:.1f}", [((x, total - x), (0, 0), "center", "center") for x in along], occupied, **ON_LINE
        )
    for method, clean, robust in points:
        center = float(clean.mean()), float(robust.mean())
        _put(axis, method.name, [(center, *offset) for offset in OFFSETS], occupied)


def _put(axis: Axes, text: str, positions: list[Position], occupied: list[Bbox], **options: Any) -> None:
    """Write the text at the first free position, or at the one that covers the least, and add its box to `occupied`."""
    renderer = axis.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    tried = []
    for order, (point, offset, horizontal, vertical) in enumerate(positions):
        leader = LEADER if abs(offset[0]) > 10 else None
        label = axis.annotate(
            text, point, offset, textcoords="offset points", ha=horizontal, va=vertical, arrowprops=leader, **options
        )
        label.update_positions(renderer)
        # The extent of the text alone; that of the annotation includes the leader.
        box = Text.get_window_extent(label, renderer).expanded(1.04, 1.1)
        inside = axis.bbox.x0 <= box.x0 and box.x1 <= axis.bbox.x1 and axis.bbox.y0 <= box.y0 and box.y1 <= axis.bbox.y1
        covered = sum(_area(Bbox.intersection(box, obstacle)) for obstacle in occupied)
        label.set_visible(False)
        tried.append((not inside, covered, order, label, box))
        if inside and not covered:
            break
    *_, chosen, box = min(tried, key=lambda attempt: attempt[:3])
    chosen.set_visible(True)
    for *_, label, _ in tried:
        if label is not chosen:
            label.remove()
    occupied.append(box)


def _area(box: Bbox | None) -> float:
    return 0.0 if box is None else float(box.width * box.height)


FIGURES = [ReportFigure(30, "trade_off", "Clean against robust accuracy", draw, together=draw_together)]
