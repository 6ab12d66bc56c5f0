"""Histograms of the logit margin loss and of the probabilistic margin (the paper's Figures 2, 4, 7-13, 19)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from reports.figures import style
from reports.figures.view import MethodView, Missing, StudyView

PER_ROW = 6
BINS = 60


@dataclass(frozen=True)
class Panel:
    method: MethodView
    checkpoint: str
    margin: np.ndarray
    correct: np.ndarray


def draw_logit(study: StudyView) -> tuple[Figure, str]:
    panels = _panels(study, [study.checkpoint, "last"], "train_margin")
    figure = _histograms(panels, "logit margin loss", None)
    caption = (
        "Histograms of the logit margin loss on the training set, first seed: on adversarial examples, for standard "
        f"training on clean images. Upper rows {study.checkpoint_name}, lower rows last epoch. Negative is right; "
        "the dashed line is the mean. Each panel has its own scale; values beyond the outer 0.2 % of all panels stand "
        "in the outermost bins."
    )
    return figure, caption


def draw_probability(study: StudyView) -> tuple[Figure, str]:
    panels = _panels(study, ["last"], "train_probability_margin")
    figure = _histograms(panels, "probabilistic margin loss", (-1.0, 1.0))
    caption = (
        "Histograms of the probabilistic margin loss, the largest other probability minus that of the label (-PM of "
        "the paper's text), on adversarial training examples at the last epoch, first seed; for standard training on "
        "clean images. Each panel has its own scale."
    )
    return figure, caption


def _panels(study: StudyView, checkpoints: list[str], array: str) -> list[list[Panel]]:
    """One list per method: its panels from top to bottom."""
    found = []
    for method in study.methods:
        column = []
        for checkpoint in dict.fromkeys(checkpoints):
            for diagnostics in method.diagnostics(checkpoint):
                if array in diagnostics.arrays and "train_correct" in diagnostics.arrays:
                    margin = diagnostics.arrays[array].astype(float)
                    correct = diagnostics.arrays["train_correct"].astype(bool)
                    column.append(Panel(method, checkpoint, margin, correct))
                    break
        if column:
            found.append(column)
    if not found:
        raise Missing("no diagnostics were stored", study.command("--set", "evaluation.diagnostics=true"))
    return found


def _histograms(panels: list[list[Panel]], label: str, span: tuple[float, float] | None) -> Figure:
    depth = max(len(column) for column in panels)
    blocks, columns = style.grid_shape(len(panels), PER_ROW)
    figure, axes = style.canvas(0.8 + 1.5 * columns, 0.6 + 1.35 * blocks * depth, blocks * depth, columns, sharex=True)
    everything = np.concatenate([panel.margin[np.isfinite(panel.margin)] for column in panels for panel in column])
    low, high = span or np.quantile(everything, [0.002, 0.998])
    edges = np.linspace(low, max(high, low + 1e-6), BINS + 1)
    for axis in axes.ravel():
        axis.set_visible(False)
    for index, column in enumerate(panels):
        for row, panel in enumerate(column):
            axis = axes[index // columns * depth + row, index % columns]
            axis.set_visible(True)
            _histogram(axis, panel, edges)
            if row == 0:
                axis.set_title(panel.method.name, loc="left")
            if row == len(column) - 1:
                axis.tick_params(labelbottom=True)
            axis.tick_params(axis="y", labelsize=7, pad=1)
            axis.yaxis.set_major_locator(MaxNLocator(3))
    figure.supxlabel(label, fontsize=9)
    figure.supylabel("training images (%)", fontsize=9)
    handles = [
        Patch(facecolor=style.SKY, edgecolor="#444444", label="classified correctly"),
        Patch(facecolor="white", edgecolor=style.VERMILLION, hatch="////", label="misclassified"),
    ]
    style.legend_above(figure, handles, [str(handle.get_label()) for handle in handles])
    return figure


def _histogram(axis: Axes, panel: Panel, edges: np.ndarray) -> None:
    values = np.clip(panel.margin, edges[0], edges[-1])
    share = 100.0 / max(len(values), 1)
    right = np.histogram(values[panel.correct], edges)[0] * share
    wrong = np.histogram(values[~panel.correct], edges)[0] * share
    axis.stairs(right, edges, fill=True, facecolor=style.SKY, linewidth=0)
    # Without an outline of its own the misclassified part leaves no trace where it is empty.
    axis.stairs(
        right + wrong, edges, baseline=right, fill=True, facecolor="white", edgecolor=style.VERMILLION,
        hatch="//////", linewidth=0,
    )  # fmt: skip
    axis.stairs(right + wrong, edges, color="#444444", linewidth=0.6)
    average = float(np.nanmean(panel.margin))
    axis.axvline(average, color=style.BLACK, linestyle="--", linewidth=0.9)
    where = "last" if panel.checkpoint == "last" else "best"
    note = f"{where}\nmean {average:.2f}".replace("-", "−")
    left = average > (edges[0] + edges[-1]) / 2  # away from the line of the mean
    side, x = ("left", 0.03) if left else ("right", 0.98)
    axis.text(x, 0.97, note, transform=axis.transAxes, ha=side, va="top", fontsize=7)
    axis.set_ylim(0, 1.5 * max(float((right + wrong).max()), 1e-9))  # the note stands above the bars
