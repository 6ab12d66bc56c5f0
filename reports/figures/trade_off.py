"""Clean against robust accuracy with lines of equal sum (the paper's Figure 6)."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from reports.figures import style
from reports.figures.view import MethodView, Missing, StudyView

# Where a name may stand around its point, tried in turn: offset in points, alignment.
PLACES = (
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
)

LEADER = {"arrowstyle": "-", "color": style.GREY, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 4}


def draw(study: StudyView) -> tuple[Figure, str]:
    points = []
    for method in study.adversarial_methods:
        clean, robust = method.accuracies("clean"), method.accuracies("autoattack")
        if clean.size and robust.size:
            points.append((method, clean, robust))
    if not points:
        raise Missing("no method was evaluated with AutoAttack", study.command())
    points.sort(key=lambda point: -point[2].mean())  # the upper of two close points takes the upper place for its name
    figure, axes = style.canvas(6.4, 4.6)
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
    _equal_sums(axis, points)
    axis.set_xlabel("clean accuracy (%)")
    axis.set_ylabel("robust accuracy, AutoAttack (%)")
    _place_names(figure, axis, points)
    caption = (
        f"Robust accuracy is that under AutoAttack, ε = {study.epsilon}, {study.checkpoint_name}; "
        "mean and one standard deviation over seeds. Along a dashed line the sum of both is constant."
    )
    return figure, caption


def _equal_sums(axis: Axes, points: list[tuple[MethodView, np.ndarray, np.ndarray]]) -> None:
    """Lines through SOVR and its combinations as in the paper; through the largest sum where there is none."""
    sums = [float(clean.mean() + robust.mean()) for _, clean, robust in points]
    through: dict[str, float] = {}
    for (method, _, _), total in zip(points, sums, strict=True):
        if method.base == "sovr":
            through[method.method] = max(total, through.get(method.method, total))
    low, high = axis.get_xlim()
    bottom, top = axis.get_ylim()
    drawn: list[float] = []
    for total in sorted(through.values() or [max(sums)], reverse=True):
        # Nearly equal sums would be one thick line with two numbers on top of each other.
        if any(abs(total - other) < 0.04 * (top - bottom) for other in drawn):
            continue
        drawn.append(total)
        axis.plot([low, high], [total - low, total - high], color=style.GREY, linestyle="--", linewidth=0.9, zorder=0)
        x = min(high, total - bottom - 0.06 * (top - bottom))
        axis.annotate(
            f"sum {total:.1f}",
            (x, total - x),
            (-4, 0),
            textcoords="offset points",
            fontsize=7.5,
            color="#444444",
            ha="right",
            va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )
    axis.set_xlim(low, high)
    axis.set_ylim(bottom, top)


def _place_names(figure: Figure, axis: Axes, points: list[tuple[MethodView, np.ndarray, np.ndarray]]) -> None:
    """Each name at the first place that touches neither a marker nor another name."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the places below hold only while the axes stay where they are
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    centres = axis.transData.transform([(clean.mean(), robust.mean()) for _, clean, robust in points])
    taken: list[Bbox] = []
    for method, clean, robust in points:
        for last, (offset, horizontal, vertical) in enumerate(PLACES, start=1):
            text = axis.annotate(
                method.name,
                (clean.mean(), robust.mean()),
                offset,
                textcoords="offset points",
                ha=horizontal,
                va=vertical,
                fontsize=8.5,
                arrowprops=LEADER if abs(offset[0]) > 10 else None,
            )
            box = text.get_window_extent(renderer).expanded(1.04, 1.1)
            on_marker = any(box.x0 - 5 < x < box.x1 + 5 and box.y0 - 5 < y < box.y1 + 5 for x, y in centres)
            if last == len(PLACES) or not (on_marker or any(box.overlaps(other) for other in taken)):
                taken.append(box)
                break
            text.remove()
