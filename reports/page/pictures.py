"""The drawn figures as data URIs: the smaller of a compact SVG and a PNG with few colours."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from reports.figures.draw import FigureEntry, read_index

# An SVG with more bytes than this is replaced by a PNG, if that is smaller. Both files remain beside the page.
LARGEST_SVG = 80_000
SCALE = 110  # page pixels per inch of a figure: 9-point type becomes 14 pixels
WIDE = 6.0  # inches; wider figures take the whole width of the page
COLORS = 96

_NUMBERS = re.compile(r"-?\d+\.\d{3,}")
_COORDINATES = re.compile(r' (?:d|x|y|points)="[^"]*"|translate\([^)]*\)')
_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z(])")


@dataclass(frozen=True)
class Picture:
    """An entry of the figures' index with its data URI, which is empty if the figure was not drawn."""

    entry: FigureEntry
    uri: str = ""
    narrow: str = ""  # data URI of the version for phones
    width: int = 0  # page pixels
    height: int = 0

    @property
    def is_wide(self) -> bool:
        return self.entry.width > WIDE

    @property
    def caption(self) -> tuple[str, str]:
        return first_sentence(self.entry.caption)


def read_pictures(figures: Sequence[Path]) -> list[Picture]:
    """Return a picture for every entry of the index beside these files."""
    if not figures:
        return []
    folder = figures[0].parent
    return [_picture(folder, entry) for entry in read_index(folder)]


def first_sentence(text: str) -> tuple[str, str]:
    """Split a caption into its first sentence and the rest, which the page shows on demand."""
    first, *rest = _SENTENCE.split(text, maxsplit=1)
    return first, rest[0] if rest else ""


def _picture(folder: Path, entry: FigureEntry) -> Picture:
    if not entry.files:
        return Picture(entry)
    svg, png = (folder / name for name in entry.files[:2])
    with Image.open(png) as image:
        width = round(SCALE * entry.width)
        height = round(width * image.height / image.width)
    narrow = _address(*(folder / name for name in entry.narrow[:2])) if entry.narrow else ""
    return Picture(entry, _address(svg, png), narrow, width, height)


def _address(svg: Path, png: Path) -> str:
    kind, content = "image/svg+xml", compact(svg.read_text("utf-8")).encode()
    if len(content) > LARGEST_SVG:
        pixels = few_colors(png)
        if len(pixels) < len(content):
            kind, content = "image/png", pixels
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def compact(svg: str) -> str:
    """Return the SVG without comments, metadata and superfluous white space, and with coordinates to two decimals."""
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*\n\s*", " ", svg).replace("> <", "><")
    return _COORDINATES.sub(lambda match: _NUMBERS.sub(_shorter, match[0]), svg)


def _shorter(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def few_colors(png: Path) -> bytes:
    """Return the PNG reduced to a palette of COLORS colours."""
    content = io.BytesIO()
    with Image.open(png) as image:
        small = image.convert("RGB").quantize(COLORS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        small.save(content, "PNG", optimize=True)
    return content.getvalue()
