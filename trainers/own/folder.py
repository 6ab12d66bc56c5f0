"""`folder:PATH`: images in one subfolder per class under train/ and test/ (or val/), decoded and resized by one rule.

The rule: images that all have one size stay as they are. Otherwise, and where a side is asked for (`folder:PATH@64`),
each becomes a square of that side: its largest centred square is cut out and resized bilinearly, with Pillow's
antialiasing. All grey images are one channel; else all become RGB. Each part is put in a fixed random order, so that
the first or the last thousand are no class of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.dataset import DataMissing
from trainers.own.cache import CHUNK, Reading, Split

if TYPE_CHECKING:
    import numpy as np

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", ".gif")
GREY = ("1", "L", "I;16")
ORDER_SEED = 20_260_101  # of the fixed order of the images

Labelled = list[tuple[str, int]]  # files with their labels


def files_of(root: Path) -> tuple[list[str], Labelled, Labelled]:
    """Class names, training files and test files, in the order of their names; DataMissing says what is not there."""
    train, test = _part(root, ("train",)), _part(root, ("test", "val"))
    names = sorted(one.name for one in os.scandir(train) if one.is_dir() and not one.name.startswith("."))
    if len(names) < 2:
        raise DataMissing(f"{train} has {len(names)} subfolders; it needs one for each of at least two classes")
    unknown = sorted({one.name for one in os.scandir(test) if one.is_dir()} - set(names))
    if unknown:
        raise DataMissing(f"{test} has classes that {train} has not: {', '.join(unknown[:5])}")
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
    found = [(file, label) for label, name in enumerate(names) for file in _images_in(part / name)]
    if not found:
        raise DataMissing(f"{part} holds no images ({', '.join(ENDINGS)})")
    return found


def _images_in(folder: Path) -> list[str]:
    return sorted(
        os.path.join(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith(ENDINGS) and not name.startswith(".")
    )


def reading(names: Sequence[str], train: Labelled, test: Labelled, side: int | None) -> Reading:
    """Looks at every header, decodes nothing yet."""
    import numpy as np

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        heads = list(threads.map(_head, (file for file, _ in [*train, *test]), chunksize=CHUNK))
    sizes = {size for size, _ in heads}
    if side is None and len(sizes) > 1:
        few = ", ".join(f"{width}x{height}" for width, height in sorted(sizes)[:4])
        raise DataMissing(
            f"the images have {len(sizes)} sizes ({few}{', …' if len(sizes) > 4 else ''}); say the side that they are "
            "resized to, such as folder:PATH@64"
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
    return DataMissing(f"image {file} cannot be decoded ({fault}); fetch it again or take it away")
