"""What M and λ do to margin, generalisation gap and robust accuracy (the paper's Figures 5 and 16)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.view import MethodView, Missing, StudyView

MARKERS = ("D", "o", "s", "^", "v", "P")


def margin(method: MethodView) -> np.ndarray:
    return method.values("margin", "last")


def gap(method: MethodView) -> np.ndarray:
    """Robust accuracy on training minus test images at the last epoch, in percentage points."""
    return 100 * method.summaries("generalization_gap", "last")


def robust(method: MethodView) -> np.ndarray:
    return method.accuracies("autoattack")


PANELS: tuple[tuple[str, str, Callable[[MethodView], np.ndarray]], ...] = (
    ("Logit margin loss", "mean on training x'", margin),
    ("Generalisation gap", "percentage points", gap),
    ("Robust accuracy", "AutoAttack (%)", robust),
)


@dataclass(frozen=True)
class Series:
    """The rows of one method that differ in the varied hyperparameter alone."""

    name: str
    points: dict[float, MethodView]


def draw_rate(study: StudyView) -> tuple[Figure, str]:
    figure = _draw(study, "M", "lam", "rate M (%)", "λ")
    return figure, "The effect of the rate M at which OVR replaces cross-entropy; M = 0 is adversarial training. " + (
        _details(study)
    )


def draw_lambda(study: StudyView) -> tuple[Figure, str]:
    figure = _draw(study, "lam", "M", "weight λ", "M")
    return figure, "The effect of the weight λ on OVR; the dashed line is adversarial training. " + _details(study)


def _details(study: StudyView) -> str:
    return (
        "The gap is that between training and test accuracy under PGD-20 at the last epoch; robust accuracy is that of "
        f"the {study.checkpoint_name}, ε = {study.epsilon}. Means over seeds with one standard deviation."
    )


def _draw(study: StudyView, varied: str, fixed: str, label: str, fixed_name: str) -> Figure:
    baseline = next((method for method in study.methods if method.method == "at"), None)
    series = _series(study, varied, fixed, fixed_name)
    if varied == "M" and baseline is not None:
        series = [Series(one.name, {0.0: baseline, **one.points}) for one in series]
    if not series:
        raise Missing(f"no two rows of SOVR differ in {varied} alone", "python -m sweep.run --study " + _study(varied))
    figure, axes = style.canvas(7.8, 2.9, 1, 3)
    for axis, (title, unit, read) in zip(axes[0], PANELS, strict=True):
        drawn = False
        for index, one in enumerate(series):
            points = {x: values for x, method in sorted(one.points.items()) if (values := read(method)).size}
            if not points:
                continue
            drawn = True
            color = (style.VERMILLION, style.BLUE, style.PURPLE, style.GREEN, style.ORANGE, style.SKY)[index % 6]
            axis.errorbar(
                list(points),
                [values.mean() for values in points.values()],
                yerr=[style.deviation(values) for values in points.values()],
                color=color,
                marker=MARKERS[index % len(MARKERS)],
                linestyle=("-", "--", "-.", ":")[index % 4],
                elinewidth=0.8,
                label=one.name,
            )
        reference = read(baseline) if baseline is not None else np.array([])
        if reference.size and varied != "M":
            axis.axhline(float(reference.mean()), color=style.GREY, linestyle="--", linewidth=1.0, label="AT")
        if not drawn:
            axis.text(0.5, 0.5, "not recorded", transform=axis.transAxes, ha="center", color=style.GREY)
        axis.set_title(title, loc="left")
        axis.set_xlabel(label)
        axis.set_ylabel(unit)
    handles = {name: handle for axis in axes[0] for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    style.legend_above(figure, list(handles.values()), list(handles))
    return figure


def _study(varied: str) -> str:
    return {"M": "cifar10_m_effect", "lam": "cifar10_lambda_effect"}[varied]


def _series(study: StudyView, varied: str, fixed: str, fixed_name: str) -> list[Series]:
    groups: dict[tuple[str, str], dict[float, MethodView]] = {}
    for method in study.methods:
        across, held = method.number(varied), method.number(fixed)
        if method.base in ("sovr", "tsovr") and method.trials and across is not None and held is not None:
            name = f"{method.base.upper()}{method.method.removeprefix(method.base).upper()}"
            groups.setdefault((name, f"{held:g}"), {}).setdefault(across, method)
    return [
        Series(f"{name}, {fixed_name} = {value}", points)
        for (name, value), points in groups.items()
        if len(points) >= 2
    ]
