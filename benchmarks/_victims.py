"""Networks to attack, trained adversarially on the spot. AutoAttack fools about half of their correct images."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainers import data, models
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.attacks.scoring.scorer import pixels
from trainers.network import Shape
from trainers.values import as_float

TEST_IMAGES = 250


class PlainCNN(nn.Module):
    """Three 3x3 convolutions and a linear layer."""

    def __init__(self, classes: int, shape: Shape) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        widths = (shape[0], 16, 32, 64)
        for before, after in zip(widths, widths[1:], strict=False):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.linear = nn.Linear(64 * (shape[1] // 8) * (shape[2] // 8), classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.linear(self.layers(images - 0.5).flatten(1))


@dataclass(frozen=True)
class Victim:
    """A network with its training, and the images and radius of its attack."""

    name: str
    network: str
    dataset: str
    epsilon: str
    train_images: int
    epochs: int
    steps: int
    learning_rate: float
    attacked: int  # number of test images for AutoAttack

    def trained(self, data_dir: str, cache: Path | None = None) -> tuple[nn.Module, Tensor, Tensor]:
        """Return the trained network in eval mode, with TEST_IMAGES test images and their labels.

        Weights are read from and written to the folder `cache`, if one is given.
        """
        bundle = data.load(self.dataset, data_dir, download=False)
        classes, shape = len(bundle.train_labels.unique()), tuple(bundle.train_images.shape[1:])
        torch.manual_seed(0)
        assert len(shape) == 3
        model = (
            PlainCNN(classes, shape)
            if self.network == "plain_cnn"
            else models.build(self.network, classes, shape=shape)
        )
        file = None if cache is None else cache / f"{self.name}.pt"
        if file is not None and file.is_file():
            model.load_state_dict(torch.load(file, weights_only=True))
        else:
            images, labels = bundle.train_images[: self.train_images], bundle.train_labels[: self.train_images]
            self._train(model, pixels(images, "cpu"), labels)
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                torch.save(model.state_dict(), file)
        subset = slice(0, TEST_IMAGES)
        return model.eval(), pixels(bundle.test_images[subset], "cpu"), bundle.test_labels[subset]

    def _train(self, model: nn.Module, images: Tensor, labels: Tensor) -> None:
        radius = as_float(self.epsilon)
        batch_size = 64
        optimizer = torch.optim.SGD(model.parameters(), lr=self.learning_rate, momentum=0.9, weight_decay=5e-4)
        total = self.epochs * -(-len(images) // batch_size)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.learning_rate, total_steps=total)
        attack = ProjectedAscent(
            radius, 2.5 * radius / max(2, self.steps), self.steps, generator=torch.Generator().manual_seed(0)
        )
        for _ in range(self.epochs):
            for indices in torch.randperm(len(images)).split(batch_size):
                batch, targets = images[indices], labels[indices]
                adversarial = attack(model, batch, partial(F.cross_entropy, target=targets, reduction="none"))
                model.train()
                optimizer.zero_grad()
                F.cross_entropy(model(adversarial), targets).backward()
                optimizer.step()
                schedule.step()


VICTIMS = {
    victim.name: victim
    for victim in (
        Victim("small CNN", "small_cnn", "cifar10", "8/255", 5_000, 10, 3, 0.05, 60),
        Victim("CNN", "plain_cnn", "cifar10", "8/255", 5_000, 10, 3, 0.1, 60),
        # A large network on small images. On CIFAR-10, each surviving image would take minutes.
        Victim("PreActResNet-18", "preact_resnet18", "digits", "0.17", 600, 6, 1, 0.05, 5),
    )
}
