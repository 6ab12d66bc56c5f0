"""A quick attack on margins: the classes with the nearest boundaries first, most work for the images nearest to one.

Beyond how many classes a boundary lies, and how far, is read off the gradients at the image (as MALT does: Melamed,
Yehudai & Shamir 2024, there in L2): the gap between two logits over the dual norm of its slope. Each round is a short
ascent of one margin from a start of its own, with momentum and steps that shrink to nothing; an image that falls
leaves. After the first rounds the same quotient at the best point says how much of the radius an image still lacks.
Those that lack much have never been seen to fall later: only the others are tried again, from other starts.

Where slopes mislead, as in networks that mask their gradients, what is left is searched without them: random squares,
each kept where it lowers the margin (Square Attack: Andriushchenko et al. 2020), and short ascents take turns, each
from where the other ended. That finds more than either alone. Where a point has no slope at all, as in networks that
answer the same to almost everything, the way begins in a larger ball that shrinks to the right one (as the paths of
FAB: Croce & Hein 2020), and the squares are larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainers.losses import without_label
from trainers.perturbation.noise import keyed_uniform
from trainers.perturbation.norms import NORMS
from trainers.perturbation.square import lowered, square_side
from trainers.values import NormName

TARGETS = 9  # classes whose boundaries are looked at, as many as in AutoAttack
MOMENTUM = 0.25  # the share of the step before, as in Auto-PGD
# A wrong answer by less than this share of the largest logit may be a right one in a batch that rounds otherwise.
CLEARLY = 1e-4
TINY = 1e-12
SHRINKING = 0.6  # of an ascent's steps, until its ball is the right one


@dataclass(frozen=True)
class Round:
    """An ascent of the margin to one class: the nearest by rank, or whichever leads at each step."""

    rank: int | None
    steps: int
    lacking: float = float("inf")  # at most this share of the radius, of images that take part
    reach: float = 2.0  # of the first step, in radii
    from_best: bool = False  # starts where the image lacked least, not at random
    flat: bool = False  # of images that had no slope somewhere, and of no other
    wide: float = 1.0  # radii of the ball in which it begins, at the image; it shrinks to one

    def radii(self, step: int) -> float:
        return max(1.0, self.wide - (self.wide - 1) * step / (SHRINKING * self.steps))

    def attack(self, search: Search, rows: Tensor, seed: int) -> None:
        if self.rank is not None and self.rank >= search.targets.shape[1]:
            return
        if self.rank is not None and not search.ranked:
            search.rank_targets()
        points = search.images[rows] if self.wide > 1 else search.best[rows]
        if not self.from_best and self.wide == 1:
            images = search.images[rows]
            noise = keyed_uniform(seed, search.keys[rows], images)
            points = search.norm.start(images, search.epsilon, noise)
        search.climb(self, rows, points)


@dataclass(frozen=True)
class Squares:
    """Turns of random squares and a short ascent, in the L-infinity ball; the same squares for all images."""

    turns: int
    shares: tuple[float, float]  # of the image, that the first and the last square of a turn covers
    lacking: float = float("inf")
    queries: int = 230
    from_best: bool = False  # otherwise from stripes, as Square Attack
    flat: bool = False

    def attack(self, search: Search, rows: Tensor, seed: int) -> None:
        _, channels, height, width = search.images.shape
        points = search.best[rows] if self.from_best else self._stripes(search, rows, seed)
        draws = keyed_uniform(seed, torch.arange(self.turns), torch.empty(self.turns, self.queries, 2 + channels))
        first, last = self.shares
        for drawn, signs in zip(draws[:, :, :2].tolist(), _signs(draws[:, :, 2:]), strict=True):
            stands = search.standing[rows]
            rows, points = rows[stands], points[stands]
            if not len(rows):
                return
            windows = []
            for query, (down, right) in enumerate(drawn):
                side = square_side(first * (last / first) ** (query / self.queries), height, width)
                windows.append((side, _place(down, height - side), _place(right, width - side)))
            images, labels = search.images[rows], search.labels[rows]
            points = lowered(search.model, images, labels, points, search.epsilon, windows, signs)
            points = search.climb(SHORT, rows, points)

    def _stripes(self, search: Search, rows: Tensor, seed: int) -> Tensor:
        """The bounds of the ball, column by column."""
        images = search.images[rows]
        drawn = keyed_uniform(seed, torch.tensor([self.turns]), torch.empty_like(images[:1, :, :1], device="cpu"))
        return search.norm.project(images, images + search.epsilon * _signs(drawn).to(images.device), search.epsilon)


def _place(drawn: float, most: int) -> int:
    """A whole number from 0 to `most` of one in [-1, 1)."""
    return int((drawn + 1) / 2 * (most + 1))


def _signs(drawn: Tensor) -> Tensor:
    return torch.where(drawn < 0, -1.0, 1.0)


LEADING = None
FAIRLY_NEAR, NEAR, VERY_NEAR = 0.4, 0.1, 0.03
SHORT = Round(LEADING, 10, reach=0.3)


def rounds(norm: NormName) -> Sequence[Round | Squares]:
    """Squares fill the L-infinity ball alone: elsewhere more ascents take their place."""
    steps = 15 if norm == "linf" else 20
    first = [Round(rank, steps) for rank in (LEADING, 0, 1, 2)]
    near = [Round(rank, steps, NEAR) for rank in (LEADING, 0, 1, 2, 3)]
    flat: list[Round | Squares] = [Round(rank, 30, flat=True, wide=3.0) for rank in (LEADING, 0, 1, 2)]
    if norm == "linf":
        others = Squares(2, (0.3, 0.004), FAIRLY_NEAR)
        # Ten starts find more than one that is searched for ten times as long.
        flat += [Squares(1, (0.8, 0.05), queries=120, flat=True)] * 10
        return [*first, *near, Squares(3, (0.1, 0.002), FAIRLY_NEAR, from_best=True), others, others, *flat]
    again = [Round(rank, 40, VERY_NEAR, 0.5, from_best=True) for rank in (LEADING, 0, 1)]
    long = [Round(rank, 60, VERY_NEAR) for rank in (LEADING, 0, 1, 2)]
    return [*first, *near, *near, *near, *again, *long, *flat]


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
        self.flat = torch.zeros_like(self.standing)
        self.targets = torch.zeros(
            len(images), min(TARGETS, logits.shape[1] - 1), dtype=torch.long, device=images.device
        )
        self.ranked = False

    def rank_targets(self) -> None:
        """Only of what stands by now: what fell needs no target."""
        rows = torch.nonzero(self.standing).flatten()
        if len(rows):
            self.targets[rows] = self._nearest(rows)
        self.ranked = True

    def run(self, rounds: Sequence[Round | Squares], seed: int) -> Tensor:
        """The images, those that fell as they fell."""
        for number, one in enumerate(rounds):
            asked = self.flat if one.flat else (self.lacks <= one.lacking) & ~self.flat
            rows = torch.nonzero(self.standing & asked).flatten()
            if len(rows):
                one.attack(self, rows, seed * len(rounds) + number)
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

    def climb(self, one: Round, rows: Tensor, points: Tensor) -> Tensor:
        """Of each row the point with the largest margin on the way."""
        before, highest = points, points.clone()
        places, heights = torch.arange(len(rows), device=rows.device), torch.full_like(self.lacks[rows], -torch.inf)
        targets = None if one.rank is None else self.targets[rows, one.rank]
        for step in range(one.steps + 1):
            logits, margins, slopes = ascent(self.model, points, self.labels[rows], targets, last=step == one.steps)
            if one.radii(step) == 1:
                higher = margins > heights[places]
                highest[places[higher]], heights[places[higher]] = points[higher], margins[higher]
                left = self._judged(rows, points, logits, margins, slopes)
                if slopes is not None and not bool(left.all()):
                    rows, points, before, slopes, places = (of[left] for of in (rows, points, before, slopes, places))
                    targets = None if targets is None else targets[left]
            if slopes is None or not len(rows):
                break
            images, radius = self.images[rows], self.epsilon * one.radii(step + 1)
            stepped = self.norm.moves(images, radius, one.reach * radius * (1 - step / one.steps))(points, slopes)
            share = MOMENTUM if step else 0.0
            moved = stepped + (points - before - (stepped - points)) * share
            before, points = points, self.norm.project(images, moved, radius)
        return highest

    def _judged(self, rows: Tensor, points: Tensor, logits: Tensor, margins: Tensor, slopes: Tensor | None) -> Tensor:
        """Which of the rows still stand; what fell is kept, and of what stands how much of the radius it lacks."""
        wrong, left = logits.argmax(dim=1) != self.labels[rows], ~clearly_wrong(logits, self.labels[rows])
        self.found[rows[wrong]] = points[wrong]
        self.standing[rows[~left]] = False
        if slopes is not None:
            steepness = self._steepness(slopes)
            none = steepness <= TINY
            self.flat[rows[none]] = True
            # Where there is no slope, nothing is known of the way that is left.
            lacks = (-margins / steepness / self.epsilon).masked_fill(none, 0.0)
            better = lacks < self.lacks[rows]
            self.best[rows[better]] = points[better]
            self.lacks[rows[better]] = lacks[better]
        return left

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
