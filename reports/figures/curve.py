"""Robust accuracy over all radii, from the distance at which each image is fooled."""

from __future__ import annotations

from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.view import MissingResults, ReportFigure, StudyView
from trainers.values import as_float

POINTS = 121  # per line
REACH = 3.0  # end of the axis, in multiples of the study's radius
LegendLocation = Literal["outside right center", "outside lower center"]


def draw(study: StudyView) -> tuple[Figure, str]:
    caption = (
        f"Accuracy (%) against the radius of the attack, {study.checkpoint_name}: the share of test images that "
        "neither the minimum-distance attack (curve) nor AutoAttack fools within the radius. Every attack gives an "
        "upper bound, so the true curves lie below these. Lines are means over seeds, bands one standard deviation; "
        f"crosses are AutoAttack at the study's own radius (dotted), {study.radius}."
    )
    return _draw(study, style.HALF, 3.8, "outside right center"), caption


def draw_narrow(study: StudyView) -> Figure:
    return _draw(study, style.NARROW, 4.4, "outside lower center")


def _draw(study: StudyView, width: float, height: float, legend: LegendLocation) -> Figure:
    own = as_float(study.epsilon)
    drawn = [(method, distances) for method in study.methods if (distances := method.distances())]
    if not drawn:
        raise MissingResults(
            "no model was evaluated with the minimum-distance attack (curve)",
            study.command("--set", "evaluation.attacks=[autoattack, curve]"),
        )
    farthest = max(float(seed[np.isfinite(seed)].max(initial=0.0)) for _, seeds in drawn for seed in seeds)
    # Include the study's own radius, where readers look up values.
    radii = np.unique(np.append(np.linspace(0.0, min(farthest, REACH * own), POINTS), own))
    figure, axes = style.canvas(width, height)
    axis = axes[0, 0]
    for method, distances in drawn:
        seeds = np.array([accuracies(seed, radii) for seed in distances])
        line_style = method.style.line()
        mean = seeds.mean(axis=0)
        axis.plot(radii, mean, label=method.name, markevery=(len(radii) // 12, len(radii) // 6), **line_style)
        if len(seeds) > 1:
            spread = seeds.std(axis=0, ddof=1)
            axis.fill_between(radii, mean - spread, mean + spread, color=line_style["color"], alpha=0.15, linewidth=0)
        autoattack = method.accuracies("autoattack")
        if autoattack.size:
            axis.plot(own, autoattack.mean(), "x", color=line_style["color"], markersize=8, markeredgewidth=2)
    axis.axvline(own, color=style.GREY, linewidth=0.8, linestyle=":")
    axis.set_xlim(0.0, radii[-1])
    axis.set_ylim(0.0, 100.0)
    axis.set_xlabel("radius")
    axis.set_ylabel("robust accuracy (%)")
    figure.legend(loc=legend, ncols=2 if width < style.HALF else 1)
    return figure


def accuracies(distances: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """Return the accuracy in percent at each radius, from float32 distances at which the images are fooled."""
    ordered = np.sort(distances)
    fooled = np.searchsorted(ordered, radii.astype(np.float32), side="right")
    return 100.0 * (1.0 - fooled / len(ordered))


FIGURES = [ReportFigure(46, "curve", "Accuracy over all radii", draw, narrow=draw_narrow)]
