"""The mean logit margin loss over training with cross-entropy and OVR, per weight (the paper's Figures 3b and 15)."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.figures import style
from reports.figures.view import MethodView, Missing, StudyView
from reports.results import MARGIN_NOTES

LOSSES = {"at": "CE", "weighted_ce": "CE", "ovr": "OVR", "weighted_ovr": "OVR"}
COLORS = {"CE": style.BLACK, "OVR": style.VERMILLION}
DASHES = ("-", "--", "-.", ":")
MARKERS = {"CE": ("o", "s", "^", "D"), "OVR": ("v", "P", "X", "*")}


def draw(study: StudyView) -> tuple[Figure, str]:
    found = [method for method in study.methods if method.method in LOSSES and method.curves("train_margin")]
    if {LOSSES[method.method] for method in found} != {"CE", "OVR"}:
        raise Missing(
            "the mean margin over training is needed for cross-entropy and for OVR",
            study.command("--set", "margins=true"),
        )
    figure, axes = style.canvas(6.2, 3.6)
    axis = axes[0, 0]
    found.sort(key=lambda method: (LOSSES[method.method], _weight(method)))
    weights = sorted({_weight(method) for method in found})
    last: dict[tuple[str, float], float] = {}
    for method in found:
        loss, weight = LOSSES[method.method], _weight(method)
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
            label=f"{loss}, w={weight:g}",
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
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right center")
    ratios = [
        f"{last['OVR', weight] / last['CE', weight]:.2f} for w={weight:g}"
        for weight in weights
        # Before a margin is one (a mean margin loss below zero), a ratio of two says nothing.
        if last.get(("CE", weight), 0.0) < 0 and last.get(("OVR", weight), 0.0) < 0
    ]
    caption = (
        "Mean logit margin loss on adversarial training examples over the epochs, cross-entropy against OVR: "
        f"{MARGIN_NOTES['training']}; bands reach from the lowest to the highest seed."
    )
    if ratios:
        caption += f" OVR's margin over that of cross-entropy at the last epoch, so measured: {', '.join(ratios)}."
        if study.results.margin_estimator(study.name) == "diagnostics":
            caption += f" The tables' margins are another estimate: {MARGIN_NOTES['diagnostics']}."
    return figure, caption


def _weight(method: MethodView) -> float:
    weight = method.number("weight")
    return 1.0 if weight is None else weight
