"""Targeted FAB (Croce & Hein 2020b) in the L∞ norm, as in pyautoattack, with a projection of far fewer operations.

The package finds each projection's active bound by a binary search of ten operations a step; here all bounds are
tested at once. On small networks that search takes longer than the network.
"""

from __future__ import annotations

import torch
from pyautoattack.fab_pt import FABAttack_PT
from torch import Tensor


class DirectFAB(FABAttack_PT):
    def attack_single_run(
        self, x: Tensor, y: Tensor | None = None, use_rand_start: bool = False, is_targeted: bool = False
    ) -> Tensor:
        if self.norm != "Linf" or not is_targeted or use_rand_start or y is None:
            return super().attack_single_run(x, y, use_rand_start, is_targeted)
        with torch.no_grad():
            return self._search(x.detach().float(), y)

    def _search(self, images: Tensor, labels: Tensor) -> Tensor:
        logits = self.predict(images)
        right = torch.nonzero(logits.argmax(dim=1) == labels).flatten()
        result = images.clone()
        if len(right) == 0:
            return result
        targets = logits.sort(dim=1).indices[right, -self.target_class]
        origin, labels = images[right], labels[right]
        nearest, distances = origin.clone(), torch.full((len(right),), 1e10, device=images.device)
        points = origin.clone()
        for _ in range(self.n_iter):
            differences, gradients = self._boundary(points, labels, targets)
            normals = gradients.flatten(1)
            offsets = (normals * points.flatten(1)).sum(dim=1) - differences
            both = torch.cat([points.flatten(1), origin.flatten(1)])
            moves = project_to_hyperplane(both, normals.repeat(2, 1), offsets.repeat(2))
            lengths = moves.abs().amax(dim=1).clamp_(min=1e-8)
            here, there = lengths.view(2, -1, *[1] * (points.dim() - 1))
            from_here, from_there = moves.view(2, *points.shape)
            share = (here / (here + there)).clamp_(0.0, self.alpha_max)
            points = (points + self.eta * from_here) * (1 - share) + (origin + from_there * self.eta) * share
            points.clamp_(0.0, 1.0)
            adversarial = self.predict(points).argmax(dim=1) != labels
            reached = (points - origin).abs().flatten(1).amax(dim=1)
            closer = adversarial & (reached < distances)
            distances = torch.where(closer, reached, distances)
            column = (-1, *[1] * (points.dim() - 1))
            nearest = torch.where(closer.view(column), points, nearest)
            # From beyond the boundary the next search starts a little nearer to the original.
            back = origin + (points - origin) * self.beta
            points = torch.where(adversarial.view(column), back, points)
        found = distances < 1e10
        result[right[found]] = nearest[found]
        return result

    def _boundary(self, points: Tensor, labels: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Target logit minus true logit, and its gradient: the decision boundary as seen from here."""
        inputs = points.detach().requires_grad_()
        with torch.enable_grad():
            logits = self.predict(inputs)
            chosen = logits.gather(1, torch.stack([targets, labels], dim=1))
            differences = chosen[:, 0] - chosen[:, 1]
            (gradients,) = torch.autograd.grad(differences.sum(), inputs)
        return differences.detach(), gradients


def project_to_hyperplane(points: Tensor, normals: Tensor, offsets: Tensor) -> Tensor:
    """The smallest L∞ move of each point, within [0, 1], to its hyperplane normal·x = offset, or towards it.

    With all coordinates moved by at most λ against the normal, normal·x falls along a concave, piecewise linear
    function of λ whose knots are the coordinates' distances to the box; the knot before the crossing gives λ.
    """
    side = torch.where((normals * points).sum(dim=1) - offsets >= 0, 1.0, -1.0).to(points.dtype)
    normals = normals * side[:, None]
    upward = normals < 0
    fixed = normals == 0
    room = torch.where(upward, 1 - points, points)  # how far each coordinate can go in its direction
    furthest = torch.where(upward, room, -room).masked_fill(fixed, 0.0)
    missing = offsets * side - (normals * points).sum(dim=1)
    knots, order = room.sort(dim=1, descending=True)
    weights = normals.gather(1, order)
    slopes = weights.abs().cumsum(dim=1)
    all_the_way = (normals * furthest).sum(dim=1)
    levels = (-weights * furthest.gather(1, order)).cumsum(dim=1) + all_the_way[:, None]
    before = missing[:, None] - (levels - slopes * knots) > 0
    last = slopes.shape[1] - 1
    # Levels fall with the knots, so the ones before the crossing come first.
    index = (before[:, :-1].sum(dim=1) - 1).clamp(min=0)
    everywhere = before[:, -1]
    index = torch.where(everywhere, last, index)[:, None]
    limit = ((missing[:, None] - levels.gather(1, index)) / -slopes.gather(1, index)).clamp(min=0)
    bounded = torch.minimum(torch.maximum(furthest, -limit), limit)
    direction = torch.where(upward, limit, -limit)
    reachable = missing - all_the_way > 0
    moves = torch.where(everywhere[:, None], direction, torch.where(reachable[:, None], bounded, furthest))
    return moves.masked_fill(fixed, 0.0)
