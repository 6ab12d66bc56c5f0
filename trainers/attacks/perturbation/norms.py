"""The threat models L∞, L2 and L1: their random starts, steps up a gradient and balls around an image."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from trainers.values import NormName

Amounts = Tensor | float  # one for all images, or one for each, in a shape that broadcasts
Move = Callable[[Tensor, Tensor], Tensor]  # (points, gradients at them) -> the next points

L1_SHARE = 0.01  # of the coordinates that one step moves (SLIDE: Tramèr & Boneh 2019)


class Linf:
    """The ball in which every pixel may change by at most the radius."""

    def size(self, perturbations: Tensor) -> Tensor:
        return perturbations.flatten(1).abs().amax(dim=1)

    def dual(self, gradients: Tensor) -> Tensor:
        """Return the slope along the steepest direction of length one, over the last dimension."""
        return gradients.abs().sum(dim=-1)

    def start(self, images: Tensor, radius: Amounts, noise: Tensor) -> Tensor:
        """Return random starts in the ball; `noise` is U(-1, 1)."""
        return (images + radius * noise).clamp_(0.0, 1.0)

    def moves(self, images: Tensor, radius: Amounts, step_size: Amounts) -> Move:
        """Return a step in the ball. Images lie in [0, 1], so one clamp serves ball and box."""
        lower = (images - radius).clamp_(min=0.0)
        upper = (images + radius).clamp_(max=1.0)
        return lambda points, gradients: torch.clamp(points + step_size * gradients.sign_(), lower, upper)

    def project(self, images: Tensor, points: Tensor, radius: Amounts) -> Tensor:
        return torch.clamp(points, (images - radius).clamp_(min=0.0), (images + radius).clamp_(max=1.0))


class L2:
    """The ball in which the perturbation's Euclidean length is at most the radius."""

    def size(self, perturbations: Tensor) -> Tensor:
        return perturbations.flatten(1).norm(dim=1)

    def dual(self, gradients: Tensor) -> Tensor:
        return gradients.norm(dim=-1)

    def start(self, images: Tensor, radius: Amounts, noise: Tensor) -> Tensor:
        """Return starts on the sphere in uniformly distributed directions, as in AutoAttack; `noise` is U(-1, 1)."""
        return (images + radius * self._unit(normal(noise))).clamp_(0.0, 1.0)

    def moves(self, images: Tensor, radius: Amounts, step_size: Amounts) -> Move:
        def move(points: Tensor, gradients: Tensor) -> Tensor:
            return self.project(images, points + step_size * self._unit(gradients), radius)

        return move

    def project(self, images: Tensor, points: Tensor, radius: Amounts) -> Tensor:
        """Project into the ball and clip to [0, 1], which only shortens a perturbation of an image in [0, 1]."""
        perturbations = points - images
        lengths = _over(self.size(perturbations), images).clamp(min=1e-12)
        return (images + perturbations * (radius / lengths).clamp(max=1.0)).clamp_(0.0, 1.0)

    def _unit(self, directions: Tensor) -> Tensor:
        # Scaled first, because the squares of a vanishing gradient would be zero.
        largest = directions.flatten(1).abs().amax(dim=1)
        directions = directions / _over(largest, directions).clamp(min=1e-30)
        return directions / _over(self.size(directions), directions).clamp(min=1e-12)


class L1:
    """The ball in which the absolute changes of all pixels sum to at most the radius."""

    def size(self, perturbations: Tensor) -> Tensor:
        return perturbations.flatten(1).abs().sum(dim=1)

    def dual(self, gradients: Tensor) -> Tensor:
        return gradients.abs().amax(dim=-1)

    def start(self, images: Tensor, radius: Amounts, noise: Tensor) -> Tensor:
        """Return projected normal noise, as in AutoAttack; `noise` is U(-1, 1)."""
        return self.project(images, images + normal(noise), radius)

    def moves(self, images: Tensor, radius: Amounts, step_size: Amounts) -> Move:
        def move(points: Tensor, gradients: Tensor) -> Tensor:
            return self.project(images, points + step_size * self.direction(points, gradients), radius)

        return move

    def direction(self, points: Tensor, gradients: Tensor) -> Tensor:
        """Return a direction of length one, in the share of coordinates with the steepest gradients that can move."""
        blocked = ((points <= 0.0) & (gradients < 0)) | ((points >= 1.0) & (gradients > 0))
        slopes = gradients.masked_fill(blocked, 0.0).flatten(1)
        count = max(1, round(L1_SHARE * slopes.shape[1]))
        chosen = slopes.abs().topk(count, dim=1).indices
        signs = torch.zeros_like(slopes).scatter_(1, chosen, slopes.gather(1, chosen).sign())
        return (signs / signs.abs().sum(dim=1, keepdim=True).clamp(min=1.0)).view_as(gradients)

    def project(self, images: Tensor, points: Tensor, radius: Amounts) -> Tensor:
        """Return the nearest points that are in the ball and in [0, 1] (Croce & Hein 2021, prop. 2.1).

        Each change shrinks by the same amount, but never below zero, and never above what the box allows. The sum of
        the remaining changes falls along a piecewise linear function of that amount, whose knots are sorted.
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
        remaining = full.sum(dim=1, keepdim=True) - torch.cat([torch.zeros_like(limit), falls], dim=1)
        # The last knot at which too much remains; at the largest knot the sum is zero.
        last = ((remaining > limit).sum(dim=1, keepdim=True) - 1).clamp(min=0)
        beyond = (remaining.gather(1, last) - limit).clamp(min=0.0)
        amount = knots.gather(1, last) + beyond / falling.gather(1, last).clamp(min=1.0)
        amount = torch.where(remaining[:, :1] > limit, amount, 0.0)
        shrunk = torch.minimum((lengths - amount).clamp(min=0.0), room)
        # Rounding in the sums of thousands of terms must not leave the ball.
        shrunk = shrunk * (limit / shrunk.sum(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0)
        return (images + (changes.sign() * shrunk).view_as(images)).clamp_(0.0, 1.0)


Norm = Linf | L2 | L1
NORMS: dict[NormName, Norm] = {"linf": Linf(), "l2": L2(), "l1": L1()}


def normal(noise: Tensor) -> Tensor:
    """Return N(0, 1) as the quantiles of U(-1, 1), whose ends have none and are clipped."""
    most = 1 - 2.0**-24
    return torch.erfinv(noise.clamp(-most, most)) * math.sqrt(2)


def _over(amounts: Tensor, images: Tensor) -> Tensor:
    """Return one amount for each image, shaped so that it broadcasts over the images."""
    return amounts.view(-1, *[1] * (images.dim() - 1))
