"""A quick attack on margins: the classes with the nearest boundaries first, most work for the images nearest to one.

Beyond how many classes a boundary lies, and how far, is read off the gradients at the image (as MALT does: Melamed,
Yehudai & Shamir 2024, there in L2): the gap between two logits over the dual norm of its slope. Each round is a short
ascent of one margin from a start of its own, with momentum and steps that shrink to nothing; an image that falls
leaves. After the first rounds the same quotient at the best point says how much of the radius an image still lacks.
Those that lack much have never been seen to fall later: only the others are tried again, from other starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainers.losses import without_label
from trainers.perturbation.noise import keyed_uniform
from trainers.perturbation.norms import NORMS
from trainers.values import NormName

TARGETS = 9  # classes whose boundaries are looked at, as many as in AutoAttack
MOMENTUM = 0.25  # the share of the step before, as in Auto-PGD
# A wrong answer by less than this share of the largest logit may be a right one in a batch that rounds otherwise.
CLEARLY = 1e-4
TINY = 1e-12


@dataclass(frozen=True)
class Round:
    """An ascent of the margin to one class: the nearest by rank, or whichever leads at each step."""

    rank: int | None
    steps: int = 20
    lacking: float = float("inf")  # at most this share of the radius, of images that take part
    reach: float = 2.0  # of the first step, in radii
    from_best: bool = False  # starts where the image lacked least, not at random


LEADING = None
NEAR, VERY_NEAR = 0.1, 0.03
ROUNDS = (
    *(Round(rank) for rank in (LEADING, 0, 1, 2)),
    *(Round(rank, lacking=NEAR) for _ in range(3) for rank in (LEADING, 0, 1, 2, 3)),
    *(Round(rank, 40, VERY_NEAR, 0.5, from_best=True) for rank in (LEADING, 0, 1)),
    *(Round(rank, 60, VERY_NEAR) for rank in (LEADING, 0, 1, 2)),
)


class Search:
    """One batch under attack: what of it still stands, which classes are near, and the best point of each image."""

    def __init__(
        self, model: nn.Module, images: Tensor, labels: Tensor, keys: Tensor, *, epsilon: float, norm: NormName
    ) -> None:
        self.model, self.images, self.labels, self.keys = model, images, labels, keys
        self.epsilon, self.norm = epsilon, NORMS[norm]
        self.found, self.best = images.clone(), images.clone()
        with torch.no_grad():
            logits = model(images)
        self.standing = logits.argmax(dim=1) == labels
        self.lacks = torch.full((len(images),), torch.inf, device=images.device)
        self.targets = torch.zeros(
            len(images), min(TARGETS, logits.shape[1] - 1), dtype=torch.long, device=images.device
        )
        right = torch.nonzero(self.standing).flatten()
        if len(right):
            self.targets[right] = self._nearest(right)

    def run(self, rounds: Sequence[Round], seed: int) -> Tensor:
        """The images, those that fell as they fell."""
        for number, one in enumerate(rounds):
            if one.rank is not None and one.rank >= self.targets.shape[1]:
                continue
            rows = torch.nonzero(self.standing & (self.lacks <= one.lacking)).flatten()
            if not len(rows):
                continue
            images = self.images[rows]
            if one.from_best:
                points = self.best[rows]
            else:
                noise = keyed_uniform(seed * len(rounds) + number, self.keys[rows], images)
                points = self.norm.start(images, self.epsilon, noise)
            self._climb(one, rows, points)
        return self.found

    def _nearest(self, rows: Tensor) -> Tensor:
        """The wrong classes with the highest logits, ordered by the distance to their boundaries."""
        images, labels = self.images[rows].requires_grad_(), self.labels[rows]
        with torch.enable_grad():
            logits = self.model(images)
            classes = without_label(logits.detach(), labels).topk(self.targets.shape[1], dim=1).indices
            margins = logits.gather(1, classes) - logits.gather(1, labels[:, None])
        distances = []
        for place in range(classes.shape[1]):
            more = place + 1 < classes.shape[1]
            (slopes,) = torch.autograd.grad(margins[:, place].sum(), images, retain_graph=more)
            distances.append(-margins[:, place].detach() / self._steepness(slopes))
        return classes.gather(1, torch.stack(distances, dim=1).argsort(dim=1, stable=True))

    def _climb(self, one: Round, rows: Tensor, points: Tensor) -> None:
        before = points
        targets = None if one.rank is None else self.targets[rows, one.rank]
        for step in range(one.steps + 1):
            logits, margins, slopes = ascent(self.model, points, self.labels[rows], targets, last=step == one.steps)
            wrong, left = logits.argmax(dim=1) != self.labels[rows], ~clearly_wrong(logits, self.labels[rows])
            self.found[rows[wrong]] = points[wrong]
            self.standing[rows[~left]] = False
            if slopes is None:
                return
            lacks = -margins / self._steepness(slopes) / self.epsilon
            better = lacks < self.lacks[rows]
            self.best[rows[better]] = points[better]
            self.lacks[rows[better]] = lacks[better]
            if not bool(left.all()):
                rows, points, before, slopes = rows[left], points[left], before[left], slopes[left]
                targets = None if targets is None else targets[left]
                if not len(rows):
                    return
            images, length = self.images[rows], one.reach * self.epsilon * (1 - step / one.steps)
            stepped = self.norm.moves(images, self.epsilon, length)(points, slopes)
            share = MOMENTUM if step else 0.0
            moved = stepped + (points - before - (stepped - points)) * share
            before, points = points, self.norm.project(images, moved, self.epsilon)

    def _steepness(self, slopes: Tensor) -> Tensor:
        return self.norm.dual(slopes.flatten(1)).clamp(min=TINY)


def ascent(
    model: nn.Module, points: Tensor, labels: Tensor, targets: Tensor | None, last: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Logits, each point's margin to its target or to the leading wrong class, and its slope unless it is the last."""
    inputs = points.detach().requires_grad_(not last)
    with torch.set_grad_enabled(not last):
        logits = model(inputs)
        others = without_label(logits, labels).amax(dim=1) if targets is None else _of(logits, targets)
        margins = others - _of(logits, labels)
        slopes = None if last else torch.autograd.grad(margins.sum(), inputs)[0]
    return logits.detach(), margins.detach(), slopes


def clearly_wrong(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.amax(dim=1) - _of(logits, labels) > CLEARLY * logits.abs().amax(dim=1)


def _of(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.gather(1, classes[:, None]).squeeze(1)
