"""The mean logit margin loss over training with each of the two losses that the paper compares, per weight."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.figures import style
from reports.figures.view import MethodView, Missing, ReportFigure, StudyView
from reports.margins import MARGIN_NOTES

DASHES = ("-", "--", "-.", ":")
# Of the loss under the bar of the ratio, then of the one over it.
COLORS = (style.BLACK, style.VERMILLION)
MARKERS = (("o", "s", "^", "D"), ("v", "P", "X", "*"))


def draw(study: StudyView) -> tuple[Figure, str]:
    ratio = study.paper.margin_ratio
    if ratio is None:
        raise Missing("no paper beside this study compares the margins of two losses")
    losses = (ratio.under, ratio.over)
    kind = {method: place for place, loss in enumerate(losses) for method in loss.methods}
    found = [method for method in study.methods if method.method in kind and method.curves("train_margin")]
    if {kind[method.method] for method in found} != {0, 1}:
        raise Missing(
            f"the mean margin over training is needed for {ratio.under.words} and for {ratio.over.words}",
            study.command("--set", "margins=true"),
        )
    figure, axes = style.canvas(style.HALF, 3.6)
    axis = axes[0, 0]
    found.sort(key=lambda method: (kind[method.method], _weight(method)))
    weights = sorted({_weight(method) for method in found})
    last: dict[tuple[int, float], float] = {}
    for method in found:
        loss, weight = kind[method.method], _weight(method)
        values = method.curves("train_margin")
        length = min(len(curve) for curve in values)
        stacked = np.stack([curve[:length] for curve in values])
        epochs = np.arange(1, length + 1)
        turn = weights.index(weight) % len(DASHES)
        axis.plot(
            epochs,
            stacked.mean(axis=0),
            color=COLORS[loss],
            linestyle=DASHES[turn],
            marker=MARKERS[loss][turn],
            markevery=max(1, length // 8),
            markersize=4,
            label=f"{losses[loss].name}, w={weight:g}",
        )
        if len(stacked) > 1:
            axis.fill_between(
                epochs, stacked.min(axis=0), stacked.max(axis=0), color=COLORS[loss], alpha=0.15, linewidth=0
            )
        last[loss, weight] = float(stacked[:, -1].mean())
    axis.axhline(0.0, color=style.GREY, linewidth=0.8)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("epoch")
    axis.set_ylabel("mean logit margin loss")
    style.legend_above(figure, *axis.get_legend_handles_labels())
    ratios = [
        f"{last[1, weight] / last[0, weight]:.2f} for w={weight:g}"
        for weight in weights
        # Before a margin is one (a mean margin loss below zero), a ratio of two says nothing.
        if last.get((0, weight), 0.0) < 0 and last.get((1, weight), 0.0) < 0
    ]
    caption = (
        f"Mean logit margin loss on adversarial training examples over the epochs, {ratio.under.words} against "
        f"{ratio.over.words}: {MARGIN_NOTES['training']}; bands reach from the lowest to the highest seed."
    )
    if ratios:
        between = f"{ratio.over.words}'s margin over that of {ratio.under.words}"
        caption += f" {between} at the last epoch, so measured: {', '.join(ratios)}."
        if study.results.margins.estimator(study.name) == "diagnostics":
            caption += f" The tables' margins are another estimate: {MARGIN_NOTES['diagnostics']}."
    return figure, caption


def _weight(method: MethodView) -> float:
    weight = method.number("weight")
    return 1.0 if weight is None else weight


FIGURES = [ReportFigure(70, "margin_trajectories", "Margins over training", draw)]
