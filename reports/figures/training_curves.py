"""Accuracy over the epochs, one panel per method: the mean over seeds and their range."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.figures import style
from reports.figures.view import MethodView, MissingResults, ReportFigure, StudyView

# column, legend, colour, dash
LINES = (
    ("test_clean_accuracy", "test, clean", style.BLUE, "--"),
    ("train_accuracy", "training, as trained", style.ORANGE, "-."),
    ("validation_pgd_accuracy", "validation, PGD", style.GREEN, ":"),
    ("test_pgd_accuracy", "test, PGD", style.BLACK, "-"),
)
# Curves for the panels, in order of preference. Selection that never measures test images has no curve on them.
JUDGED_ON = {"test_pgd_accuracy": "the test set", "validation_pgd_accuracy": "the held-out images"}


def draw(study: StudyView) -> tuple[Figure, str]:
    judged = next((name for name in JUDGED_ON if any(method.curves(name) for method in study.methods)), None)
    methods = [method for method in study.methods if judged and method.curves(judged)]
    if judged is None:
        raise MissingResults("no trial of the study has finished", study.command())
    rows, columns = style.grid_shape(len(methods), 5)
    figure, axes = style.canvas(
        style.width(0.6 + 1.9 * columns), 0.7 + 1.6 * rows, rows, columns, sharex=True, sharey=True
    )
    handles: dict[str, object] = {}
    epochs = _checkpoint_epochs(study)
    for axis, method in zip(axes.ravel(), methods, strict=False):
        _panel(axis, method, handles)
        axis.set_title(f"{method.name} (n={len(method.curves(judged))})", loc="left")
        _diamonds(axis, method, judged, epochs, handles)
    style.hide_unused(axes, len(methods))
    axes[0, 0].set_ylim(0, 100)
    axes[0, 0].xaxis.set_major_locator(MaxNLocator(5, integer=True))
    figure.supxlabel("epoch", fontsize=9)
    figure.supylabel("accuracy (%)", fontsize=9)
    style.legend_above(figure, list(handles.values()), list(handles), columns=5)
    caption = (
        "Lines are means over seeds, bands span the lowest to the highest seed. For each seed, a diamond marks the "
        f"epoch whose weights the tables use ({study.checkpoint_name}) at its PGD accuracy on {JUDGED_ON[judged]}. "
        f"{study.title}."
    )
    return figure, caption


def _panel(axis: Axes, method: MethodView, handles: dict[str, object]) -> None:
    for column, legend, color, dash in LINES:
        curves = method.curves(column)
        if not curves:
            continue
        # Seeds may have stopped at different epochs. The mean needs all of them, so the shortest curve sets the length.
        length = min(len(curve) for curve in curves)
        values = 100 * np.stack([curve[:length] for curve in curves])
        # Selection may skip epochs; the line joins the evaluated ones.
        epochs = np.flatnonzero(np.isfinite(values).all(axis=0))
        values = values[:, epochs]
        (line,) = axis.plot(epochs + 1, values.mean(axis=0), color=color, linestyle=dash, linewidth=1.3)
        if len(values) > 1:
            axis.fill_between(epochs + 1, values.min(axis=0), values.max(axis=0), color=color, alpha=0.18, linewidth=0)
        handles.setdefault(legend, line)


def _checkpoint_epochs(study: StudyView) -> dict[str, int]:
    """Return by trial the 0-based epoch of the checkpoint that the tables use, where the record has it."""
    cells, epochs = study.data.cells, {}
    for trial, checkpoints in zip(cells["trial"], cells["checkpoints"], strict=True):
        facts = checkpoints.get(study.checkpoint) if isinstance(checkpoints, dict) else None
        if isinstance(facts, dict) and isinstance(facts.get("epoch"), int):
            epochs[trial] = facts["epoch"]
    return epochs


def _diamonds(axis: Axes, method: MethodView, column: str, epochs: dict[str, int], handles: dict[str, object]) -> None:
    points = []
    for trial in method.trials:
        curve = method.study.curve(trial)
        if column in curve and epochs.get(trial, -1) in range(len(curve)):
            accuracy = pd.to_numeric(curve[column], errors="coerce").iloc[epochs[trial]]
            points.append((epochs[trial] + 1, 100 * accuracy))
    if points:
        (diamonds,) = axis.plot(*zip(*points, strict=True), "D", markersize=4, color=style.VERMILLION)
        handles.setdefault(f"{method.study.checkpoint_name}, per seed", diamonds)


FIGURES = [ReportFigure(40, "training_curves", "Training curves", draw)]
