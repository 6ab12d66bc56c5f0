"""Where the images come from: scikit-learn's bundled digits, everything else through torchvision's data sets."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainers.data.bundle import DataBundle
from trainers.data.facts import DataMissing, dataset_facts
from trainers.data.torchvision_import import torchvision_datasets

# What must be in the data folder; shown when it is not.
_FILES = {
    "mnist": "MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte",
    "cifar10": "cifar-10-batches-py/{data_batch_1..5, test_batch, batches.meta}",
    "cifar100": "cifar-100-python/{train, test, meta}",
    "svhn": "train_32x32.mat and test_32x32.mat",
}
_CLASSES = {"mnist": "MNIST", "cifar10": "CIFAR10", "cifar100": "CIFAR100", "svhn": "SVHN"}
_DIGITS_TEST_PER_CLASS = 36


def load(name: str, data_dir: Path | str | None = None, *, download: bool = True) -> DataBundle:
    """The whole data set as uint8 tensors. Raises DataMissing when it is neither there nor to be had."""
    dataset_facts(name)
    if name == "digits":
        return _digits()
    folder = Path(data_dir or "data")
    train_images, train_labels = _torchvision_part(name, folder, True, download)
    test_images, test_labels = _torchvision_part(name, folder, False, download)
    return DataBundle(name, train_images, train_labels, test_images, test_labels)


def _digits() -> DataBundle:
    """1797 real 8x8 images; of each class 36, evenly spread over the file, are for testing."""
    from sklearn.datasets import load_digits

    source = load_digits()
    images = torch.from_numpy(np.rint(source.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    labels = torch.from_numpy(source.target.astype(np.int64))
    for_test = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(10):
        positions = torch.nonzero(labels == label).flatten()
        spread = (torch.arange(_DIGITS_TEST_PER_CLASS) * len(positions)) // _DIGITS_TEST_PER_CLASS
        for_test[positions[spread]] = True
    return DataBundle("digits", images[~for_test], labels[~for_test], images[for_test], labels[for_test])


def _torchvision_part(name: str, folder: Path, train: bool, download: bool) -> tuple[Tensor, Tensor]:
    try:
        return _tensors(name, _open(name, folder, train, download=False))
    except (RuntimeError, OSError) as absent:
        reason: Exception = absent
    if download:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with open(folder / ".download.lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # trials that start together must not fetch the same file twice
                return _tensors(name, _open(name, folder, train, download=True))
        except (RuntimeError, OSError) as failed:
            reason = failed
    writable = os.access(folder, os.W_OK) or not folder.exists()
    attempt = (
        f"downloading failed: {reason}"
        if download
        else f"downloading was not asked for ({str(reason).splitlines()[0]})"
    )
    raise DataMissing(
        f"data set {name!r} not found: looked for {_FILES[name]} in {folder.resolve()}"
        f"{'' if writable else ' (not writable)'}; {attempt}. Put the files there, or name the folder that holds them "
        "with --data-dir"
    ) from None


def _open(name: str, folder: Path, train: bool, download: bool) -> Any:
    source = getattr(torchvision_datasets(), _CLASSES[name])
    if name == "svhn":
        return source(folder, split="train" if train else "test", download=download)
    return source(folder, train=train, download=download)


def _tensors(name: str, source: Any) -> tuple[Tensor, Tensor]:
    if name == "mnist":
        return source.data.unsqueeze(1).contiguous(), source.targets.to(torch.int64)
    if name == "svhn":  # torchvision has already turned the file's label 10 into 0
        return torch.from_numpy(np.ascontiguousarray(source.data)), torch.from_numpy(source.labels.astype(np.int64))
    images = torch.from_numpy(np.ascontiguousarray(source.data.transpose(0, 3, 1, 2)))
    return images, torch.tensor(source.targets, dtype=torch.int64)
