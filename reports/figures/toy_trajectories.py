"""The toy problem: closed forms by Lambert's W, their approximations and Runge-Kutta solutions."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.view import ReportFigure
from trainers.measures import closed_forms as toy

LINES = (
    ("ovr", 10, style.VERMILLION, "OVR"),
    ("ce", 10, style.BLACK, "CE, K=10"),
    ("ce", 100, style.BLUE, "CE, K=100"),
)
WEIGHTS = ((1.0, "-"), (5.0, "--"))
RUNGE_KUTTA_UNTIL = 100.0


def draw() -> tuple[Figure, str]:
    figure, axes = style.canvas(style.FULL, 3.8, 1, 2, width_ratios=(1.5, 1))
    _margins(axes[0, 0])
    _ratio(axes[0, 1])
    handles, labels = axes[0, 0].get_legend_handles_labels()
    style.legend_above(figure, handles, labels, columns=4)
    caption = (
        "Left: logit margin loss of the toy problem under gradient flow. Lines are the closed forms, markers the "
        "fourth-order Runge-Kutta solution with step 0.1, and dotted lines the approximations for large t (for "
        "cross-entropy only where its logarithm exists). Right: the ratio of the two margins tends slowly to 2."
    )
    return figure, caption


def _margins(axis) -> None:
    times = np.concatenate([[0.0], np.geomspace(0.1, 1e4, 240)])
    marks = np.unique(np.round(np.geomspace(1, RUNGE_KUTTA_UNTIL * 10, 10)).astype(int))
    for loss, classes, color, name in LINES:
        rk_times, path = toy.integrate(loss, classes, [weight for weight, _ in WEIGHTS], until=RUNGE_KUTTA_UNTIL)
        for index, (weight, dash) in enumerate(WEIGHTS):
            exact = toy.ovr_margin_loss(weight, times) if loss == "ovr" else toy.ce_margin_loss(classes, weight, times)
            approximation = (
                toy.ovr_margin_loss_approximation(weight, times)
                if loss == "ovr"
                else toy.ce_margin_loss_approximation(classes, weight, times)
            )
            axis.plot(times, exact, color=color, linestyle=dash, label=f"{name}, w={weight:g}")
            axis.plot(times, approximation, color=color, linestyle=":", linewidth=1.0)
            margin = path[:, index, 1] - path[:, index, 0]
            axis.plot(
                rk_times[marks],
                margin[marks],
                linestyle="none",
                marker="o" if index == 0 else "s",
                markersize=4.5,
                markerfacecolor="white",
                markeredgecolor=color,
            )
    axis.plot([], [], color=style.GREY, linestyle=":", linewidth=1.0, label="approximation")
    axis.plot([], [], linestyle="none", marker="o", markerfacecolor="white", color=style.GREY, label="Runge-Kutta")
    axis.set_xscale("symlog", linthresh=1.0, linscale=0.6)
    axis.set_xlim(0, times[-1])
    axis.set_ylim(-22, 0.6)
    axis.set_xlabel("time t")
    axis.set_ylabel("logit margin loss")
    axis.set_title("Margin loss on the toy problem", loc="left")
    axis.xaxis.set_major_formatter(style.power_label)


def _ratio(axis) -> None:
    times = np.geomspace(0.1, 1e30, 300)
    for classes, color, dash in ((10, style.BLACK, "-"), (100, style.BLUE, "--")):
        ratio = toy.ovr_margin_loss(1.0, times) / toy.ce_margin_loss(classes, 1.0, times)
        axis.plot(times, ratio, color=color, linestyle=dash, label=f"K={classes}, w=1")
    axis.axhline(2.0, color=style.GREY, linewidth=1.0, linestyle=":")
    axis.annotate("limit 2", (times[0], 2.0), (4, 3), textcoords="offset points", color="#444444")
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(style.power_label)
    axis.set_xlim(times[0], times[-1])
    axis.set_ylim(0.5, 2.15)
    axis.set_xlabel("time t")
    axis.set_ylabel("margin of OVR / margin of CE")
    axis.set_title("Ratio of the margins", loc="left")
    axis.legend(loc="lower right")


FIGURES = [ReportFigure(0, "toy_trajectories", "The toy problem", draw, needs_study=False)]
