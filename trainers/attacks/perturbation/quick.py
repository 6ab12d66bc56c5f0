"""A quick attack on margins: nearest class boundaries first, and most work for the images nearest to a boundary.

Gradients at the image show beyond which class the boundary is, and how far (as in MALT: Melamed, Yehudai & Shamir 2024,
there in L2): the gap between two logits over the dual norm of its slope. Each round is a short ascent of one margin
from a start of its own, with momentum and shrinking steps; an image that is fooled is dropped. After the first rounds
the same quotient, at the best point, says what share of the radius an image still lacks. Images that lack much have
never been seen to be fooled later, so only the others are tried again, from other starts.

Where slopes mislead, as in networks that mask their gradients, the remaining images are searched without them: random
squares, each accepted if it lowers the margin (Square Attack: Andriushchenko et al. 2020), alternate with short
ascents, each starting where the other ended. Together they fool more images than either alone. Where a point has no
slope at all, as in networks that give the same output almost everywhere, the search starts in a larger ball that
shrinks to the right one (as in FAB: Croce & Hein 2020), and the squares are larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainers.attacks.perturbation.noise import keyed_uniform
from trainers.attacks.perturbation.norms import NORMS
from trainers.attacks.perturbation.square import lowered, square_side
from trainers.losses import without_label
from trainers.values import NormName

TARGETS = 9  # classes whose boundaries are examined, as many as in AutoAttack
MOMENTUM = 0.25  # share of the previous step, as in Auto-PGD
# A prediction wrong by less than this share of the largest logit may be right in a batch that rounds differently.
CLEARLY = 1e-4
TINY = 1e-12
SHRINKING = 0.6  # share of an ascent's steps until its ball has the right size


@dataclass(frozen=True)
class Round:
    """An ascent of the margin to one class: the nearest by rank, or whichever leads at each step."""

    rank: int | None
    steps: int
    lacking: float = float("inf")  # images that lack more than this share of the radius are left out
    reach: float = 2.0  # length of the first step, in radii
    from_best: bool = False  # start at the image's best point, not at random
    flat: bool = False  # only for images that had no slope at some point
    wide: float = 1.0  # initial radius of the ball, in radii; above 1 it starts at the image and shrinks to one

    def radii(self, step: int) -> float:
        """Return the radius of the ball at a step, in radii."""
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
    """Alternating random squares and short ascents in the L∞ ball; the same squares for all images."""

    turns: int
    shares: tuple[float, float]  # of the image covered by the first and the last square of a turn
    lacking: float = float("inf")
    queries: int = 230
    from_best: bool = False  # otherwise from stripes, as in Square Attack
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
        """Return starts on the bounds of the ball, constant along each column."""
        images = search.images[rows]
        drawn = keyed_uniform(seed, torch.tensor([self.turns]), torch.empty_like(images[:1, :, :1], device="cpu"))
        return search.norm.project(images, images + search.epsilon * _signs(drawn).to(images.device), search.epsilon)


def _place(drawn: float, most: int) -> int:
    """Return the whole number from 0 to `most` for a draw from [-1, 1)."""
    return int((drawn + 1) / 2 * (most + 1))


def _signs(drawn: Tensor) -> Tensor:
    return torch.where(drawn < 0, -1.0, 1.0)


LEADING = None
FAIRLY_NEAR, NEAR, VERY_NEAR = 0.4, 0.1, 0.03
SHORT = Round(LEADING, 10, reach=0.3)


def rounds(norm: NormName) -> Sequence[Round | Squares]:
    """Return the rounds for a norm. Squares fill the L∞ ball only; other norms get more ascents instead."""
    steps = 15 if norm == "linf" else 20
    first = [Round(rank, steps) for rank in (LEADING, 0, 1, 2)]
    near = [Round(rank, steps, NEAR) for rank in (LEADING, 0, 1, 2, 3)]
    flat: list[Round | Squares] = [Round(rank, 30, flat=True, wide=3.0) for rank in (LEADING, 0, 1, 2)]
    if norm == "linf":
        squares = Squares(2, (0.3, 0.004), FAIRLY_NEAR)
        # Ten starts fool more images than one that is searched ten times as long.
        flat += [Squares(1, (0.8, 0.05), queries=120, flat=True)] * 10
        return [*first, *near, Squares(3, (0.1, 0.002), FAIRLY_NEAR, from_best=True), squares, squares, *flat]
    again = [Round(rank, 40, VERY_NEAR, 0.5, from_best=True) for rank in (LEADING, 0, 1)]
    long = [Round(rank, 60, VERY_NEAR) for rank in (LEADING, 0, 1, 2)]
    return [*first, *near, *near, *near, *again, *long, *flat]


class Search:
    """One batch under attack: which images are robust so far, their nearest classes and their best points."""

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
        """Rank the target classes of the images that are not yet fooled."""
        rows = torch.nonzero(self.standing).flatten()
        if len(rows):
            self.targets[rows] = self._nearest(rows)
        self.ranked = True

    def run(self, rounds: Sequence[Round | Squares], seed: int) -> Tensor:
        """Run all rounds and return the images, adversarial where they were fooled."""
        for number, stage in enumerate(rounds):
            eligible = self.flat if stage.flat else (self.lacks <= stage.lacking) & ~self.flat
            rows = torch.nonzero(self.standing & eligible).flatten()
            if len(rows):
                stage.attack(self, rows, seed * len(rounds) + number)
        return self.found

    def _nearest(self, rows: Tensor) -> Tensor:
        """Return the wrong classes with the highest logits, ordered by the distance to their boundaries."""
        images, labels = self.images[rows].requires_grad_(), self.labels[rows]
        with torch.enable_grad():
            logits = self.model(images)
            classes = without_label(logits.detach(), labels).topk(self.targets.shape[1], dim=1).indices
            margins = logits.gather(1, classes) - logits.gather(1, labels[:, None])
        distances = []
        for rank in range(classes.shape[1]):
            more = rank + 1 < classes.shape[1]
            (slopes,) = torch.autograd.grad(margins[:, rank].sum(), images, retain_graph=more)
            distances.append(-margins[:, rank].detach() / self._steepness(slopes))
        return classes.gather(1, torch.stack(distances, dim=1).argsort(dim=1, stable=True))

    def climb(self, stage: Round, rows: Tensor, points: Tensor) -> Tensor:
        """Climb from `points` and return for each row the point with the largest margin on the way."""
        before, highest = points, points.clone()
        positions, heights = torch.arange(len(rows), device=rows.device), torch.full_like(self.lacks[rows], -torch.inf)
        targets = None if stage.rank is None else self.targets[rows, stage.rank]
        for step in range(stage.steps + 1):
            logits, margins, slopes = ascent(self.model, points, self.labels[rows], targets, last=step == stage.steps)
            if stage.radii(step) == 1:
                higher = margins > heights[positions]
                highest[positions[higher]], heights[positions[higher]] = points[higher], margins[higher]
                remaining = self._judged(rows, points, logits, margins, slopes)
                if slopes is not None and not bool(remaining.all()):
                    rows, points, before, slopes, positions = (
                        values[remaining] for values in (rows, points, before, slopes, positions)
                    )
                    targets = None if targets is None else targets[remaining]
            if slopes is None or not len(rows):
                break
            images, radius = self.images[rows], self.epsilon * stage.radii(step + 1)
            stepped = self.norm.moves(images, radius, stage.reach * radius * (1 - step / stage.steps))(points, slopes)
            share = MOMENTUM if step else 0.0
            moved = stepped + (points - before - (stepped - points)) * share
            before, points = points, self.norm.project(images, moved, radius)
        return highest

    def _judged(self, rows: Tensor, points: Tensor, logits: Tensor, margins: Tensor, slopes: Tensor | None) -> Tensor:
        """Return which rows are not clearly wrong.

        Store the points that fool, and for the remaining images what share of the radius they lack.
        """
        wrong, remaining = logits.argmax(dim=1) != self.labels[rows], ~clearly_wrong(logits, self.labels[rows])
        self.found[rows[wrong]] = points[wrong]
        self.standing[rows[~remaining]] = False
        if slopes is not None:
            steepness = self._steepness(slopes)
            slopeless = steepness <= TINY
            self.flat[rows[slopeless]] = True
            # Without a slope, the remaining distance is unknown.
            lacks = (-margins / steepness / self.epsilon).masked_fill(slopeless, 0.0)
            better = lacks < self.lacks[rows]
            self.best[rows[better]] = points[better]
            self.lacks[rows[better]] = lacks[better]
        return remaining

    def _steepness(self, slopes: Tensor) -> Tensor:
        return self.norm.dual(slopes.flatten(1)).clamp(min=TINY)


def ascent(
    model: nn.Module, points: Tensor, labels: Tensor, targets: Tensor | None, last: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the logits, each point's margin and the margin's slope.

    The margin is that to the target, or to the leading wrong class without targets. At the last step the slope is None.
    """
    inputs = points.detach().requires_grad_(not last)
    with torch.set_grad_enabled(not last):
        logits = model(inputs)
        wrong_logits = without_label(logits, labels).amax(dim=1) if targets is None else _of(logits, targets)
        margins = wrong_logits - _of(logits, labels)
        slopes = None if last else torch.autograd.grad(margins.sum(), inputs)[0]
    return logits.detach(), margins.detach(), slopes


def clearly_wrong(logits: Tensor, labels: Tensor) -> Tensor:
    """Return which predictions are wrong by more than rounding."""
    return logits.amax(dim=1) - _of(logits, labels) > CLEARLY * logits.abs().amax(dim=1)


def _of(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.gather(1, classes[:, None]).squeeze(1)
