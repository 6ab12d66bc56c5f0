"""Transfer matrix: how often counterexamples for one method's models fool those of another."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from reports.analysis.transfers import Transfers
from reports.figures import style
from reports.figures.view import MethodView, MissingResults, ReportFigure, StudyView
from sweep.commands import spelled, store_words

PALE = 0.75  # grey level of the darkest cell, as a share of the colour scale
DARK = 0.5  # share of the scale above which numbers are white


def draw(study: StudyView) -> tuple[Figure, str]:
    methods, shares = _shares(study)
    caption = (
        "Share (%) of the images that a model (column) classifies correctly but misclassifies when perturbed as "
        f"stored for another model (row); {study.radius}. Means over all pairs of different models. Where another "
        "model's counterexamples succeed although the model's own attack failed, its robustness is overestimated; "
        "the table row Worst known corrects for this."
    )
    return _draw(methods, shares, style.FULL if len(methods) > 6 else style.HALF), caption


def draw_narrow(study: StudyView) -> Figure:
    return _draw(*_shares(study), style.NARROW)


def _shares(study: StudyView) -> tuple[list[MethodView], np.ndarray]:
    transfers = Transfers(study.results, study.name)
    shares = np.full((len(study.methods), len(study.methods)), np.nan)
    for row, source in enumerate(study.methods):
        for column, target in enumerate(study.methods):
            values = transfers.shares(source.label, target.label) if study.data.has_transfers else {}
            if values:
                shares[row, column] = np.mean(list(values.values()))
    finite = np.isfinite(shares)
    tested = [i for i in range(len(shares)) if finite[i].any() or finite[:, i].any()]
    if not tested:
        command = spelled("sweep.transfer", "--study", study.name, *store_words(study.data.store.uri))
        raise MissingResults("no counterexample was tested on another model", command)
    return [study.methods[i] for i in tested], shares[np.ix_(tested, tested)]


def _draw(methods: list[MethodView], shares: np.ndarray, width: float) -> Figure:
    small = width < style.HALF
    names = [method.name for method in methods]
    figure, axes = style.canvas(width, 1.2 + 0.34 * len(methods), 1, 1)
    axis = axes.ravel()[0]
    highest = max(1.0, float(np.nanmax(shares)))
    axis.imshow(np.ma.masked_invalid(shares), cmap="Greys", vmin=0.0, vmax=highest / PALE, aspect="auto")
    for row, column in np.ndindex(*shares.shape):
        value = shares[row, column]
        text = f"{value:.0f}" if np.isfinite(value) else "–"
        color = "white" if np.isfinite(value) and value * PALE > DARK * highest else style.BLACK
        axis.text(column, row, text, ha="center", va="center", color=color, fontsize=7 if small else 9)
    axis.set_xticks(range(len(methods)), names, rotation=90 if small else 45, ha="center" if small else "right")
    axis.set_yticks(range(len(methods)), [style.wrapped(name) if small else name for name in names])
    axis.grid(visible=False)
    axis.set_xlabel("tested on" if small else "tested on (% of correctly classified images fooled)")
    axis.set_ylabel("counterexamples of")
    return figure


FIGURES = [ReportFigure(47, "transfer", "Who breaks whom", draw, narrow=draw_narrow)]
