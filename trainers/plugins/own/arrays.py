"""Images and labels as arrays, from an .npz or a function: checked and converted to channels first, in order."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

from trainers.dataset import DataMissing
from trainers.plugins.own.cache import CHUNK, PARTS, Reading, Split

if TYPE_CHECKING:
    import numpy as np

OTHER_NAMES = {"x_train": PARTS[0], "y_train": PARTS[1], "x_test": PARTS[2], "y_test": PARTS[3]}
FORMS = "uint8 of (N, C, H, W), (N, H, W, C) or (N, H, W), or floats in [0, 1]"
MOST_CHANNELS = 4

Pieces = Callable[[], Iterator[Any]]  # an array's rows, in chunks


def reading(contents: Mapping[str, Any], pieces: Mapping[str, Pieces], where: str, watched: tuple[str, ...]) -> Reading:
    """Check the arrays and return a source to decode. Raise DataMissing if they are no images and labels.

    `contents` holds the labels as arrays and, for the images, anything with a shape and a dtype. `pieces` yields the
    images in chunks.
    """
    labels = {part: _labels(contents[f"{part}_labels"], f"{where}: {part}_labels") for part in ("train", "test")}
    shapes = {}
    for part in labels:
        shape = tuple(contents[f"{part}_images"].shape)
        shapes[part] = _channels_first(shape, f"{where}: {part}_images")
        if shape[0] != len(labels[part]) or not shape[0]:
            raise DataMissing(f"{where}: {shape[0]} {part}_images, but {len(labels[part])} {part}_labels")
    if shapes["train"][0] != shapes["test"][0]:
        raise DataMissing(f"{where}: train_images are {shapes['train'][0]}, but test_images {shapes['test'][0]}")
    names = _class_names(contents.get("class_names"), labels, where)
    splits = {
        part: Split(labels[part], _converted(pieces[f"{part}_images"], shapes[part][1], f"{where}: {part}_images"))
        for part in labels
    }
    return Reading(shapes["train"][0], names, splits["train"], splits["test"], watched)


def of_npz(path: str) -> Reading:
    """Return a source that reads an .npz in chunks, so that it is never unpacked whole. Python objects are rejected."""
    import numpy as np

    where = path
    try:
        with zipfile.ZipFile(path) as archive:
            members = [name.removesuffix(".npy") for name in archive.namelist()]
            names = {OTHER_NAMES.get(name, name): name for name in members}
            missing = [part for part in PARTS if part not in names]
            if missing:
                raise DataMissing(
                    f"{where} has no {', '.join(missing)}; it holds {', '.join(members) or 'nothing'}. It needs "
                    f"{', '.join(PARTS)} (or {', '.join(OTHER_NAMES)})"
                )
        contents: dict[str, Any] = {part: _Member(path, names[part]) for part in PARTS}
        for part in (*PARTS[1::2], "class_names"):
            if part in names:
                contents[part] = np.concatenate(list(_Member(path, names[part]).pieces()))
    except zipfile.BadZipFile:
        raise DataMissing(f"{where} is not an .npz file (a zip of arrays); save one with numpy.savez") from None
    pieces = {part: contents[part].pieces for part in PARTS[::2]}
    return reading(contents, pieces, where, (path,))


class _Member:
    """An array of an .npz: its shape and type are read at once, its rows on demand."""

    def __init__(self, path: str, name: str) -> None:
        self.path, self.name = path, name
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as stream:
            self.shape, self.fortran, self.dtype = array_header(path, stream)

    def pieces(self) -> Iterator[np.ndarray]:
        import numpy as np

        if self.fortran and len(self.shape) > 1:
            raise DataMissing(f"{self.path}: {self.name} is in Fortran order; save numpy.ascontiguousarray of it")
        row = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        with zipfile.ZipFile(self.path) as archive, archive.open(f"{self.name}.npy") as stream:
            array_header(self.path, stream)
            for start in range(0, self.shape[0] if self.shape else 0, CHUNK):
                rows = min(CHUNK, self.shape[0] - start)
                content = stream.read(rows * row)
                if len(content) != rows * row:
                    raise DataMissing(f"{self.path}: {self.name} ends early; fetch it again")
                yield np.frombuffer(content, self.dtype).reshape(rows, *self.shape[1:])


def array_header(path: Any, stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Read an .npy header and return shape, Fortran order and type. Raise DataMissing for Python objects."""
    import numpy as np

    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except ValueError as fault:
        raise DataMissing(f"{path} holds something other than arrays ({fault}); save one with numpy.savez") from None
    if dtype.hasobject:
        raise DataMissing(f"{path} holds Python objects, which are never loaded; save plain arrays")
    return shape, fortran, dtype


def of_returned(returned: Any, where: str, watched: tuple[str, ...]) -> Reading:
    """Return a source from the value that a user's function returned.

    It is four or five arrays or tensors in the order of PARTS, with class names last, or a mapping with these names.
    """
    import numpy as np

    if isinstance(returned, tuple | list) and len(returned) in (4, 5):
        returned = dict(zip((*PARTS, "class_names"), returned, strict=False))
    if not isinstance(returned, Mapping) or not set(PARTS) <= set(returned):
        raise DataMissing(
            f"{where} returned {_kind(returned)}; return train_images, train_labels, test_images, test_labels and, "
            "optionally, class_names: as a tuple in this order, or as a dict"
        )
    contents: dict[str, Any] = dict(returned)
    for part in PARTS:
        value = contents[part]
        contents[part] = value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)

    def rows(array: Any) -> Pieces:
        return lambda: (array[start : start + CHUNK] for start in range(0, len(array), CHUNK))

    return reading(contents, {part: rows(contents[part]) for part in PARTS[::2]}, where, watched)


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dict with {', '.join(map(str, value)) or 'nothing'}"
    return f"{len(value)} values" if isinstance(value, tuple | list) else type(value).__name__


def _labels(labels: Any, where: str) -> np.ndarray:
    import numpy as np

    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataMissing(
            f"{where} must be one whole number for each image, not {labels.dtype} of shape {labels.shape}"
        )
    return np.asarray(labels, np.int64)


def _class_names(class_names: Any, labels: Mapping[str, np.ndarray], where: str) -> tuple[str, ...]:
    highest = max(int(part.max(initial=-1)) for part in labels.values())
    lowest = min(int(part.min(initial=0)) for part in labels.values())
    names = tuple(map(str, class_names)) if class_names is not None else tuple(map(str, range(highest + 1)))
    if lowest < 0 or highest >= len(names) or len(names) < 2:
        raise DataMissing(
            f"{where}: labels go from {lowest} to {highest}, not 0 to {len(names) - 1} as for {len(names)} classes; "
            "there must be at least 2"
        )
    return names


def _channels_first(shape: tuple[int, ...], where: str) -> tuple[tuple[int, int, int], tuple[int, ...]]:
    """Return (C, H, W) and the axes that transpose an array of this shape to it."""
    if len(shape) == 3:
        return (1, shape[1], shape[2]), ()
    if len(shape) == 4 and shape[1] <= MOST_CHANNELS:
        return (shape[1], shape[2], shape[3]), (0, 1, 2, 3)
    if len(shape) == 4 and shape[3] <= MOST_CHANNELS:
        return (shape[3], shape[1], shape[2]), (0, 3, 1, 2)
    raise DataMissing(f"{where} have shape {shape}; images are {FORMS}, with at most {MOST_CHANNELS} channels")


def _converted(pieces: Pieces, axes: tuple[int, ...], where: str) -> Iterator[np.ndarray]:
    """Yield the pieces as uint8 (n, C, H, W)."""
    for piece in pieces():
        bytes_ = _bytes(piece, where)
        yield bytes_.transpose(axes) if axes else bytes_[:, None]


def _bytes(piece: np.ndarray, where: str) -> np.ndarray:
    """Return a piece as uint8. Floats in [0, 1] are rounded to 256 levels, as in a file of such images."""
    import numpy as np

    if piece.dtype == np.uint8:
        return piece
    low, high = (piece.min(), piece.max()) if piece.size else (0, 0)
    if piece.dtype.kind == "f" and 0 <= low and high <= 1:
        return np.rint(piece * 255).astype(np.uint8)
    if piece.dtype.kind in "iu" and 0 <= low and high <= 255:
        return piece.astype(np.uint8)
    raise DataMissing(f"{where} are {piece.dtype} from {low:g} to {high:g}; images are {FORMS}")
