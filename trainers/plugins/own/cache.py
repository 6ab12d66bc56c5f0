"""A cache of decoded images: arrays on disk, named by their content, that later trainings map into memory.

    <root>/<key>.json           facts, content hash and stamp of what was decoded; replaced when the source changes
    <root>/arrays/<sha256>/     train_images.npy, train_labels.npy, test_images.npy, test_labels.npy; never changed

numpy and torch are loaded only to write and to open arrays.
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
RULES = 1  # increased when decoding changes, so that caches are rebuilt


@dataclass(frozen=True)
class Split:
    """Labels, and images in pieces of uint8 (n, C, H, W); the i-th image is stored at position `order[i]`."""

    labels: np.ndarray
    images: Iterable[np.ndarray]
    order: np.ndarray | None = None


@dataclass(frozen=True)
class Reading:
    """A source about to be decoded. The cache is stale once one of the `watched` files changes."""

    shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    train: Split
    test: Split
    watched: tuple[str, ...] = ()


@dataclass(frozen=True)
class CacheEntry:
    """A cached data set: its facts, the hash of its content and the stamp of its source."""

    facts: DatasetFacts
    sha256: str
    stamp: str = ""


def default_root() -> Path:
    """Return the folder of this user's caches, which an environment variable can override."""
    configured = os.environ.get(VARIABLE)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(configured) if configured else Path(home) / "robustsweep"


def stamp_of(files: Iterable[str]) -> str:
    """Return a hash of names, sizes and times of files and folders, without reading them."""
    digest = hashlib.sha256()
    for file in files:
        facts = os.stat(file)
        digest.update(f"{file}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def key_of(*facts: Any) -> str:
    """Return a hash of everything that determines how a source is decoded."""
    return hashlib.sha256(json.dumps([RULES, *facts], sort_keys=True).encode()).hexdigest()[:32]


def entry(root: Path, key: str, stamp: Callable[[tuple[str, ...]], str], read: Callable[[], Reading]) -> CacheEntry:
    """Return what is cached under a key, decoding it first if it is missing or its source has changed.

    `stamp` returns the stamp of the source for its watched files; `read` opens the source.
    """
    try:
        cached = _cached(root, key, stamp)
        if cached is not None:
            return cached
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / f"{key}.lock"):  # trials that start together decode once
            return _cached(root, key, stamp) or _decoded(root, key, stamp, read)
    except OSError as fault:
        path = f"{fault.filename}: " if fault.filename else ""
        raise DataMissing(
            f"{path}{fault.strerror or fault}; decoded images are cached in {root}; set {VARIABLE} to another folder"
        ) from None


def _cached(root: Path, key: str, stamp: Callable[[tuple[str, ...]], str]) -> CacheEntry | None:
    try:
        index = json.loads((root / f"{key}.json").read_text(encoding="utf-8"))
        cached = CacheEntry(facts_from(index["facts"]), index["sha256"], index["stamp"])
        fresh = index["stamp"] == stamp(tuple(index["watched"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return cached if fresh and folder_of(root, cached.sha256).is_dir() else None


def _decoded(root: Path, key: str, stamp: Callable[[tuple[str, ...]], str], read: Callable[[], Reading]) -> CacheEntry:
    reading = read()
    before = stamp(reading.watched)
    (root / "arrays").mkdir(exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=root / "arrays"))
    try:
        facts, sha256 = write(reading, temporary)
        with contextlib.suppress(OSError):  # the same content was already cached from elsewhere
            temporary.rename(folder_of(root, sha256))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    index = {"facts": asdict(facts), "sha256": sha256, "stamp": before, "watched": reading.watched}
    unfinished = root / f"{key}.{os.getpid()}.part"
    unfinished.write_text(json.dumps(index), encoding="utf-8")
    unfinished.replace(root / f"{key}.json")
    return CacheEntry(facts, sha256, before)


def write(reading: Reading, folder: Path) -> tuple[DatasetFacts, str]:
    """Write the four arrays and return their facts and hash. At most one piece of the images is in memory."""
    import numpy as np

    for name, split in (("train", reading.train), ("test", reading.test)):
        target = np.lib.format.open_memmap(
            folder / f"{name}_images.npy", "w+", np.uint8, (len(split.labels), *reading.shape)
        )
        labels, done = np.empty(len(split.labels), np.int64), 0
        order = np.arange(len(labels)) if split.order is None else split.order
        for piece in split.images:
            positions = order[done : done + len(piece)]
            target[positions] = piece
            labels[positions] = split.labels[done : done + len(piece)]
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
    """Return each channel's mean and standard deviation in [0, 1], from exact sums; 1 for a constant channel."""
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
    return tuple(float(f"{value:.6g}") for value in mean), tuple(float(f"{value:.6g}") for value in std)


def _sha256(folder: Path) -> str:
    """Return the hash that `DataBundle.sha256` gives, so that records agree for data in memory and on disk."""
    import numpy as np

    digest = hashlib.sha256()
    for name in PARTS:
        array = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        for start in range(0, len(array), CHUNK):
            digest.update(np.ascontiguousarray(array[start : start + CHUNK]).data)
    return digest.hexdigest()


def folder_of(root: Path, sha256: str) -> Path:
    """Return the folder of the arrays with this content hash."""
    return root / "arrays" / sha256


def mapped(folder: Path) -> Parts:
    """Return the arrays as tensors that are read from disk on use; writes stay in this process."""
    import numpy as np
    import torch

    tensors = [torch.from_numpy(np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False)) for name in PARTS]
    return tensors[0], tensors[1], tensors[2], tensors[3]


def facts_from(content: dict[str, Any]) -> DatasetFacts:
    """Return the facts stored as JSON."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    return DatasetFacts(**values)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
