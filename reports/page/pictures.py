"""The drawn figures as data addresses for the page: the smaller of a compact SVG and a PNG of few colours."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from reports.figures.draw import FigureEntry, read_index

# A figure of more bytes than this is shown as pixels where those are fewer; beside the page it is in both forms.
LARGEST_SVG = 80_000
SCALE = 110  # pixels of the page to an inch of a figure: 9 points of type are 14 pixels
WIDE = 6.0  # inches: takes the whole width of the page
COLORS = 96

_NUMBERS = re.compile(r"-?\d+\.\d{3,}")
_PLACES = re.compile(r' (?:d|x|y|points)="[^"]*"|translate\([^)]*\)')
_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z(])")


@dataclass(frozen=True)
class Picture:
    """One line of the figures' index; without `uri` it was not drawn."""

    entry: FigureEntry
    uri: str = ""
    narrow: str = ""  # the same for a phone
    width: int = 0  # pixels of the page
    height: int = 0

    @property
    def is_wide(self) -> bool:
        return self.entry.width > WIDE

    @property
    def caption(self) -> tuple[str, str]:
        return first_sentence(self.entry.caption)


def read_pictures(figures: Sequence[Path]) -> list[Picture]:
    """Of all that the index beside these files lists."""
    if not figures:
        return []
    folder = figures[0].parent
    return [_picture(folder, entry) for entry in read_index(folder)]


def first_sentence(text: str) -> tuple[str, str]:
    """And the rest, which is shown when it is asked for."""
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
    """Without what no eye sees: remarks, and hundredths of a point behind every coordinate."""
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*\n\s*", " ", svg).replace("> <", "><")
    return _PLACES.sub(lambda place: _NUMBERS.sub(_shorter, place[0]), svg)


def _shorter(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def few_colors(png: Path) -> bytes:
    content = io.BytesIO()
    with Image.open(png) as image:
        small = image.convert("RGB").quantize(COLORS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        small.save(content, "PNG", optimize=True)
    return content.getvalue()
