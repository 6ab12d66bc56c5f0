"""A network and images small enough that whole attacks take milliseconds."""

import torch
from torch import Tensor, nn

from trainers.attack import EvaluationAttack, Verdicts
from trainers.attacks.scoring.scorer import evaluate_phase


class TinyNet(nn.Module):
    """Convolution, BatchNorm, ReLU and a linear layer."""

    def __init__(self, classes: int = 10, side: int = 6) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4 * side * side, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(torch.relu(self.bn(self.conv(images))).flatten(1))


def tiny_problem(count: int, classes: int = 10, side: int = 6) -> tuple[TinyNet, Tensor, Tensor]:
    """Labels are the network's own predictions, but for every eleventh image."""
    generator = torch.Generator().manual_seed(5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = TinyNet(classes, side)
        images = torch.rand(count, 1, side, side, generator=generator)
        model.train()
        for _ in range(20):
            model(images)
        model.eval()
        with torch.no_grad():
            labels = model(images).argmax(dim=1)
    labels[10::11] = (labels[10::11] + 1) % classes
    return model, images, labels


def all_phases(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    attack: EvaluationAttack,
    *,
    first: int = 0,
    batch_size: int = 256,
) -> Verdicts:
    """The verdicts of an attack on images that start at position `first` of their data set."""
    alive, clean, warnings = torch.ones(len(images), dtype=torch.bool), None, []
    for phase in attack.phases:
        where = torch.nonzero(alive).flatten()
        if len(where) == 0:
            break
        options = {"indices": where + first, "batch_size": batch_size, "checks": phase == "clean"}
        found = evaluate_phase(model, images[where], labels[where], attack, phase, **options)
        clean = found.clean if clean is None else clean
        alive[where] = found.correct
        warnings += found.warnings
    return Verdicts(alive, clean, warnings)
