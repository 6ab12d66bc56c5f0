"""Effect of a hyperparameter on margin, generalisation gap and robust accuracy, as listed under a paper's `effects`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.view import MethodView, MissingResults, ReportFigure, StudyView
from reports.papers.paper import Effect, Paper

MARKERS = ("D", "o", "s", "^", "v", "P")


def margin(method: MethodView) -> np.ndarray:
    return method.values("margin", "last")


def gap(method: MethodView) -> np.ndarray:
    """Return robust accuracy on training images minus that on test images at the last epoch, in percentage points."""
    return 100 * method.summaries("generalization_gap", "last")


def robust(method: MethodView) -> np.ndarray:
    return method.accuracies("autoattack")


PANELS: tuple[tuple[str, str, Callable[[MethodView], np.ndarray]], ...] = (
    ("Logit margin loss", "mean on training x'", margin),
    ("Generalisation gap", "percentage points", gap),
    ("Robust accuracy", "AutoAttack (%)", robust),
)


@dataclass(frozen=True)
class Series:
    """Rows of one method that differ only in the varied hyperparameter, by its value."""

    name: str
    points: dict[float, MethodView]


def figures(paper: Paper) -> list[ReportFigure]:
    return [ReportFigure(80, effect.name, effect.title, partial(draw, effect)) for effect in paper.effects]


def draw(effect: Effect, study: StudyView) -> tuple[Figure, str]:
    caption = (
        f"{effect.caption} The generalisation gap is training minus test accuracy under PGD-20 at the last epoch. "
        f"Robust accuracy is measured at the {study.checkpoint_name}, {study.radius}. Means over seeds with one "
        "standard deviation."
    )
    return _panels(effect, study), caption


def _panels(effect: Effect, study: StudyView) -> Figure:
    paper = study.paper
    baseline = next((method for method in study.methods if method.method == paper.baseline), None)
    series = _series(effect, study)
    if effect.baseline_at is not None and baseline is not None:
        series = [Series(line.name, {effect.baseline_at: baseline, **line.points}) for line in series]
    if not series:
        raise MissingResults(
            f"no two rows of {paper.display(effect.methods[0])} differ only in {effect.varied}",
            study.data.run_command(effect.study),
        )
    figure, axes = style.canvas(style.FULL, 2.9, 1, 3)
    for axis, (title, unit, read) in zip(axes[0], PANELS, strict=True):
        drawn = False
        for index, line in enumerate(series):
            points = {x: values for x, method in sorted(line.points.items()) if (values := read(method)).size}
            if not points:
                continue
            drawn = True
            color = (style.VERMILLION, style.BLUE, style.PURPLE, style.GREEN, style.ORANGE, style.SKY)[index % 6]
            axis.errorbar(
                list(points),
                [values.mean() for values in points.values()],
                yerr=[style.deviation(values) for values in points.values()],
                color=color,
                marker=MARKERS[index % len(MARKERS)],
                linestyle=("-", "--", "-.", ":")[index % 4],
                elinewidth=0.8,
                label=line.name,
            )
        reference = read(baseline) if baseline is not None else np.array([])
        if reference.size and effect.baseline_at is None:
            name = paper.display(paper.baseline)
            axis.axhline(float(reference.mean()), color=style.GREY, linestyle="--", linewidth=1.0, label=name)
        if not drawn:
            axis.text(0.5, 0.5, "not recorded", transform=axis.transAxes, ha="center", color=style.GREY)
        axis.set_title(title, loc="left")
        axis.set_xlabel(effect.axis)
        axis.set_ylabel(unit)
    handles = {name: handle for axis in axes[0] for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    style.legend_above(figure, list(handles.values()), list(handles))
    return figure


def _series(effect: Effect, study: StudyView) -> list[Series]:
    groups: dict[tuple[str, str], dict[float, MethodView]] = {}
    for method in study.methods:
        varied, held = method.number(effect.varied), method.number(effect.held)
        if method.base in effect.methods and method.trials and varied is not None and held is not None:
            name = f"{method.base.upper()}{method.method.removeprefix(method.base).upper()}"
            groups.setdefault((name, f"{held:g}"), {}).setdefault(varied, method)
    symbol = study.paper.symbols.get(effect.held, effect.held)
    return [
        Series(f"{name}, {symbol} = {value}", points) for (name, value), points in groups.items() if len(points) >= 2
    ]
