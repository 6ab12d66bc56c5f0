"""Mean logit margin loss over training for the two losses that the paper compares, by weight."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.analysis.margins import MARGIN_NOTES
from reports.figures import style
from reports.figures.view import MethodView, MissingResults, ReportFigure, StudyView

DASHES = ("-", "--", "-.", ":")
# First for the loss in the denominator of the ratio, then for the one in the numerator.
COLORS = (style.BLACK, style.VERMILLION)
MARKERS = (("o", "s", "^", "D"), ("v", "P", "X", "*"))


def draw(study: StudyView) -> tuple[Figure, str]:
    ratio = study.paper.margin_ratio
    if ratio is None:
        raise MissingResults("no paper of this study compares the margins of two losses")
    losses = (ratio.under, ratio.over)
    loss_index = {method: index for index, loss in enumerate(losses) for method in loss.methods}
    measured = [method for method in study.methods if method.method in loss_index and method.curves("train_margin")]
    if {loss_index[method.method] for method in measured} != {0, 1}:
        raise MissingResults(
            f"needs the mean margin over training with {ratio.under.words} and with {ratio.over.words}",
            study.command(),
        )
    figure, axes = style.canvas(style.HALF, 3.6)
    axis = axes[0, 0]
    measured.sort(key=lambda method: (loss_index[method.method], _weight(method)))
    weights = sorted({_weight(method) for method in measured})
    last: dict[tuple[int, float], float] = {}
    for method in measured:
        loss, weight = loss_index[method.method], _weight(method)
        curves = method.curves("train_margin")
        length = min(len(curve) for curve in curves)
        stacked = np.stack([curve[:length] for curve in curves])
        epochs = np.arange(1, length + 1)
        variant = weights.index(weight) % len(DASHES)
        axis.plot(
            epochs,
            stacked.mean(axis=0),
            color=COLORS[loss],
            linestyle=DASHES[variant],
            marker=MARKERS[loss][variant],
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
        # The ratio is meaningful only where both mean margin losses are negative.
        if last.get((0, weight), 0.0) < 0 and last.get((1, weight), 0.0) < 0
    ]
    caption = (
        f"Mean logit margin loss on adversarial training examples over the epochs, {ratio.under.words} against "
        f"{ratio.over.words}: {MARGIN_NOTES['training']}; bands span the lowest to the highest seed."
    )
    if ratios:
        compared = f"{ratio.over.words}'s margin over that of {ratio.under.words}"
        caption += f" Ratio at the last epoch, {compared}: {', '.join(ratios)}."
        if study.results.margins.estimator(study.name) == "diagnostics":
            caption += f" The tables use another estimate of the margin: {MARGIN_NOTES['diagnostics']}."
    return figure, caption


def _weight(method: MethodView) -> float:
    weight = method.number("weight")
    return 1.0 if weight is None else weight


FIGURES = [ReportFigure(70, "margin_trajectories", "Margins over training", draw)]
