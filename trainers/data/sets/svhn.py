"""SVHN (Netzer et al. 2011): 32x32 colour images of house numbers."""

from __future__ import annotations

from pathlib import Path

from trainers.dataset import DatasetFacts, DataSource, Parts


def load(folder: Path, download: bool) -> Parts:
    import numpy as np
    import torch

    from trainers.data.torchvision_sets import torchvision_datasets

    train, test = (torchvision_datasets().SVHN(folder, split=split, download=download) for split in ("train", "test"))
    images = [torch.from_numpy(np.ascontiguousarray(part.data)) for part in (train, test)]
    # torchvision has already turned the files' label 10 into 0.
    labels = [torch.from_numpy(part.labels.astype(np.int64)) for part in (train, test)]
    return images[0], labels[0], images[1], labels[1]


svhn = DataSource(
    DatasetFacts(10, (3, 32, 32), 73257, 26032, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    display="SVHN",
    load=load,
    files="train_32x32.mat and test_32x32.mat",
)
