"""Bars of robust accuracy under PGD-20 and each component of AutoAttack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.view import MethodView, MissingResults, ReportFigure, StudyView

Reader = Callable[[MethodView, str], np.ndarray]


class Bar(NamedTuple):
    """One kind of bar in a group."""

    measure: str
    legend: str
    color: str
    hatch: str


Bars = Sequence[Bar]

ATTACKS: Bars = (
    Bar("pgd-20", "PGD-20", style.FAINT, ""),
    Bar("apgd-ce", "APGD-CE", style.SKY, "//"),
    Bar("apgd-t", "APGD-T", style.BLUE, ""),
    Bar("fab-t", "FAB-T", style.GREEN, "\\\\"),
    Bar("square", "Square", style.ORANGE, "xx"),
    Bar("autoattack", "AutoAttack", style.VERMILLION, ".."),
)
COMPONENTS = ("apgd-ce", "apgd-t", "fab-t", "square")
PER_ROW = 7


def draw(study: StudyView) -> tuple[Figure, str]:
    run_alone = any(method.accuracies(name).size for method in study.methods for name in COMPONENTS)

    def read(method: MethodView, attack: str) -> np.ndarray:
        return method.accuracies(attack) if run_alone or attack not in COMPONENTS else method.phase_accuracies(attack)

    methods = [method for method in study.methods if any(read(method, bar.measure).size for bar in ATTACKS)]
    bars = [bar for bar in ATTACKS if any(read(method, bar.measure).size for method in methods)]
    if not any(bar.measure in COMPONENTS for bar in bars):
        raise MissingResults(
            "no evaluation with AutoAttack or its components", study.data.suite_command(study.name, "components")
        )
    rows, columns = style.grid_shape(len(methods), PER_ROW)
    figure, axes = style.canvas(style.width(0.6 + 1.3 * columns), 0.5 + 1.9 * rows, rows, 1, sharey=True)
    for row, axis in enumerate(axes[:, 0]):
        grouped_bars(axis, methods[row * columns : (row + 1) * columns], bars, read)
        axis.set_xlim(-0.55, columns - 0.45)
        axis.set_ylabel("robust accuracy (%)")
    axes[0, 0].set_ylim(bottom=0)
    style.legend_above(figure, *axes[0, 0].get_legend_handles_labels())
    how = (
        "each component run alone on all images"
        if run_alone
        else "the accuracy remaining after each phase of AutoAttack in turn"
    )
    caption = (
        f"Robust accuracy against PGD-20 and AutoAttack's components ({how}), {study.radius}, "
        f"{study.checkpoint_name}. Bars are means over seeds, whiskers one standard deviation."
    )
    return figure, caption


def grouped_bars(axis: Axes, methods: Sequence[MethodView], bars: Bars, read: Reader) -> None:
    """Draw one bar of each kind per method: the mean over seeds, with one standard deviation."""
    width = 0.84 / len(bars)
    for index, (measure, legend, color, hatch) in enumerate(bars):
        values = [read(method, measure) for method in methods]
        axis.bar(
            np.arange(len(methods)) + (index - (len(bars) - 1) / 2) * width,
            [style.mean(value) for value in values],
            width,
            yerr=[style.deviation(value) for value in values],
            label=legend,
            color=color,
            hatch=hatch,
            edgecolor="#333333",
            linewidth=0.5,
            error_kw={"elinewidth": 0.8, "ecolor": "#111111"},
        )
    axis.set_xticks(np.arange(len(methods)), [style.wrapped(method.name) for method in methods])
    axis.grid(axis="x", visible=False)


FIGURES = [ReportFigure(20, "components", "Components of AutoAttack", draw)]
