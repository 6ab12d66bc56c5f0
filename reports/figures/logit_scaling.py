"""Robust accuracy when the attack sees logits times α (the paper's Figure 18)."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.view import Missing, StudyView


def draw(study: StudyView) -> tuple[Figure, str]:
    found = [(method, scales) for method in study.adversarial_methods if (scales := method.by_logit_scale())]
    if not found:
        raise Missing("no evaluation with scaled logits", study.command("--set", "evaluation.suite=logit_scaling"))
    figure, axes = style.canvas(6.4, 3.6)
    axis = axes[0, 0]
    for method, scales in found:
        means = [np.mean(values) for values in scales.values()]
        errors = [style.deviation(np.array(values)) for values in scales.values()]
        axis.errorbar(list(scales), means, yerr=errors, label=method.name, elinewidth=0.8, **method.style.line())
    axis.set_xscale("log")
    ticks = sorted({scale for _, scales in found for scale in scales})
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("logit scale α")
    axis.set_ylabel("robust accuracy (%)")
    figure.legend(loc="outside right center", fontsize=8)
    caption = (
        f"Robust accuracy against PGD on the cross-entropy of α·z, ε = {study.epsilon}, {study.checkpoint_name}: a "
        "method whose accuracy falls at some α hides its gradients at α = 1. Means with one standard deviation."
    )
    return figure, caption
