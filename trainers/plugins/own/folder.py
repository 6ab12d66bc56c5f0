"""`folder:PATH`: images in one subfolder per class under train/ and test/ (or val/), decoded and resized by one rule.

The rule: images that all have the same size are not resized. Otherwise, or if a side is given (`folder:PATH@64`), each
becomes a square of that side: its largest centred square is cropped and resized bilinearly, with Pillow's antialiasing.
If all images are grey they have one channel, otherwise all become RGB. Each part is put in a fixed random order, so
that its first or last thousand images are not all of one class.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.dataset import DataMissing
from trainers.plugins.own.cache import CHUNK, Reading, Split

if TYPE_CHECKING:
    import numpy as np

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", ".gif")
GREY = ("1", "L", "I;16")
ORDER_SEED = 20_260_101  # seed of the fixed order of the images

Labelled = list[tuple[str, int]]  # (file, label)


def files_of(root: Path) -> tuple[list[str], Labelled, Labelled]:
    """Return class names, training files and test files, in order of name. Raise DataMissing if a folder is missing."""
    train, test = _part(root, ("train",)), _part(root, ("test", "val"))
    names = sorted(entry.name for entry in os.scandir(train) if entry.is_dir() and not entry.name.startswith("."))
    if len(names) < 2:
        raise DataMissing(f"{train} has {len(names)} subfolders; it needs one for each of at least two classes")
    unknown = sorted({entry.name for entry in os.scandir(test) if entry.is_dir()} - set(names))
    if unknown:
        raise DataMissing(f"{test} has classes that {train} lacks: {', '.join(unknown[:5])}")
    return names, labelled(train, names), labelled(test, names)


def _part(root: Path, names: Sequence[str]) -> Path:
    for name in names:
        if (root / name).is_dir():
            return root / name
    raise DataMissing(
        f"{root} has no folder {' or '.join(names)}; it needs train/ and test/ (or val/), each with one subfolder of "
        "images per class"
    )


def labelled(part: Path, names: Sequence[str]) -> Labelled:
    """Return the images of a part with their labels, in order of class and name."""
    files = [(file, label) for label, name in enumerate(names) for file in _images_in(part / name)]
    if not files:
        raise DataMissing(f"{part} holds no images ({', '.join(ENDINGS)})")
    return files


def _images_in(folder: Path) -> list[str]:
    return sorted(
        os.path.join(parent, name)
        for parent, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith(ENDINGS) and not name.startswith(".")
    )


def reading(names: Sequence[str], train: Labelled, test: Labelled, side: int | None) -> Reading:
    """Read every image's header, decode nothing yet, and return the source.

    `side` is the side to resize to, or None to keep a common size. Raise DataMissing if sizes differ and no side is
    given.
    """
    import numpy as np

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        heads = list(threads.map(_head, (file for file, _ in [*train, *test]), chunksize=CHUNK))
    sizes = {size for size, _ in heads}
    if side is None and len(sizes) > 1:
        few = ", ".join(f"{width}x{height}" for width, height in sorted(sizes)[:4])
        raise DataMissing(
            f"the images have {len(sizes)} sizes ({few}{', …' if len(sizes) > 4 else ''}); give the side to "
            "resize them to, such as folder:PATH@64"
        )
    width, height = (side, side) if side else next(iter(sizes))
    grey = all(mode in GREY for _, mode in heads)
    generator = np.random.Generator(np.random.PCG64(ORDER_SEED))

    def split(files: Labelled) -> Split:
        labels = np.array([label for _, label in files], np.int64)
        pieces = _decoded([file for file, _ in files], (width, height), "L" if grey else "RGB")
        return Split(labels, pieces, generator.permutation(len(files)))

    return Reading((1 if grey else 3, height, width), tuple(names), split(train), split(test))


def _head(file: str) -> tuple[tuple[int, int], str]:
    from PIL import Image

    try:
        with Image.open(file) as image:
            return image.size, image.mode
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as fault:
        raise _unreadable(file, fault) from None


def _decoded(files: Sequence[str], size: tuple[int, int], mode: str) -> Iterator[np.ndarray]:
    import numpy as np

    decode = partial(_pixels, size=size, mode=mode)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for start in range(0, len(files), CHUNK):
            piece = np.stack(list(threads.map(decode, files[start : start + CHUNK])))
            yield piece[:, None] if mode == "L" else piece.transpose(0, 3, 1, 2)


def _pixels(file: str, size: tuple[int, int], mode: str) -> Any:
    import numpy as np
    from PIL import Image

    try:
        with Image.open(file) as opened:
            image = opened.convert(mode)
        if image.size != size:
            square = min(image.size)
            left, top = ((length - square) // 2 for length in image.size)
            image = image.crop((left, top, left + square, top + square)).resize(size, Image.Resampling.BILINEAR)
        return np.asarray(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as fault:
        raise _unreadable(file, fault) from None


def _unreadable(file: str, fault: Exception) -> DataMissing:
    return DataMissing(f"image {file} cannot be decoded ({fault}); fetch it again or remove it")
