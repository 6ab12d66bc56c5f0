"""The smallest perturbation that fools: an upper bound on each image's distance to the decision boundary.

As in FMN (Pintor et al. 2021), an ascent of the margin has a radius of its own for each image. The radius shrinks below
the distance of an adversarial point; without one it grows, or follows the boundary as the slope predicts it. Several
ascents, to the leading class and to the nearest ones, each look only for nearer points than those before. Images that
are not fooled within the study's radius are then attacked there by `quick`, so that the curve is no weaker there.
Finally each adversarial point is drawn towards its image as far as it still fools.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from trainers.attacks.perturbation.norms import NORMS
from trainers.attacks.perturbation.quick import Search, ascent, clearly_wrong, rounds
from trainers.values import NormName

RANKS = (None, 0, 1, 2)  # of the target classes: None for the leading one, then the nearest
STEPS = 60
HALVINGS = 8
LARGEST_CHANGE, SMALLEST_CHANGE = 0.1, 0.002  # relative change of the radius in the first and the last step
LONGEST_STEP, SHORTEST_STEP = 1.0, 0.02  # in radii
BEYOND = 1.05  # step slightly past the predicted boundary: this multiple of its distance
ROUNDING = 1e-5


def nearest_fooling(
    model: nn.Module, images: Tensor, labels: Tensor, keys: Tensor, *, epsilon: float, norm: NormName, seed: int
) -> tuple[Tensor, Tensor]:
    """Return the nearest point that fools the model, and its distance, for each image.

    The distance is 0 for a misclassified image, and infinite if no such point was found.
    """
    search = Search(model, images, labels, keys, epsilon=epsilon, norm=norm)
    nearest = _Nearest(model, images, labels, norm)
    nearest.distances[~search.standing] = 0.0
    search.rank_targets()
    for rank in RANKS:
        if rank is None or rank < search.targets.shape[1]:
            nearest.ascend(None if rank is None else search.targets[:, rank])
    search.standing &= nearest.distances > epsilon
    open_rows = torch.nonzero(search.standing).flatten()
    points = search.run(rounds(norm), seed)
    nearest.learn(open_rows[~search.standing[open_rows]], points)
    nearest.draw_in()
    # Rounding may place a point on the sphere just outside of it.
    at_radius = (nearest.distances > epsilon) & (nearest.distances <= epsilon * (1 + ROUNDING))
    return nearest.points, nearest.distances.masked_fill(at_radius, epsilon)


class _Nearest:
    """The nearest adversarial point of each image so far, and its distance."""

    def __init__(self, model: nn.Module, images: Tensor, labels: Tensor, norm: NormName) -> None:
        self.model, self.images, self.labels, self.norm = model, images, labels, NORMS[norm]
        self.points = images.clone()
        self.distances = torch.full((len(images),), torch.inf, dtype=images.dtype, device=images.device)

    def learn(self, rows: Tensor, points: Tensor) -> None:
        """Store the points of `rows`, which fool the model, if they are nearer. `points` has those of all images."""
        self._keep(rows, points[rows])

    def _keep(self, rows: Tensor, points: Tensor) -> None:
        sizes = self.norm.size(points - self.images[rows])
        nearer = sizes < self.distances[rows]
        self.points[rows[nearer]], self.distances[rows[nearer]] = points[nearer], sizes[nearer]

    def ascend(self, targets: Tensor | None) -> None:
        """Search from every image for nearer points, towards one target each or the leading wrong class."""
        rows = torch.nonzero(self.distances > 0).flatten()
        if not len(rows):
            return
        images, labels = self.images[rows], self.labels[rows]
        targets = None if targets is None else targets[rows]
        points = images
        radii = torch.full((len(rows),), torch.inf, dtype=images.dtype, device=images.device)
        fooled = torch.zeros(len(rows), dtype=torch.bool, device=images.device)
        column = (-1, *[1] * (images.dim() - 1))
        for step in range(STEPS + 1):
            logits, margins, slopes = ascent(self.model, points, labels, targets, last=step == STEPS)
            wrong = clearly_wrong(logits, labels)
            self._keep(rows[wrong], points[wrong])
            if slopes is None:
                return
            fooled |= wrong
            sizes = self.norm.size(points - images)
            change = _between(LARGEST_CHANGE, SMALLEST_CHANGE, step / STEPS)
            ahead = sizes - BEYOND * margins / self.norm.dual(slopes.flatten(1)).clamp(min=1e-12)
            outwards = torch.where(fooled, radii * (1 + change), ahead.clamp(min=1e-6))
            radii = torch.where(wrong, torch.minimum(radii, sizes) * (1 - change), outwards)
            radii = torch.minimum(radii, self.distances[rows] * (1 - change))
            radius = radii.clamp(max=float(images[0].numel())).view(column)
            length = _between(LONGEST_STEP, SHORTEST_STEP, step / STEPS) * radius
            points = self.norm.moves(images, radius, length)(points, slopes)

    def draw_in(self) -> None:
        """Bisect the line from each image to its adversarial point to find a nearer one."""
        rows = torch.nonzero((self.distances > 0) & self.distances.isfinite()).flatten()
        if not len(rows):
            return
        images, offsets = self.images[rows], self.points[rows] - self.images[rows]
        column = (-1, *[1] * (images.dim() - 1))
        inside, outside = torch.zeros(len(rows), device=images.device), torch.ones(len(rows), device=images.device)
        with torch.no_grad():
            for _ in range(HALVINGS):
                shares = (inside + outside) / 2
                points = images + offsets * shares.view(column)
                wrong = clearly_wrong(self.model(points), self.labels[rows])
                self._keep(rows[wrong], points[wrong])
                inside, outside = torch.where(wrong, inside, shares), torch.where(wrong, shares, outside)


def _between(first: float, last: float, share: float) -> float:
    return last + (first - last) * (1 + math.cos(math.pi * share)) / 2
