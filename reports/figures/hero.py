"""The one picture for a README: what PGD-20 promises and what AutoAttack leaves, per method."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.view import Missing, ReportFigure, StudyView


def draw(study: StudyView) -> tuple[Figure, str]:
    caption = (
        f"{study.title}: robust accuracy against PGD-20 and against AutoAttack ({study.checkpoint_name}), sorted by "
        "AutoAttack. Whiskers are one standard deviation over seeds. A long bar is robustness that a stronger attack "
        "takes away."
    )
    return _draw(study, style.HALF), caption


def draw_narrow(study: StudyView) -> Figure:
    return _draw(study, style.NARROW)


def _draw(study: StudyView, width: float) -> Figure:
    rows = []
    for method in study.adversarial_methods:
        promised, left = method.accuracies("pgd-20"), method.accuracies("autoattack")
        if promised.size and left.size:
            rows.append((method, promised, left))
    if not rows:
        raise Missing("no method was evaluated with both PGD-20 and AutoAttack", study.command())
    rows.sort(key=lambda row: row[2].mean())
    figure, axes = style.canvas(width, 0.9 + 0.33 * len(rows))
    axis = axes[0, 0]
    for place, (_, promised, left) in enumerate(rows):
        axis.plot(
            [left.mean(), promised.mean()], [place, place], color=style.FAINT, linewidth=5, solid_capstyle="round"
        )
        axis.plot(
            promised.mean(), place, "o", markersize=7, markerfacecolor="white", markeredgewidth=1.6, color=style.BLUE,
            label="PGD-20" if place == 0 else None,
        )  # fmt: skip
        axis.errorbar(
            left.mean(), place, xerr=style.deviation(left), fmt="D", markersize=6, color=style.VERMILLION,
            label="AutoAttack" if place == 0 else None,
        )  # fmt: skip
        edge = np.nanmin([left.mean(), left.mean() - style.deviation(left)])  # of the whisker, where there is one
        axis.annotate(
            f"{left.mean():.1f}", (edge, place), (-7, 0), textcoords="offset points",
            ha="right", va="center", weight="bold",
        )  # fmt: skip
    name = style.wrapped if width < style.HALF else str
    axis.set_yticks(range(len(rows)), [name(method.name) for method, _, _ in rows])
    axis.set_ylim(-0.6, len(rows) - 0.4)
    # The number stands left of the whisker: the narrower the picture, the more of it a number takes.
    left_edge, right_edge = axis.get_xlim()
    axis.set_xlim(left_edge - 0.6 / width * (right_edge - left_edge), right_edge)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel(f"robust accuracy (%), {study.radius}")
    handles, labels = axis.get_legend_handles_labels()
    style.legend_above(figure, handles, labels, columns=2)
    return figure


FIGURES = [ReportFigure(10, "hero", "PGD-20 against AutoAttack", draw, narrow=draw_narrow)]
