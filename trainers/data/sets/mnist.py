"""MNIST (LeCun et al. 1998): 28x28 grey images of handwritten digits."""

from __future__ import annotations

from pathlib import Path

from trainers.dataset import DatasetFacts, DataSource, Parts


def load(folder: Path, download: bool) -> Parts:
    from trainers.data.torchvision_sets import torchvision_datasets

    train, test = (torchvision_datasets().MNIST(folder, train=train, download=download) for train in (True, False))
    images = [part.data.unsqueeze(1).contiguous() for part in (train, test)]
    return images[0], train.targets.long(), images[1], test.targets.long()


mnist = DataSource(
    DatasetFacts(10, (1, 28, 28), 60000, 10000, (0.1307,), (0.3081,)),
    display="MNIST",
    load=load,
    files="MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte",
)
