"""The threat models: what a random start, a step up a gradient and the ball around an image are in L∞, L2 and L1."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from trainers.values import NormName

Amounts = Tensor | float  # one for all images, or one for each, shaped so that it broadcasts over them
Move = Callable[[Tensor, Tensor], Tensor]  # (points, gradients at them) -> the next points

L1_SHARE = 0.01  # of the coordinates that one step moves (SLIDE: Tramèr & Boneh 2019)


class Linf:
    """Every pixel may move by the radius."""

    def size(self, perturbations: Tensor) -> Tensor:
        return perturbations.flatten(1).abs().amax(dim=1)

    def dual(self, gradients: Tensor) -> Tensor:
        """The slope along the steepest direction of length one, over the last dimension."""
        return gradients.abs().sum(dim=-1)

    def start(self, images: Tensor, radius: Amounts, noise: Tensor) -> Tensor:
        """`noise` is U(-1, 1)."""
        return (images + radius * noise).clamp_(0.0, 1.0)

    def moves(self, images: Tensor, radius: Amounts, step_size: Amounts) -> Move:
        """Images lie in [0, 1], so the ball and the box meet and one clamp does for two."""
        lower = (images - radius).clamp_(min=0.0)
        upper = (images + radius).clamp_(max=1.0)
        return lambda points, gradients: torch.clamp(points + step_size * gradients.sign_(), lower, upper)

    def project(self, images: Tensor, points: Tensor, radius: Amounts) -> Tensor:
        return torch.clamp(points, (images - radius).clamp_(min=0.0), (images + radius).clamp_(max=1.0))


class L2:
    """The Euclidean length of the perturbation is at most the radius."""

    def size(self, perturbations: Tensor) -> Tensor:
        return perturbations.flatten(1).norm(dim=1)

    def dual(self, gradients: Tensor) -> Tensor:
        return gradients.norm(dim=-1)

    def start(self, images: Tensor, radius: Amounts, noise: Tensor) -> Tensor:
        """A direction of equal chance, as far as the radius, as in AutoAttack."""
        return (images + radius * self._unit(normal(noise))).clamp_(0.0, 1.0)

    def moves(self, images: Tensor, radius: Amounts, step_size: Amounts) -> Move:
        def move(points: Tensor, gradients: Tensor) -> Tensor:
            return self.project(images, points + step_size * self._unit(gradients), radius)

        return move

    def project(self, images: Tensor, points: Tensor, radius: Amounts) -> Tensor:
        """Clipping to [0, 1] afterwards only shortens the perturbation of an image that lies there."""
        perturbations = points - images
        lengths = _over(self.size(perturbations), images).clamp(min=1e-12)
        return (images + perturbations * (radius / lengths).clamp(max=1.0)).clamp_(0.0, 1.0)

    def _unit(self, directions: Tensor) -> Tensor:
        # Scaled first: the squares of a vanishing gradient would be zero.
        largest = directions.flatten(1).abs().amax(dim=1)
        directions = directions / _over(largest, directions).clamp(min=1e-30)
        return directions / _over(self.size(directions), directions).clamp(min=1e-12)


class L1:
    """The absolute changes of all pixels together are at most the radius."""

    def size(self, perturbations: Tensor) -> Tensor:
        return perturbations.flatten(1).abs().sum(dim=1)

    def dual(self, gradients: Tensor) -> Tensor:
        return gradients.abs().amax(dim=-1)

    def start(self, images: Tensor, radius: Amounts, noise: Tensor) -> Tensor:
        """Normal noise, projected, as in AutoAttack."""
        return self.project(images, images + normal(noise), radius)

    def moves(self, images: Tensor, radius: Amounts, step_size: Amounts) -> Move:
        def move(points: Tensor, gradients: Tensor) -> Tensor:
            return self.project(images, points + step_size * self.direction(points, gradients), radius)

        return move

    def direction(self, points: Tensor, gradients: Tensor) -> Tensor:
        """Of length one, in the share of coordinates with the steepest gradients that the box lets move."""
        blocked = ((points <= 0.0) & (gradients < 0)) | ((points >= 1.0) & (gradients > 0))
        slopes = gradients.masked_fill(blocked, 0.0).flatten(1)
        count = max(1, round(L1_SHARE * slopes.shape[1]))
        chosen = slopes.abs().topk(count, dim=1).indices
        signs = torch.zeros_like(slopes).scatter_(1, chosen, slopes.gather(1, chosen).sign())
        return (signs / signs.abs().sum(dim=1, keepdim=True).clamp(min=1.0)).view_as(gradients)

    def project(self, images: Tensor, points: Tensor, radius: Amounts) -> Tensor:
        """The nearest points that are in the ball and in [0, 1] (Croce & Hein 2021, prop. 2.1).

        Each change shrinks by the same amount, to nothing at least and to what the box allows at most. The sum of
        what is left falls along a piecewise linear function of that amount, whose knots are sorted.
        """
        changes = (points - images).flatten(1)
        flat = images.flatten(1)
        lengths = changes.abs()
        room = torch.where(changes > 0, 1.0 - flat, flat)
        limit = radius.flatten(1) if isinstance(radius, Tensor) else torch.full_like(lengths[:, :1], radius)
        full = torch.minimum(lengths, room)
        knots, order = torch.cat([(lengths - room).clamp(min=0.0), lengths], dim=1).sort(dim=1)
        falling = torch.where(order < lengths.shape[1], 1.0, -1.0).to(lengths.dtype).cumsum(dim=1)
        falls = (falling[:, :-1] * knots.diff(dim=1)).cumsum(dim=1)
        left = full.sum(dim=1, keepdim=True) - torch.cat([torch.zeros_like(limit), falls], dim=1)
        # The last knot at which too much is left; the sum at the largest knot is zero.
        last = ((left > limit).sum(dim=1, keepdim=True) - 1).clamp(min=0)
        beyond = (left.gather(1, last) - limit).clamp(min=0.0)
        amount = knots.gather(1, last) + beyond / falling.gather(1, last).clamp(min=1.0)
        amount = torch.where(left[:, :1] > limit, amount, 0.0)
        kept = torch.minimum((lengths - amount).clamp(min=0.0), room)
        # Rounding in the sums of thousands of terms must not leave the ball.
        kept = kept * (limit / kept.sum(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0)
        return (images + (changes.sign() * kept).view_as(images)).clamp_(0.0, 1.0)


Norm = Linf | L2 | L1
NORMS: dict[NormName, Norm] = {"linf": Linf(), "l2": L2(), "l1": L1()}


def normal(noise: Tensor) -> Tensor:
    """N(0, 1) as the quantiles of U(-1, 1); its ends have none."""
    most = 1 - 2.0**-24
    return torch.erfinv(noise.clamp(-most, most)) * math.sqrt(2)


def _over(amounts: Tensor, images: Tensor) -> Tensor:
    """One amount for each image, shaped so that it broadcasts over them."""
    return amounts.view(-1, *[1] * (images.dim() - 1))
