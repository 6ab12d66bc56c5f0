"""Images decoded once: arrays on disk that every later training maps into memory, named by their content.

    <root>/<key>.json           facts, content hash and stamp of what was decoded; replaced when the source changes
    <root>/arrays/<sha256>/     train_images.npy, train_labels.npy, test_images.npy, test_labels.npy; never changed

Loads numpy and torch only to write and to open.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.dataset import DataMissing, DatasetFacts, Parts

if TYPE_CHECKING:
    import numpy as np

VARIABLE = "ROBUSTSWEEP_CACHE"
PARTS = ("train_images", "train_labels", "test_images", "test_labels")  # the order in which they are hashed
CHUNK = 1024  # images
RULES = 1  # raised when decoding changes, so that caches are made anew


@dataclass(frozen=True)
class Split:
    """Labels, and the images in pieces of uint8 (n, C, H, W); `order[i]` is the place of the i-th image that comes."""

    labels: np.ndarray
    images: Iterable[np.ndarray]
    order: np.ndarray | None = None


@dataclass(frozen=True)
class Reading:
    """A source that is about to be decoded. `watched`: files whose change makes the cache stale."""

    shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    train: Split
    test: Split
    watched: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    facts: DatasetFacts
    sha256: str
    stamp: str = ""


def default_root() -> Path:
    """Where the caches of this user are, unless the environment says another place."""
    given = os.environ.get(VARIABLE)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(given) if given else Path(home) / "robustsweep"


def stamp_of(files: Iterable[str]) -> str:
    """Of the names, sizes and times of files and folders; nothing is read."""
    digest = hashlib.sha256()
    for file in files:
        facts = os.stat(file)
        digest.update(f"{file}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def key_of(*facts: Any) -> str:
    """Of everything that says how a source is decoded."""
    return hashlib.sha256(json.dumps([RULES, *facts], sort_keys=True).encode()).hexdigest()[:32]


def entry(root: Path, key: str, stamp: Callable[[tuple[str, ...]], str], read: Callable[[], Reading]) -> Entry:
    """What is cached under a key, decoded now where it is not or where its source has changed."""
    try:
        known = _known(root, key, stamp)
        if known is not None:
            return known
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / f"{key}.lock"):  # trials that start together decode once
            return _known(root, key, stamp) or _decoded(root, key, stamp, read)
    except OSError as fault:
        place = f"{fault.filename}: " if fault.filename else ""
        raise DataMissing(
            f"{place}{fault.strerror or fault}; decoded images are kept in {root}, or where {VARIABLE} says"
        ) from None


def _known(root: Path, key: str, stamp: Callable[[tuple[str, ...]], str]) -> Entry | None:
    try:
        index = json.loads((root / f"{key}.json").read_text(encoding="utf-8"))
        found = Entry(facts_from(index["facts"]), index["sha256"], index["stamp"])
        fresh = index["stamp"] == stamp(tuple(index["watched"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return found if fresh and folder_of(root, found.sha256).is_dir() else None


def _decoded(root: Path, key: str, stamp: Callable[[tuple[str, ...]], str], read: Callable[[], Reading]) -> Entry:
    reading = read()
    before = stamp(reading.watched)
    (root / "arrays").mkdir(exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=root / "arrays"))
    try:
        facts, sha256 = write(reading, temporary)
        with contextlib.suppress(OSError):  # the same content is there already, from another place
            temporary.rename(folder_of(root, sha256))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    index = {"facts": asdict(facts), "sha256": sha256, "stamp": before, "watched": reading.watched}
    unfinished = root / f"{key}.{os.getpid()}.part"
    unfinished.write_text(json.dumps(index), encoding="utf-8")
    unfinished.replace(root / f"{key}.json")
    return Entry(facts, sha256, before)


def write(reading: Reading, folder: Path) -> tuple[DatasetFacts, str]:
    """The four arrays, their facts and their hash, never more than a piece of the images in memory."""
    import numpy as np

    for name, split in (("train", reading.train), ("test", reading.test)):
        target = np.lib.format.open_memmap(
            folder / f"{name}_images.npy", "w+", np.uint8, (len(split.labels), *reading.shape)
        )
        labels, done = np.empty(len(split.labels), np.int64), 0
        order = np.arange(len(labels)) if split.order is None else split.order
        for piece in split.images:
            places = order[done : done + len(piece)]
            target[places] = piece
            labels[places] = split.labels[done : done + len(piece)]
            done += len(piece)
        if done != len(labels):
            raise DataMissing(f"{name}: {done} images, but {len(labels)} labels")
        target.flush()
        np.save(folder / f"{name}_labels.npy", labels)
    mean, std = _statistics(folder / "train_images.npy")
    facts = DatasetFacts(
        classes=len(reading.class_names),
        shape=reading.shape,
        train_images=len(reading.train.labels),
        test_images=len(reading.test.labels),
        mean=mean,
        std=std,
        class_names=reading.class_names,
    )
    return facts, _sha256(folder)


def _statistics(images: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel's pixels in [0, 1], from exact sums; 1 for one that never varies."""
    import numpy as np

    array = np.load(images, mmap_mode="r", allow_pickle=False)
    counts = np.zeros((array.shape[1], 256), np.int64)
    for start in range(0, len(array), CHUNK):
        for channel in range(array.shape[1]):
            counts[channel] += np.bincount(array[start : start + CHUNK, channel].ravel(), minlength=256)
    values, pixels = np.arange(256) / 255, counts.sum(axis=1)
    mean = counts @ values / pixels
    variance = counts @ values**2 / pixels - mean**2
    std = np.where(variance > 1e-12, np.sqrt(np.maximum(variance, 0)), 1.0)
    return tuple(float(f"{one:.6g}") for one in mean), tuple(float(f"{one:.6g}") for one in std)


def _sha256(folder: Path) -> str:
    """As `DataBundle.sha256` has it, so that a record says the same of a set in memory and of one on disk."""
    import numpy as np

    digest = hashlib.sha256()
    for name in PARTS:
        array = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        for start in range(0, len(array), CHUNK):
            digest.update(np.ascontiguousarray(array[start : start + CHUNK]).data)
    return digest.hexdigest()


def folder_of(root: Path, sha256: str) -> Path:
    return root / "arrays" / sha256


def mapped(folder: Path) -> Parts:
    """The arrays as tensors that read from disk as they are used; a write would stay in this process."""
    import numpy as np
    import torch

    found = [torch.from_numpy(np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False)) for name in PARTS]
    return found[0], found[1], found[2], found[3]


def facts_from(content: dict[str, Any]) -> DatasetFacts:
    """Of their JSON."""
    values: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in content.items()}
    return DatasetFacts(**values)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
