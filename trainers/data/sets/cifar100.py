"""CIFAR100 (Krizhevsky 2009): 32x32 colour images of a hundred classes."""

from __future__ import annotations

from pathlib import Path

from trainers.dataset import DatasetFacts, DataSource, Parts


def load(folder: Path, download: bool) -> Parts:
    from trainers.data.torchvision_sets import cifar_parts

    return cifar_parts("CIFAR100", folder, download)


cifar100 = DataSource(
    DatasetFacts(
        100,
        (3, 32, 32),
        50000,
        10000,
        (0.5070751592371323, 0.48654887331495095, 0.4409178433670343),
        (0.2673342858792401, 0.2564384629170883, 0.27615047132568404),
    ),
    display="CIFAR100",
    load=load,
    files="cifar-100-python/{train, test, meta}",
)
