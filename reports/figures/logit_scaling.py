"""Robust accuracy when the attack sees the logits scaled by α."""

from __future__ import annotations

import re

from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.view import MissingResults, ReportFigure, StudyView


def draw(study: StudyView) -> tuple[Figure, str]:
    scales = _scales(study)
    methods = [method for method in study.adversarial_methods if any(method.accuracies(name).size for name in scales)]
    if not methods:
        raise MissingResults(
            "no model was evaluated with scaled logits", study.data.suite_command(study.name, "logit_scaling")
        )
    figure, axes = style.canvas(style.HALF, 3.6)
    axis = axes[0, 0]
    for method in methods:
        points = {alpha: values for name, alpha in scales.items() if (values := method.accuracies(name)).size}
        axis.errorbar(
            list(points),
            [values.mean() for values in points.values()],
            yerr=[style.deviation(values) for values in points.values()],
            label=method.name,
            elinewidth=0.8,
            **method.style.line(),
        )
    axis.set_xscale("log")
    axis.set_xticks(list(scales.values()), [f"{alpha:g}" for alpha in scales.values()])
    axis.minorticks_off()
    axis.set_xlabel("logit scale α")
    axis.set_ylabel("robust accuracy (%)")
    figure.legend(loc="outside right center")
    caption = (
        f"Robust accuracy against PGD on the cross-entropy of α·z, {study.radius}, {study.checkpoint_name}. "
        "A method whose accuracy falls at some α masks its gradients at α = 1. Means with one standard deviation."
    )
    return figure, caption


def _scales(study: StudyView) -> dict[str, float]:
    """Return α by attack name, in ascending order. The strict count is another quantity; its name does not match."""
    scales = {}
    for name, _ in study.results.attacks(study.name, study.checkpoint):
        if match := re.fullmatch(r"logit-scaling-(\d+(?:\.\d+)?)", name):
            scales[name] = float(match[1])
    return dict(sorted(scales.items(), key=lambda item: item[1]))


FIGURES = [ReportFigure(110, "logit_scaling", "Scaled logits", draw)]
