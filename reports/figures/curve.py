"""Robust accuracy over all radii, from the distance at which each image falls."""

from __future__ import annotations

from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.view import Missing, ReportFigure, StudyView
from trainers.values import as_float

POINTS = 121  # of each line
REACH = 3.0  # radii of the study, at most
Place = Literal["outside right center", "outside lower center"]


def draw(study: StudyView) -> tuple[Figure, str]:
    caption = (
        f"Accuracy (%) over the radius of the attack, {study.checkpoint_name}; {study.radius} is the study's own: the "
        "share of test images that were not fooled within it by a search for the nearest point that fools (`curve`), "
        "nor by AutoAttack. Every attack bounds the accuracy from above, so the true curves lie below these. Means "
        "over seeds, bands of one standard deviation; crosses are AutoAttack at the radius of the study (dotted)."
    )
    return _draw(study, style.HALF, 3.8, "outside right center"), caption


def draw_narrow(study: StudyView) -> Figure:
    return _draw(study, style.NARROW, 4.4, "outside lower center")


def _draw(study: StudyView, width: float, height: float, legend: Place) -> Figure:
    own = as_float(study.epsilon)
    found = [(method, distances) for method in study.methods if (distances := method.distances())]
    if not found:
        raise Missing(
            "no evaluation looked for the nearest point that fools",
            study.command("--set", "evaluation.attacks=[autoattack, curve]"),
        )
    farthest = max(float(one[np.isfinite(one)].max(initial=0.0)) for _, seeds in found for one in seeds)
    # The radius of the study is one of the points: there the lines are read.
    radii = np.unique(np.append(np.linspace(0.0, min(farthest, REACH * own), POINTS), own))
    figure, axes = style.canvas(width, height)
    axis = axes[0, 0]
    for method, distances in found:
        seeds = np.array([accuracies(one, radii) for one in distances])
        look = method.style.line()
        mean = seeds.mean(axis=0)
        axis.plot(radii, mean, label=method.name, markevery=(len(radii) // 12, len(radii) // 6), **look)
        if len(seeds) > 1:
            spread = seeds.std(axis=0, ddof=1)
            axis.fill_between(radii, mean - spread, mean + spread, color=look["color"], alpha=0.15, linewidth=0)
        marked = method.accuracies("autoattack")
        if marked.size:
            axis.plot(own, marked.mean(), "x", color=look["color"], markersize=8, markeredgewidth=2)
    axis.axvline(own, color=style.GREY, linewidth=0.8, linestyle=":")
    axis.set_xlim(0.0, radii[-1])
    axis.set_ylim(0.0, 100.0)
    axis.set_xlabel("radius")
    axis.set_ylabel("robust accuracy (%)")
    figure.legend(loc=legend, ncols=2 if width < style.HALF else 1)
    return figure


def accuracies(distances: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """In percent: the share of images that fall farther away than each radius. Distances are float32, as stored."""
    ordered = np.sort(distances)
    fallen = np.searchsorted(ordered, radii.astype(np.float32), side="right")
    return 100.0 * (1.0 - fallen / len(ordered))


FIGURES = [ReportFigure(46, "curve", "Accuracy over all radii", draw, narrow=draw_narrow)]
