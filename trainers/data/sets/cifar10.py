"""CIFAR10 (Krizhevsky 2009): 32x32 colour images of ten classes."""

from __future__ import annotations

from pathlib import Path

from trainers.dataset import DatasetFacts, DataSource, Parts


def load(folder: Path, download: bool) -> Parts:
    from trainers.data.torchvision_sets import cifar_parts

    return cifar_parts("CIFAR10", folder, download)


cifar10 = DataSource(
    DatasetFacts(10, (3, 32, 32), 50000, 10000, (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)),
    display="CIFAR10",
    load=load,
    files="cifar-10-batches-py/{data_batch_1..5, test_batch, batches.meta}",
)
