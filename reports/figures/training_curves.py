"""Accuracy over the epochs, one panel per method: the mean of its seeds and the band between them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.figures import style
from reports.figures.view import MethodView, Missing, ReportFigure, StudyView

# column, legend, colour, dash
LINES = (
    ("test_clean_accuracy", "test, clean", style.BLUE, "--"),
    ("train_accuracy", "training, as trained", style.ORANGE, "-."),
    ("validation_pgd_accuracy", "validation, PGD", style.GREEN, ":"),
    ("test_pgd_accuracy", "test, PGD", style.BLACK, "-"),
)
# Selection that leaves the test images alone has no curve on them: then the held-out images tell the same.
JUDGED_ON = {"test_pgd_accuracy": "the test set", "validation_pgd_accuracy": "the held-out images"}


def draw(study: StudyView) -> tuple[Figure, str]:
    shown = next((name for name in JUDGED_ON if any(method.curves(name) for method in study.methods)), None)
    methods = [method for method in study.methods if shown and method.curves(shown)]
    if shown is None:
        raise Missing("no trial of the study has ended", study.command())
    rows, columns = style.grid_shape(len(methods), 5)
    figure, axes = style.canvas(
        style.width(0.6 + 1.9 * columns), 0.7 + 1.6 * rows, rows, columns, sharex=True, sharey=True
    )
    handles: dict[str, object] = {}
    epochs = _shown_epochs(study)
    for axis, method in zip(axes.ravel(), methods, strict=False):
        _panel(axis, method, handles)
        axis.set_title(f"{method.name} (n={len(method.curves(shown))})", loc="left")
        _diamonds(axis, method, shown, epochs, handles)
    style.hide_unused(axes, len(methods))
    axes[0, 0].set_ylim(0, 100)
    axes[0, 0].xaxis.set_major_locator(MaxNLocator(5, integer=True))
    figure.supxlabel("epoch", fontsize=9)
    figure.supylabel("accuracy (%)", fontsize=9)
    style.legend_above(figure, list(handles.values()), list(handles), columns=5)
    caption = (
        "Lines are means over seeds, bands reach from the lowest to the highest seed; a diamond marks, for each seed, "
        f"the epoch whose weights the tables show ({study.checkpoint_name}) at its PGD accuracy on {JUDGED_ON[shown]}. "
        f"{study.title}."
    )
    return figure, caption


def _panel(axis: Axes, method: MethodView, handles: dict[str, object]) -> None:
    for column, legend, color, dash in LINES:
        curves = method.curves(column)
        if not curves:
            continue
        # Seeds may have stopped at different epochs: a mean needs all of them, so the shortest sets the length.
        length = min(len(curve) for curve in curves)
        values = 100 * np.stack([curve[:length] for curve in curves])
        # Selection may skip epochs; a line joins those that were evaluated.
        epochs = np.flatnonzero(np.isfinite(values).all(axis=0))
        values = values[:, epochs]
        (line,) = axis.plot(epochs + 1, values.mean(axis=0), color=color, linestyle=dash, linewidth=1.3)
        if len(values) > 1:
            axis.fill_between(epochs + 1, values.min(axis=0), values.max(axis=0), color=color, alpha=0.18, linewidth=0)
        handles.setdefault(legend, line)


def _shown_epochs(study: StudyView) -> dict[str, int]:
    """Trial -> the epoch of the checkpoint that the tables show, where its record says so."""
    cells, found = study.data.cells, {}
    for trial, checkpoints in zip(cells["trial"], cells["checkpoints"], strict=True):
        facts = checkpoints.get(study.checkpoint) if isinstance(checkpoints, dict) else None
        if isinstance(facts, dict) and isinstance(facts.get("epoch"), int):
            found[trial] = facts["epoch"]
    return found


def _diamonds(axis: Axes, method: MethodView, shown: str, epochs: dict[str, int], handles: dict[str, object]) -> None:
    points = []
    for trial in method.trials:
        curve = method.study.curve(trial)
        if shown in curve and epochs.get(trial, -1) in range(len(curve)):
            accuracy = pd.to_numeric(curve[shown], errors="coerce").iloc[epochs[trial]]
            points.append((epochs[trial] + 1, 100 * accuracy))
    if points:
        (diamonds,) = axis.plot(*zip(*points, strict=True), "D", markersize=4, color=style.VERMILLION)
        handles.setdefault(f"{method.study.checkpoint_name}, per seed", diamonds)


FIGURES = [ReportFigure(40, "training_curves", "Training curves", draw)]
