"""What gathering and augmenting a batch costs, against the PGD-10 training step that uses it.

    python -m benchmarks.data_loading [--batches 50]

PreActResNet-18, batch 128, random images of CIFAR-10's size, one thread, processor time. The step is measured as its
parts (one attack iteration, one update) and added up, because a whole one takes half a minute on one core.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from trainers import models
from trainers.config import Augmentation, Recipe
from trainers.data.bundle import DataBundle
from trainers.data.order import TrainingImages
from trainers.perturbation.linf import LinfAttack
from trainers.precision import prepared

BATCH, LIMIT = 128, 0.03
AUGMENTATIONS = {
    "cifar10 (reflect crop, flip)": Augmentation(crop="reflect", flip=True),
    "trades, seat, ddpm (zero crop, flip)": Augmentation(crop="zero", flip=True),
    "cifar100 (zero crop, flip, rotation)": Augmentation(crop="zero", flip=True, rotation=15.0),
    "svhn (none)": Augmentation(),
}


def seconds(work: Callable[[], object], repeats: int) -> float:
    taken = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return statistics.median(taken)


def step_seconds() -> float:
    model = prepared(models.build("preact_resnet18", 10, shape=(3, 32, 32)), torch.device("cpu"), Recipe()).train()
    images, labels = torch.rand(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))
    one_step = LinfAttack(8 / 255, 2 / 255, 1, final_forward=False)
    attack = seconds(lambda: one_step(model, images, lambda logits: F.cross_entropy(logits, labels)), 2)
    update = seconds(lambda: F.cross_entropy(model(images), labels).backward(), 2)
    return 10 * attack + update


def batch_seconds(augmentation: Augmentation, batches: int) -> float:
    samples = batches * BATCH
    images = torch.randint(0, 256, (samples, 3, 32, 32), dtype=torch.uint8)
    labels = torch.randint(10, (samples,))
    loader = TrainingImages(DataBundle("cifar10", images, labels, images[:1], labels[:1]), BATCH, augmentation, 0)
    return seconds(lambda: [None for _ in loader.epoch(0)], 3) / batches


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=50)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    step = step_seconds()
    costs = {name: batch_seconds(augmentation, arguments.batches) for name, augmentation in AUGMENTATIONS.items()}
    print(f"training step (batch {BATCH}): {step:.1f} s\n")
    print(f"{'augmentation':40}{'ms a batch':>12}{'of the step':>14}")
    for name, cost in costs.items():
        print(f"{name:40}{cost * 1000:12.2f}{cost / step:14.5f}")
    print(f"\nlimit: {LIMIT} of the step")
    target = Path(__file__).parent / "results" / "data_loading.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({"step_seconds": step, "batch_seconds": costs, "limit": LIMIT}, indent=2) + "\n")
    print(f"written: {target}")


if __name__ == "__main__":
    main()
