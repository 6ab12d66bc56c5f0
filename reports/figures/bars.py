"""Component bars: robust accuracy against PGD-20 and each part of AutoAttack."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.view import MethodView, Missing, ReportFigure, StudyView

Bars = Sequence[tuple[str, str, str, str]]  # what is read, its legend, colour, hatch
Reader = Callable[[MethodView, str], np.ndarray]

ATTACKS: Bars = (
    ("pgd-20", "PGD-20", style.FAINT, ""),
    ("apgd-ce", "APGD-CE", style.SKY, "//"),
    ("apgd-t", "APGD-T", style.BLUE, ""),
    ("fab-t", "FAB-T", style.GREEN, "\\\\"),
    ("square", "Square", style.ORANGE, "xx"),
    ("autoattack", "AutoAttack", style.VERMILLION, ".."),
)
COMPONENTS = ("apgd-ce", "apgd-t", "fab-t", "square")
PER_ROW = 7


def draw(study: StudyView) -> tuple[Figure, str]:
    alone = any(method.accuracies(name).size for method in study.methods for name in COMPONENTS)

    def read(method: MethodView, attack: str) -> np.ndarray:
        return method.accuracies(attack) if alone or attack not in COMPONENTS else method.phase_accuracies(attack)

    methods = [method for method in study.methods if any(read(method, attack[0]).size for attack in ATTACKS)]
    attacks = [attack for attack in ATTACKS if any(read(method, attack[0]).size for method in methods)]
    if not any(attack[0] in COMPONENTS for attack in attacks):
        raise Missing(
            "no evaluation with AutoAttack or its components", study.data.suite_command(study.name, "components")
        )
    rows, columns = style.grid_shape(len(methods), PER_ROW)
    figure, axes = style.canvas(style.width(0.6 + 1.3 * columns), 0.5 + 1.9 * rows, rows, 1, sharey=True)
    for row, axis in enumerate(axes[:, 0]):
        grouped_bars(axis, methods[row * columns : (row + 1) * columns], attacks, read)
        axis.set_xlim(-0.55, columns - 0.45)
        axis.set_ylabel("robust accuracy (%)")
    axes[0, 0].set_ylim(bottom=0)
    style.legend_above(figure, *axes[0, 0].get_legend_handles_labels())
    how = "each component run alone on all images" if alone else "what is left after each phase of AutoAttack in turn"
    caption = (
        f"Robust accuracy against PGD-20 and AutoAttack's components ({how}), {study.radius}, "
        f"{study.checkpoint_name}. Bars are means over seeds, whiskers one standard deviation."
    )
    return figure, caption


def grouped_bars(axis: Axes, methods: Sequence[MethodView], bars: Bars, read: Reader) -> None:
    """For each method one bar of each kind: the mean over seeds, with one standard deviation."""
    width = 0.84 / len(bars)
    for place, (name, legend, color, hatch) in enumerate(bars):
        values = [read(method, name) for method in methods]
        axis.bar(
            np.arange(len(methods)) + (place - (len(bars) - 1) / 2) * width,
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
