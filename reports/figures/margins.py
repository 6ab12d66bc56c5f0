"""Histograms of the logit margin loss and of the probabilistic margin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator

from reports.figures import style
from reports.figures.view import MethodView, MissingResults, ReportFigure, StudyView

PER_ROW = 7
BINS = 60
# Quantiles of the margin at the ends of the axis; images beyond them are counted in the outermost bins.
AXIS_QUANTILES = (0.005, 0.995)
# A method whose span is this many times the third quartile of all spans gets an axis of its own.
FAR_WIDER = 3.0

Span = tuple[float, float]
PROBABILITIES: Span = (-1.0, 1.0)


@dataclass(frozen=True)
class Panel:
    """The margins of one training at one checkpoint, and which images it classifies correctly."""

    method: MethodView
    checkpoint: str
    margin: np.ndarray
    correct: np.ndarray


def draw_logit(study: StudyView) -> tuple[Figure, str]:
    panels = _panels(study, [*study.kept_epochs, study.checkpoint, "last"], "train_margin")
    drawn = {panel.checkpoint for column in panels for panel in column}
    upper = [_row_name(epoch) for epoch in study.kept_epochs if epoch in drawn]
    spans, wide = _spans(panels)
    figure = _histograms(panels, "logit margin loss", spans, wide)
    caption = (
        "Histograms of the logit margin loss on training images, first seed. Images are adversarial, or clean for "
        f"standard training. Upper rows {' and '.join([*upper, study.checkpoint_name])}, lower rows last epoch. "
        "Negative values are correct classifications; the dashed line is the mean. All panels share one horizontal "
        "axis"
        + (", except those on grey, whose values reach far beyond it" if wide else "")
        + "; the vertical scales differ. The outermost bins include the 0.5 % of a method's images beyond each end."
    )
    return figure, caption


def draw_probability(study: StudyView) -> tuple[Figure, str]:
    panels = _panels(study, ["last"], "train_probability_margin")
    figure = _histograms(panels, "probabilistic margin loss", [PROBABILITIES] * len(panels), frozenset())
    caption = (
        "Histograms of the probabilistic margin loss (the largest other probability minus that of the label) on "
        "training images at the last epoch, first seed. Images are adversarial, or clean for standard training. All "
        "panels share one horizontal axis; the vertical scales differ."
    )
    return figure, caption


def _panels(study: StudyView, checkpoints: list[str], array: str) -> list[list[Panel]]:
    """Return the panels of each method, from top to bottom."""
    panels = []
    for method in study.methods:
        column = []
        for checkpoint in dict.fromkeys(checkpoints):
            for diagnostics in method.diagnostics(checkpoint):
                if array in diagnostics.arrays and "train_correct" in diagnostics.arrays:
                    margin = diagnostics.arrays[array].astype(float)
                    correct = diagnostics.arrays["train_correct"].astype(bool)
                    finite = np.isfinite(margin)
                    if finite.any() and margin.shape == correct.shape:
                        column.append(Panel(method, checkpoint, margin[finite], correct[finite]))
                        break
        if column:
            panels.append(column)
    if not panels:
        raise MissingResults("the store has no diagnostics", study.command("--set", "evaluation.diagnostics=true"))
    return panels


def _spans(panels: list[list[Panel]]) -> tuple[list[Span], frozenset[int]]:
    """Return the axis of each method, and the indices of methods with an axis of their own.

    All other methods share one axis, because readers compare margins by eye.
    """
    own = [tuple(np.quantile(np.concatenate([panel.margin for panel in column]), AXIS_QUANTILES)) for column in panels]
    # Margins on clean images are not comparable with those on adversarial ones.
    compared = [i for i, column in enumerate(panels) if column[0].method.adversarial] or list(range(len(own)))
    usual = np.quantile([own[i][1] - own[i][0] for i in compared], 0.75, method="lower")
    together = [own[i] for i in compared if own[i][1] - own[i][0] <= FAR_WIDER * usual]
    low, high = min(span[0] for span in together), max(span[1] for span in together)
    wide = frozenset(i for i, span in enumerate(own) if span[0] < low or span[1] > high)
    return [span if i in wide else (low, high) for i, span in enumerate(own)], wide


def _histograms(panels: list[list[Panel]], label: str, spans: list[Span], wide: frozenset[int]) -> Figure:
    depth = max(len(column) for column in panels)
    blocks, columns = style.grid_shape(len(panels), PER_ROW)
    figure, axes = style.canvas(style.width(0.8 + 1.3 * columns), 0.6 + 1.3 * blocks * depth, blocks * depth, columns)
    for axis in axes.ravel():
        axis.set_visible(False)
    for index, column in enumerate(panels):
        low, high = spans[index]
        edges = np.linspace(low, max(high, low + 1e-6), BINS + 1)
        for row, panel in enumerate(column):
            axis = axes[index // columns * depth + row, index % columns]
            axis.set_visible(True)
            if index in wide:
                axis.set_facecolor(style.PALE)
            _histogram(axis, panel, edges)
            if row == 0:
                axis.set_title(panel.method.name, loc="left")
            axis.tick_params(labelbottom=row == len(column) - 1)
            axis.tick_params(axis="y", labelsize=8, pad=1)
            axis.xaxis.set_major_locator(FixedLocator([-1, 0, 1]) if spans[index] == PROBABILITIES else MaxNLocator(4))
            axis.yaxis.set_major_locator(MaxNLocator(3))
    figure.supxlabel(label, fontsize=9)
    figure.supylabel("training images (%)", fontsize=9)
    handles = [
        Patch(facecolor=style.SKY, edgecolor="#444444", label="classified correctly"),
        Patch(facecolor="white", edgecolor=style.VERMILLION, hatch="////", label="misclassified"),
    ]
    style.legend_above(figure, handles, [str(handle.get_label()) for handle in handles])
    return figure


def _row_name(checkpoint: str) -> str:
    if checkpoint.startswith("epoch-"):
        return checkpoint.replace("-", " ")
    return "last" if checkpoint == "last" else "best"


def _histogram(axis: Axes, panel: Panel, edges: np.ndarray) -> None:
    values = np.clip(panel.margin, edges[0], edges[-1])
    share = 100.0 / max(len(values), 1)
    right = np.histogram(values[panel.correct], edges)[0] * share
    wrong = np.histogram(values[~panel.correct], edges)[0] * share
    axis.stairs(right, edges, fill=True, facecolor=style.SKY, linewidth=0)
    # No outline, so that the misclassified part is invisible where it is empty.
    axis.stairs(
        right + wrong, edges, baseline=right, fill=True, facecolor="white", edgecolor=style.VERMILLION,
        hatch="//////", linewidth=0,
    )  # fmt: skip
    axis.stairs(right + wrong, edges, color="#444444", linewidth=0.6)
    average = float(panel.margin.mean())
    axis.axvline(average, color=style.BLACK, linestyle="--", linewidth=0.9)
    row_name = _row_name(panel.checkpoint)
    note = f"{row_name}\nmean {average:.2f}".replace("-", "−")
    # Put the note on the side away from the mean; the box covers the line if it is still near.
    mean_is_right = average > (edges[0] + edges[-1]) / 2
    side, x = ("left", 0.03) if mean_is_right else ("right", 0.98)
    box = {"facecolor": axis.get_facecolor(), "edgecolor": "none", "pad": 0.8}
    axis.text(x, 0.97, note, transform=axis.transAxes, ha=side, va="top", fontsize=8, bbox=box)
    axis.set_ylim(0, 1.5 * max(float((right + wrong).max()), 1e-9))  # leaves room for the note above the bars


FIGURES = [
    ReportFigure(50, "margin_histograms", "Logit margins", draw_logit),
    ReportFigure(60, "probability_margins", "Probabilistic margins", draw_probability),
]
