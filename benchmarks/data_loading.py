"""Measure the time to gather and augment a batch, as a share of the PGD-10 training step that uses it.

    python -m benchmarks.data_loading [--batches 50]

The first part uses PreActResNet-18, batch size 128, random images of CIFAR-10's size and one thread, in processor time.
The second uses ResNet-18 with 64x64 images mapped from a cache on disk, in wall time, both with the pages in memory and
with the pages dropped before every epoch. The training step is the sum of its parts (one attack iteration, one update),
because a whole step takes half a minute on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from trainers import models
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.config import Augmentation, Recipe
from trainers.data.bundle import DataBundle
from trainers.data.order import TrainingImages
from trainers.loop.precision import prepared
from trainers.plugins.own import cache

BATCH, LIMIT, CACHE_LIMIT = 128, 0.03, 0.05
AUGMENTATIONS = {
    "cifar10 (reflect crop, flip)": Augmentation(crop="reflect", flip=True),
    "trades, seat, ddpm (zero crop, flip)": Augmentation(crop="zero", flip=True),
    "cifar100 (zero crop, flip, rotation)": Augmentation(crop="zero", flip=True, rotation=15.0),
    "svhn (none)": Augmentation(),
}


def seconds(work: Callable[[], object], repeats: int, clock: Callable[[], float] = time.process_time) -> float:
    """Return the median seconds of a call."""
    taken = []
    for _ in range(repeats):
        started = clock()
        work()
        taken.append(clock() - started)
    return statistics.median(taken)


def step_seconds(network: str = "preact_resnet18", side: int = 32) -> float:
    """Return the processor seconds of a PGD-10 training step on images of `side` x `side` pixels."""
    model = prepared(models.build(network, 10, shape=(3, side, side)), torch.device("cpu"), Recipe()).train()
    images, labels = torch.rand(BATCH, 3, side, side), torch.randint(10, (BATCH,))
    one_step = ProjectedAscent(8 / 255, 2 / 255, 1, final_forward=False)
    attack = seconds(lambda: one_step(model, images, lambda logits: F.cross_entropy(logits, labels)), 2)
    update = seconds(lambda: F.cross_entropy(model(images), labels).backward(), 2)
    return 10 * attack + update


def batch_seconds(augmentation: Augmentation, batches: int) -> float:
    """Return the processor seconds to load a batch of 32x32 images."""
    samples = batches * BATCH
    images = torch.randint(0, 256, (samples, 3, 32, 32), dtype=torch.uint8)
    labels = torch.randint(10, (samples,))
    loader = TrainingImages(DataBundle("cifar10", images, labels, images[:1], labels[:1]), BATCH, augmentation, 0)
    return seconds(lambda: [None for _ in loader.epoch(0)], 3) / batches


def cached_batch_seconds(batches: int) -> dict[str, float]:
    """Return the wall seconds to load a batch of 64x64 images from a cache in memory and on disk."""
    generator, samples = np.random.default_rng(0), batches * BATCH
    labels = generator.integers(0, 10, samples)

    def images(count: int) -> Iterator[np.ndarray]:
        for start in range(0, count, cache.CHUNK):
            yield generator.integers(0, 256, (min(cache.CHUNK, count - start), 3, 64, 64), np.uint8)

    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        train, test = (cache.Split(labels[:count], images(count)) for count in (samples, 1))
        cache.write(cache.Reading((3, 64, 64), tuple(map(str, range(10))), train, test), Path(folder))

        def epoch() -> None:
            mapped = DataBundle("tiny_imagenet", *cache.mapped(Path(folder)))
            for _ in TrainingImages(mapped, BATCH, Augmentation(crop="zero", flip=True), 0).epoch(0):
                pass

        def epoch_from_disk() -> None:
            with (Path(folder) / "train_images.npy").open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # works only on pages that are not mapped
            epoch()

        epoch()
        epochs = {"in memory": epoch, "on disk": epoch_from_disk}
        return {name: seconds(run, 3, time.perf_counter) / batches for name, run in epochs.items()}


def cache_folder() -> Path:
    """Return a folder on a real disk, because the one for temporary files is often in memory."""
    folder = cache.default_root()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=50)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    step = step_seconds()
    costs = {name: batch_seconds(augmentation, arguments.batches) for name, augmentation in AUGMENTATIONS.items()}
    print(f"training step (batch {BATCH}): {step:.1f} s\n")
    print(f"{'augmentation':40}{'ms per batch':>14}{'of the step':>14}")
    for name, cost in costs.items():
        print(f"{name:40}{cost * 1000:14.2f}{cost / step:14.5f}")
    print(f"\nlimit: {LIMIT} of the step")
    large_step, cached = step_seconds("resnet18_64", 64), cached_batch_seconds(arguments.batches)
    print(f"\ntraining step of resnet18_64, 64x64 (batch {BATCH}): {large_step:.1f} s\n")
    for name, cost in cached.items():
        print(f"{f'64x64 from a cache, {name}':40}{cost * 1000:14.2f}{cost / large_step:14.5f}")
    print(f"\nlimit: {CACHE_LIMIT} of the step")
    target = Path(__file__).parent / "results" / "data_loading.json"
    target.parent.mkdir(exist_ok=True)
    measured = {"step_seconds": step, "batch_seconds": costs, "limit": LIMIT}
    measured |= {"step_seconds_64": large_step, "cached_batch_seconds_64": cached, "cache_limit": CACHE_LIMIT}
    target.write_text(json.dumps(measured, indent=2) + "\n")
    print(f"written: {target}")


if __name__ == "__main__":
    main()
