"""What is known of each data set without opening a file. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass


class DataMissing(ValueError):
    """Files of a data set are absent and cannot be had; the message says which, where, and the way out."""


@dataclass(frozen=True)
class DatasetFacts:
    classes: int
    shape: tuple[int, int, int]
    train_images: int
    test_images: int
    mean: tuple[float, ...] | None = None  # None: pixels go into the network as they are
    std: tuple[float, ...] | None = None


FACTS: dict[str, DatasetFacts] = {
    "digits": DatasetFacts(10, (1, 8, 8), 1437, 360),
    "mnist": DatasetFacts(10, (1, 28, 28), 60000, 10000, (0.1307,), (0.3081,)),
    "cifar10": DatasetFacts(10, (3, 32, 32), 50000, 10000, (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)),
    "cifar100": DatasetFacts(
        100,
        (3, 32, 32),
        50000,
        10000,
        (0.5070751592371323, 0.48654887331495095, 0.4409178433670343),
        (0.2673342858792401, 0.2564384629170883, 0.27615047132568404),
    ),
    "svhn": DatasetFacts(10, (3, 32, 32), 73257, 26032, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}


def dataset_names() -> tuple[str, ...]:
    return tuple(FACTS)


def dataset_facts(name: str) -> DatasetFacts:
    if name not in FACTS:
        raise ValueError(f"unknown data set {name!r}; known: {', '.join(FACTS)}")
    return FACTS[name]
