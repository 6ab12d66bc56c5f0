"""Robust overfitting: best minus last checkpoint, method by method, with its interval and every seed."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.view import MethodView, Missing, ReportFigure, StudyView
from reports.overfitting import Decline, declines
from reports.statistics import interval


def draw(study: StudyView) -> tuple[Figure, str]:
    found = declines(study.results, study.name)
    ways = [f"{one.attack} on {one.images}" for one in found]
    caption = (
        f"What robust accuracy fell by from the best checkpoint to the last epoch ({'; '.join(ways)}). "
        "Dots are seeds, diamonds their means with 95 % intervals (Student's t), n is the number of seeds; right of "
        "zero the last epoch is worse."
    )
    if any(one.flattered for one in found):
        caption += " The best epoch was chosen on the very images measured here, so a part of it is chance."
    return _draw(study, found, style.FULL if len(found) > 1 else style.HALF, len(found)), caption


def draw_narrow(study: StudyView) -> Figure:
    return _draw(study, declines(study.results, study.name), style.NARROW, 1)


def _draw(study: StudyView, found: list[Decline], width: float, columns: int) -> Figure:
    if not found:
        raise Missing("no training has numbers of both its best and its last checkpoint", study.command())
    methods = [one for one in study.adversarial_methods if any(one.label in decline.pairs for decline in found)]
    if not methods:
        raise Missing("no adversarial training has ended", study.command())
    # The methods that lost most stand at the top, in both panels.
    methods.sort(key=lambda one: _mean(found[-1], one))
    rows = -(-len(found) // columns)
    figure, axes = style.canvas(width, rows * (0.8 + 0.3 * len(methods)), rows, columns, sharey=True)
    for axis, decline in zip(axes.ravel(), found, strict=True):
        _panel(axis, decline, methods, style.wrapped if width < style.HALF else str)
    return figure


def _mean(decline: Decline, method: MethodView) -> float:
    sample = decline.sample(method.label)
    return float("-inf") if sample is None else sample.mean


def _panel(axis: Axes, decline: Decline, methods: list[MethodView], written: Callable[[str], str]) -> None:
    names = []
    for place, method in enumerate(methods):
        sample = decline.sample(method.label)
        names.append(f"{written(method.name)} (n={0 if sample is None else sample.n})")
        if sample is None:
            continue
        axis.plot(sample.values, [place] * sample.n, "o", markersize=3.5, color=style.GREY)
        bounds = interval(sample)
        reach = None if bounds is None else [[sample.mean - bounds[0]], [bounds[1] - sample.mean]]
        axis.errorbar(sample.mean, place, xerr=reach, fmt="D", markersize=6, color=style.VERMILLION)
    axis.axvline(0.0, color=style.BLACK, linewidth=0.8)
    axis.set_yticks(range(len(methods)), names)
    axis.set_ylim(-0.6, len(methods) - 0.4)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel("best − last (points)")
    axis.set_title(f"{decline.attack}, {decline.images}", loc="left")


FIGURES = [ReportFigure(45, "overfitting", "Robust overfitting", draw, narrow=draw_narrow)]
