"""Robust overfitting: accuracy at the best minus that at the last checkpoint, per method, with intervals and seeds."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.analysis.overfitting import Decline, declines
from reports.analysis.statistics import interval
from reports.figures import style
from reports.figures.view import MethodView, MissingResults, ReportFigure, StudyView


def draw(study: StudyView) -> tuple[Figure, str]:
    panels = declines(study.results, study.name)
    measures = [f"{decline.attack} on {decline.images}" for decline in panels]
    caption = (
        f"Drop in robust accuracy from the best checkpoint to the last epoch ({'; '.join(measures)}). "
        "Dots are seeds, diamonds their means with 95 % intervals (Student's t); n is the number of seeds. Positive "
        "values mean that the last epoch is worse."
    )
    if any(decline.flattered for decline in panels):
        caption += " The best epoch was selected on the images measured here, so a part of the drop is chance."
    return _draw(study, panels, style.FULL if len(panels) > 1 else style.HALF, len(panels)), caption


def draw_narrow(study: StudyView) -> Figure:
    return _draw(study, declines(study.results, study.name), style.NARROW, 1)


def _draw(study: StudyView, panels: list[Decline], width: float, columns: int) -> Figure:
    if not panels:
        raise MissingResults("no training was evaluated at both its best and its last checkpoint", study.command())
    methods = [
        method for method in study.adversarial_methods if any(method.label in decline.pairs for decline in panels)
    ]
    if not methods:
        raise MissingResults("no adversarial training has finished", study.command())
    # Largest drop at the top, in the same order in all panels.
    methods.sort(key=lambda method: _mean(panels[-1], method))
    rows = -(-len(panels) // columns)
    figure, axes = style.canvas(width, rows * (0.8 + 0.3 * len(methods)), rows, columns, sharey=True)
    for axis, decline in zip(axes.ravel(), panels, strict=True):
        _panel(axis, decline, methods, style.wrapped if width < style.HALF else str)
    return figure


def _mean(decline: Decline, method: MethodView) -> float:
    sample = decline.sample(method.label)
    return float("-inf") if sample is None else sample.mean


def _panel(axis: Axes, decline: Decline, methods: list[MethodView], display: Callable[[str], str]) -> None:
    names = []
    for y, method in enumerate(methods):
        sample = decline.sample(method.label)
        names.append(f"{display(method.name)} (n={0 if sample is None else sample.n})")
        if sample is None:
            continue
        axis.plot(sample.values, [y] * sample.n, "o", markersize=3.5, color=style.GREY)
        bounds = interval(sample)
        whiskers = None if bounds is None else [[sample.mean - bounds[0]], [bounds[1] - sample.mean]]
        axis.errorbar(sample.mean, y, xerr=whiskers, fmt="D", markersize=6, color=style.VERMILLION)
    axis.axvline(0.0, color=style.BLACK, linewidth=0.8)
    axis.set_yticks(range(len(methods)), names)
    axis.set_ylim(-0.6, len(methods) - 0.4)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel("best − last (points)")
    axis.set_title(f"{decline.attack}, {decline.images}", loc="left")


FIGURES = [ReportFigure(45, "overfitting", "Robust overfitting", draw, narrow=draw_narrow)]
