"""Who breaks whom: what counterexamples of one method's models do to those of another."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.view import MethodView, Missing, ReportFigure, StudyView
from reports.transfers import Transfers
from sweep.commands import spelled, store_words

PALE = 0.75  # the darkest field, as a share of the scale
DARK = 0.5  # of the scale: from here on numbers are white


def draw(study: StudyView) -> tuple[Figure, str]:
    methods, shares = _shares(study)
    caption = (
        "Percent of the images that a model (column) classifies correctly and that a counterexample kept for another "
        f"model (row) breaks; {study.radius}. Means over all pairs of different models. A column that others break "
        "more than its own attack did is less robust than its number says: see the row Worst known."
    )
    return _draw(methods, shares, style.FULL if len(methods) > 6 else style.HALF), caption


def draw_narrow(study: StudyView) -> Figure:
    return _draw(*_shares(study), style.NARROW)


def _shares(study: StudyView) -> tuple[list[MethodView], np.ndarray]:
    found = Transfers(study.results, study.name)
    shares = np.full((len(study.methods), len(study.methods)), np.nan)
    for row, source in enumerate(study.methods):
        for column, target in enumerate(study.methods):
            values = found.shares(source.label, target.label) if study.data.has_transfers else {}
            if values:
                shares[row, column] = np.mean(list(values.values()))
    known = [
        place for place in range(len(shares)) if np.isfinite(shares[place]).any() or np.isfinite(shares[:, place]).any()
    ]
    if not known:
        command = spelled("sweep.transfer", "--study", study.name, *store_words(study.data.store.uri))
        raise Missing("no counterexample was tried on another model", command)
    return [study.methods[place] for place in known], shares[np.ix_(known, known)]


def _draw(methods: list[MethodView], shares: np.ndarray, width: float) -> Figure:
    small = width < style.HALF
    names = [one.name for one in methods]
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
    axis.set_xlabel("tried on" if small else "tried on (percent of its right images that fall)")
    axis.set_ylabel("counterexamples of")
    return figure


FIGURES = [ReportFigure(47, "transfer", "Who breaks whom", draw, narrow=draw_narrow)]
