"""Targeted FAB (Croce & Hein 2020b) in the L∞ norm, as in pyautoattack, but only for images that are not yet fooled.

The package searches for the nearest point beyond the boundary, and its verdict is whether that lies within the radius.
The first point within the radius is therefore enough, and its image needs no further step. FAB draws no random numbers,
so the targets of an image are independent and are searched together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainers.compat.autoattack_internals import FABAttack_PT

PIXELS_AT_ONCE = 2**17  # of all targets searched together; more would not fit into a cache


class DirectFAB(FABAttack_PT):
    """Targeted FAB that stops an image's search at the first adversarial point within the radius."""

    def perturb(self, x: Tensor, y: Tensor) -> Tensor:
        if self.norm != "Linf" or not self.targeted or self.n_restarts != 1:
            return super().perturb(x, y)
        with torch.no_grad():
            return self._perturbed(x.detach().float(), y)

    def _perturbed(self, images: Tensor, labels: Tensor) -> Tensor:
        logits = self.predict(images)
        robust = logits.argmax(dim=1) == labels
        ranked = logits.sort(dim=1).indices.flip(1)[:, 1 : self.n_target_classes + 1]
        result, target = images.clone(), 0
        while target < ranked.shape[1] and bool(robust.any()):
            remaining = torch.nonzero(robust).flatten()
            together = max(1, PIXELS_AT_ONCE // images[remaining].numel())
            targets = ranked[remaining, target : target + together]
            rows = remaining.repeat_interleave(targets.shape[1])
            self._search(images, labels, rows, targets.flatten(), robust, result)
            target += together
        return result

    def _search(
        self, images: Tensor, labels: Tensor, rows: Tensor, targets: Tensor, robust: Tensor, result: Tensor
    ) -> None:
        """Search along each row, which names its image and has one target.

        Images that are fooled are written into `robust` and `result`.
        """
        points = origin = images[rows]
        true_classes = labels[rows]
        column = (-1, *[1] * (points.dim() - 1))
        for _ in range(self.n_iter):
            differences, gradients = self._boundary(points, true_classes, targets)
            normals = gradients.flatten(1)
            offsets = (normals * points.flatten(1)).sum(dim=1) - differences
            moves = moves_to_hyperplane(torch.stack([points, origin]).flatten(2), normals, offsets)
            distances_here, distances_there = moves.abs().amax(dim=2).clamp_(min=1e-8)
            from_here, from_there = moves.view(2, *points.shape)
            share = (distances_here / (distances_here + distances_there)).clamp_(0.0, self.alpha_max).view(column)
            points = (points + self.eta * from_here) * (1 - share) + (origin + from_there * self.eta) * share
            points.clamp_(0.0, 1.0)
            adversarial = self.predict(points).argmax(dim=1) != true_classes
            offset = points - origin
            fallen = adversarial & (offset.abs().flatten(1).amax(dim=1) <= self.eps)
            # From beyond the boundary, the next step starts a little nearer to the original image.
            behind = torch.where(adversarial.view(column), origin + offset * self.beta, points)
            if bool(fallen.any()):
                result[rows[fallen]], robust[rows[fallen]] = points[fallen], False
                open_rows = robust[rows]
                rows, targets, true_classes, origin, behind = (
                    values[open_rows] for values in (rows, targets, true_classes, origin, behind)
                )  # fmt: skip
                if not len(rows):
                    return
            points = behind

    def _boundary(self, points: Tensor, labels: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the target logit minus the true one, and its gradient: the local decision boundary."""
        inputs = points.detach().requires_grad_()
        with torch.enable_grad():
            logits = self.predict(inputs)
            chosen = logits.gather(1, torch.stack([targets, labels], dim=1))
            differences = chosen[:, 0] - chosen[:, 1]
            (gradients,) = torch.autograd.grad(differences.sum(), inputs)
        return differences.detach(), gradients


def moves_to_hyperplane(points: Tensor, normals: Tensor, offsets: Tensor) -> Tensor:
    """Return each point's smallest L∞ move, within [0, 1], to its hyperplane normal·x = offset, or towards it.

    If all coordinates move by at most λ towards the plane, the distance covered grows along a concave, piecewise linear
    function of λ. Newton's steps from below reach the crossing exactly. They need one step for each group of
    coordinates that reach the end of their room, which is a few; the package sorts the rooms instead, which takes
    longer than a small network. `points` may have one dimension more than the planes: several points for each.
    """
    distances = (normals * points).sum(dim=-1) - offsets
    directions = torch.where(distances >= 0, -1.0, 1.0)[..., None] * normals.sign()
    weights = normals.abs()
    room = torch.where(directions > 0, 1 - points, points)
    ways = weights * room
    distances = distances.abs()
    limit = distances / weights.sum(dim=-1)
    while True:
        free = (room > limit[..., None]).to(weights)
        slope = (weights * free).sum(dim=-1)
        done = (ways - ways * free).sum(dim=-1)
        further = torch.maximum(limit, ((distances - done) / slope).nan_to_num(nan=0.0))
        if torch.equal(further, limit):
            break
        limit = further
    out_of_reach = ways.sum(dim=-1) <= distances
    limit = torch.where(out_of_reach, torch.inf, limit)
    return directions * torch.minimum(room, limit[..., None])
