"""Rates of potentially misclassified images, and gradient norms."""

from __future__ import annotations

from functools import partial

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, NullFormatter

from reports.figures import style
from reports.figures.bars import Bar, Bars, grouped_bars
from reports.figures.view import MethodView, MissingResults, ReportFigure, StudyView

FAR_ABOVE = 8  # times the median norm
RATES: Bars = (
    Bar("train_potentially_misclassified", "training images", style.SKY, ""),
    Bar("test_potentially_misclassified", "test images", style.VERMILLION, "//"),
)
NORMS: Bars = (
    Bar("gradient_norm_ce_label", "‖∇ CE(x, y)‖₁", style.FAINT, ""),
    Bar("gradient_norm_ce_runner_up", "‖∇ CE(x, k*)‖₁, k* the largest other logit", style.SKY, "//"),
    Bar("gradient_norm_ce_random", "‖∇ CE(x, k)‖₁, k drawn at random", style.GREEN, "\\\\"),
    Bar("gradient_norm_logit_label", "‖∇ z_y‖₁", style.ORANGE, "xx"),
    Bar("gradient_norm_logit_max", "max over k of ‖∇ z_k‖₁", style.VERMILLION, ".."),
)


def draw_rates(study: StudyView) -> tuple[Figure, str]:
    figure = _bars(study, RATES, "potentially misclassified (%)", 100.0, columns=2)
    caption = (
        "Rate of potentially misclassified images: those whose logit margin at clean x is smaller than the gradient "
        f"norms times {study.radius} ({study.checkpoint_name}). Lower is better. Means over seeds with one standard "
        "deviation."
    )
    return figure, caption


def draw_rates_together(*studies: StudyView) -> tuple[Figure, str]:
    """Draw one row of bars per study on a common scale, so that heights are comparable across data sets."""
    measured = [study for study in studies if _with_values(study, RATES)]
    if not measured:
        raise MissingResults("the store has no diagnostics", studies[0].command("--set", "evaluation.diagnostics=true"))
    rows = [_with_values(study, RATES) for study in measured]
    columns = max(map(len, rows))
    figure, axes = style.canvas(style.width(0.8 + 0.7 * columns), 0.5 + 1.75 * len(rows), len(rows), 1, sharey=True)
    for study, methods, axis in zip(measured, rows, axes[:, 0], strict=True):
        grouped_bars(axis, methods, RATES, partial(_summaries, 100.0))
        axis.set_xlim(-0.55, columns - 0.45)
        axis.set_title(study.title, loc="left")
    figure.supylabel("potentially misclassified (%)", fontsize=9)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    style.legend_above(figure, handles, labels, columns=2)
    settings = [f"{study.title}: {study.radius}, {study.checkpoint_name}" for study in measured]
    caption = (
        "Rate of potentially misclassified images: those whose logit margin at clean x is smaller than the gradient "
        f"norms times ε ({'; '.join(settings)}). Lower is better. Means over seeds with one standard deviation."
    )
    return figure, caption


def draw_norms(study: StudyView) -> tuple[Figure, str]:
    figure = _bars(study, NORMS, "mean gradient norm", 1.0, columns=3)
    axis = figure.axes[0]
    heights = [patch.get_height() for patch in axis.patches if isinstance(patch, Rectangle)]
    heights = [height for height in heights if height > 0]
    # On a linear axis, one method with much larger gradients would flatten all others.
    logarithmic = bool(heights) and max(heights) > FAR_ABOVE * float(np.median(heights))
    if logarithmic:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(FuncFormatter(style.power_label))
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_ylim(bottom=min(heights) / 2)
    caption = (
        f"Mean L1 norms of gradients with respect to the clean test images, {study.checkpoint_name}. Means over seeds "
        f"with one standard deviation{'; the axis is logarithmic' if logarithmic else ''}."
    )
    return figure, caption


def _bars(study: StudyView, bars: Bars, label: str, factor: float, columns: int) -> Figure:
    read = partial(_summaries, factor)
    methods = _with_values(study, bars)
    measured = [bar for bar in bars if any(read(method, bar.measure).size for method in methods)]
    if not measured:
        raise MissingResults("the store has no diagnostics", study.command("--set", "evaluation.diagnostics=true"))
    figure, axes = style.canvas(style.width(0.8 + 0.7 * len(methods)), 2.9)
    axis = axes[0, 0]
    grouped_bars(axis, methods, measured, read)
    axis.set_ylabel(label)
    handles, labels = axis.get_legend_handles_labels()
    style.legend_above(figure, handles, labels, columns=columns)
    return figure


def _with_values(study: StudyView, bars: Bars) -> list[MethodView]:
    return [
        method for method in study.adversarial_methods if any(_summaries(1.0, method, bar.measure).size for bar in bars)
    ]


def _summaries(factor: float, method: MethodView, key: str) -> np.ndarray:
    return factor * method.summaries(key, method.study.checkpoint)


FIGURES = [
    ReportFigure(
        90, "potentially_misclassified", "Potentially misclassified images", draw_rates, together=draw_rates_together
    ),
    ReportFigure(100, "gradient_norms", "Gradient norms", draw_norms),
]
