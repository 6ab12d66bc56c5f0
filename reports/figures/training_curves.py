"""Accuracy over the epochs, one panel per method: the mean of its seeds and the band between them."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.figures import style
from reports.figures.view import MethodView, Missing, StudyView

# column, legend, colour, dash
LINES = (
    ("test_clean_accuracy", "test, clean", style.BLUE, "--"),
    ("train_accuracy", "training, as trained", style.ORANGE, "-."),
    ("validation_pgd_accuracy", "validation, PGD", style.GREEN, ":"),
    ("test_pgd_accuracy", "test, PGD", style.BLACK, "-"),
)


def draw(study: StudyView) -> tuple[Figure, str]:
    methods = [method for method in study.methods if method.curves("test_pgd_accuracy")]
    if not methods:
        raise Missing("no trial of the study has ended", study.command())
    rows, columns = style.grid_shape(len(methods), 4)
    figure, axes = style.canvas(1.0 + 1.95 * columns, 0.7 + 1.75 * rows, rows, columns, sharex=True, sharey=True)
    handles: dict[str, object] = {}
    for axis, method in zip(axes.ravel(), methods, strict=False):
        _panel(axis, method, handles)
    style.hide_unused(axes, len(methods))
    axes[0, 0].set_ylim(0, 100)
    axes[0, 0].xaxis.set_major_locator(MaxNLocator(5, integer=True))
    figure.supxlabel("epoch", fontsize=9)
    figure.supylabel("accuracy (%)", fontsize=9)
    style.legend_above(figure, list(handles.values()), list(handles), columns=4)
    caption = (
        "Lines are means over seeds, bands reach from the lowest to the highest seed; the diamond "
        f"marks the mean curve's best PGD accuracy on the test set. {study.title}."
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
        if column == "test_pgd_accuracy" and epochs.size:
            best = int(values.mean(axis=0).argmax())
            axis.plot(epochs[best] + 1, values.mean(axis=0)[best], marker="D", markersize=4, color=style.VERMILLION)
    axis.set_title(f"{method.name} (n={len(method.curves('test_pgd_accuracy'))})", loc="left")
