"""The common style of all figures: Okabe-Ito colours, never colour alone, and the same bytes for the same numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from sweep.store.files import replacing

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#808080"
FAINT, PALE = "#D9D9D9", "#F0F0F0"

# Widths in inches. Every figure has one of them and is shown at one scale, so that all type has the same size.
FULL, HALF, NARROW = 10.0, 4.85, 3.1

# Applied while a figure is drawn and saved. parse_math is off, so that a "$" in a user's name stays a dollar sign.
RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.edgecolor": "#444444",
    "axes.labelcolor": "#222222",
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    "errorbar.capsize": 2.5,
    "hatch.linewidth": 0.7,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "text.parse_math": False,
    "svg.hashsalt": "robustsweep",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,  # journals reject type 3
}

COLORS = {"black": BLACK, "orange": ORANGE, "sky": SKY, "green": GREEN}
COLORS |= {"blue": BLUE, "vermillion": VERMILLION, "purple": PURPLE, "grey": GREY}
# For methods that the paper gives no look.
_OTHER = ((BLUE, "*", "-."), (PURPLE, "X", "-."), (GREEN, "d", "-."), (BLACK, "H", "-."), (VERMILLION, "8", "-."))
# For further labels of the same method, as in an ablation.
_VARIANTS = (
    *((BLUE, "o", "--"), (GREEN, "s", "-."), (PURPLE, "^", ":"), (SKY, "v", "-")),
    *((ORANGE, "P", "--"), (BLACK, "X", "-."), (GREY, "*", ":"), (VERMILLION, "p", "--")),
)


@dataclass(frozen=True)
class MethodStyle:
    """Colour, marker and dash of a method; combinations have hollow markers."""

    color: str
    marker: str
    dash: Any
    filled: bool

    def line(self) -> dict[str, Any]:
        """Return keyword arguments for a line with markers."""
        return {"linestyle": self.dash, **self.points()}

    def points(self) -> dict[str, Any]:
        """Return keyword arguments for markers alone."""
        face = self.color if self.filled or self.marker in "xX+" else "white"
        return {"color": self.color, "marker": self.marker, "markerfacecolor": face, "markeredgecolor": self.color}


def method_styles(
    methods: Iterable[tuple[str, str]], looks: Mapping[str, tuple[str, str, str]]
) -> dict[str, MethodStyle]:
    """Return a style by label for (label, method) pairs.

    A combination keeps its method's colour with a hollow marker. `looks` has colour, marker and dash by method.
    """
    styles: dict[str, MethodStyle] = {}
    variants: dict[str, int] = {}
    unknown: dict[str, int] = {}
    for label, method in methods:
        base, plus, _ = method.partition("+")
        if base not in looks:
            unknown.setdefault(base, len(unknown))
        color, marker, dash = looks.get(base) or _OTHER[unknown[base] % len(_OTHER)]
        color = COLORS.get(color, color)
        variant = variants.get(base + plus, 0)
        variants[base + plus] = variant + 1
        if plus:
            dash = "--"
        if variant:
            variant_color, marker, dash = _VARIANTS[(variant - 1) % len(_VARIANTS)]
            color = color if plus else variant_color
        styles[label] = MethodStyle(color, marker, dash, filled=not plus)
    return styles


def plain(name: str, limit: int = 22) -> str:
    """Return a user's name as one short printable line. Control characters would make the SVG invalid."""
    text = re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in name)).strip() or "?"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def wrapped(name: str) -> str:
    """Return a method's name on two lines, broken before its wrapper or remark, for narrow places such as bars."""
    return re.sub(r" \(|(?<=.)\+|(?<=,) ", lambda match: "\n" + match[0].strip(), name, count=1)


def mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else float("nan")


def deviation(values: np.ndarray) -> float:
    """Return the standard deviation over seeds (ddof 1), or NaN, which draws no whisker, for a single seed."""
    return float(values.std(ddof=1)) if values.size > 1 else float("nan")


def canvas(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, np.ndarray]:
    """Return a figure outside pyplot (no global state) and its axes as a rows x columns array.

    Width and height are in inches; `options` go to `Figure.subplots`.
    """
    figure = Figure(figsize=(width, height), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def width(needed: float) -> float:
    """Return the smallest standard width, HALF or FULL, that has the needed inches."""
    return HALF if needed <= HALF else FULL


def grid_shape(panels: int, most: int) -> tuple[int, int]:
    """Return rows and columns for the panels, with at most `most` columns and rows as even as possible."""
    rows = -(-panels // most)
    return rows, -(-panels // rows)


def hide_unused(axes: np.ndarray, used: int) -> None:
    """Hide the unused panels of the last row, and show tick labels on the panels above them."""
    for axis in axes.ravel()[used:]:
        axis.set_visible(False)
    for axis in axes.ravel()[max(0, used - axes.shape[1]) : used]:
        axis.tick_params(labelbottom=True)


def legend_above(figure: Figure, handles: list[Any], labels: list[str], columns: int = 6) -> None:
    """Draw a legend above the axes, with as many columns as fit into the figure's width."""
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    for count in range(min(columns, len(labels)), 0, -1):
        legend = figure.legend(handles, labels, loc="outside upper center", ncols=count)
        if count == 1 or legend.get_window_extent(renderer).width <= figure.bbox.width:
            return
        legend.remove()


def power_label(value: float, _position: int | None = None) -> str:
    """Return a tick label for a logarithmic axis. Matplotlib's own labels need mathematical markup, which is off."""
    exponent = round(np.log10(value)) if value > 0 else 0
    if value <= 0 or exponent in (-1, 0, 1, 2):
        return f"{value:g}"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def save(figure: Figure, stem: Path, *, pdf: bool = True) -> list[Path]:
    """Write SVG, PNG and, if asked, PDF, without dates or versions: unchanged numbers give unchanged files.

    The canvases print the figure themselves, because `savefig` would lay it out again for each format.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    svg, png, pdf_path = (stem.with_name(stem.name + end) for end in (".svg", ".png", ".pdf"))
    # PNG comes first, because print_svg leaves the figure at 72 dots per inch.
    with replacing(png) as stream:
        FigureCanvasAgg(figure).print_png(stream, metadata={"Software": None})
    with replacing(svg) as stream:
        FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None, "Creator": None})
    if not pdf:
        return [svg, png]
    with replacing(pdf_path) as stream:
        FigureCanvasPdf(figure).print_pdf(stream, metadata={"CreationDate": None, "Creator": None, "Producer": None})
    return [svg, png, pdf_path]
