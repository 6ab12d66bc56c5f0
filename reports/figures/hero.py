"""The summary figure, also for a README: accuracy under PGD-20 and under AutoAttack, per method."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.view import MissingResults, ReportFigure, StudyView


def draw(study: StudyView) -> tuple[Figure, str]:
    caption = (
        f"{study.title}: robust accuracy against PGD-20 and against AutoAttack ({study.checkpoint_name}), sorted by "
        "AutoAttack. Whiskers are one standard deviation over seeds. The bar is the robustness under PGD-20 that "
        "AutoAttack takes away."
    )
    return _draw(study, style.HALF), caption


def draw_narrow(study: StudyView) -> Figure:
    return _draw(study, style.NARROW)


def _draw(study: StudyView, width: float) -> Figure:
    rows = []
    for method in study.adversarial_methods:
        pgd, autoattack = method.accuracies("pgd-20"), method.accuracies("autoattack")
        if pgd.size and autoattack.size:
            rows.append((method, pgd, autoattack))
    if not rows:
        raise MissingResults("no method was evaluated with both PGD-20 and AutoAttack", study.command())
    rows.sort(key=lambda row: row[2].mean())
    figure, axes = style.canvas(width, 0.9 + 0.33 * len(rows))
    axis = axes[0, 0]
    for y, (_, pgd, autoattack) in enumerate(rows):
        axis.plot([autoattack.mean(), pgd.mean()], [y, y], color=style.FAINT, linewidth=5, solid_capstyle="round")
        axis.plot(
            pgd.mean(), y, "o", markersize=7, markerfacecolor="white", markeredgewidth=1.6, color=style.BLUE,
            label="PGD-20" if y == 0 else None,
        )  # fmt: skip
        axis.errorbar(
            autoattack.mean(), y, xerr=style.deviation(autoattack), fmt="D", markersize=6, color=style.VERMILLION,
            label="AutoAttack" if y == 0 else None,
        )  # fmt: skip
        # The left end of the whisker, or the mean if a single seed has no whisker.
        edge = np.nanmin([autoattack.mean(), autoattack.mean() - style.deviation(autoattack)])
        axis.annotate(
            f"{autoattack.mean():.1f}", (edge, y), (-7, 0), textcoords="offset points",
            ha="right", va="center", weight="bold",
        )  # fmt: skip
    name = style.wrapped if width < style.HALF else str
    axis.set_yticks(range(len(rows)), [name(method.name) for method, _, _ in rows])
    axis.set_ylim(-0.6, len(rows) - 0.4)
    # Leave room for the number left of the whisker; a narrow figure needs a larger share of its width.
    left_edge, right_edge = axis.get_xlim()
    axis.set_xlim(left_edge - 0.6 / width * (right_edge - left_edge), right_edge)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel(f"robust accuracy (%), {study.radius}")
    handles, labels = axis.get_legend_handles_labels()
    style.legend_above(figure, handles, labels, columns=2)
    return figure


FIGURES = [ReportFigure(10, "hero", "PGD-20 against AutoAttack", draw, narrow=draw_narrow)]
