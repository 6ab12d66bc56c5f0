"""The digits that come with scikit-learn: 1797 real 8x8 images."""

from __future__ import annotations

from pathlib import Path

from trainers.dataset import DatasetFacts, DataSource, Parts

TEST_PER_CLASS = 36


def load(folder: Path, download: bool) -> Parts:
    """Return the digits; 36 images of each class, evenly spread over the file, are for testing."""
    import numpy as np
    import torch
    from sklearn.datasets import load_digits

    source = load_digits()
    images = torch.from_numpy(np.rint(source.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    labels = torch.from_numpy(source.target.astype(np.int64))
    for_test = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(10):
        positions = torch.nonzero(labels == label).flatten()
        spread = (torch.arange(TEST_PER_CLASS) * len(positions)) // TEST_PER_CLASS
        for_test[positions[spread]] = True
    return images[~for_test], labels[~for_test], images[for_test], labels[for_test]


digits = DataSource(DatasetFacts(10, (1, 8, 8), 1437, 360), display="Digits", load=load)
