"""Auto-PGD (Croce & Hein 2020) in the L∞ ball, as in pyautoattack, but only for images that are not yet fooled.

The package takes all its steps with every image. A verdict needs no step after the first that fools, so an image that
is clearly wrong is dropped and the others continue. Steps, starts and decisions are the package's, image by image.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from trainers.compat.autoattack_internals import APGDAttack, APGDAttack_targeted, checks, schedule

# A prediction wrong by less than this share of the largest logit may be right in a batch that rounds differently.
CLEARLY = 1e-4


class StoppingAPGD(APGDAttack):
    """Untargeted Auto-PGD that drops an image once it is clearly wrong."""

    y_target: Tensor | None

    def attack_single_run(
        self, x: Tensor, y: Tensor, x_init: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if self.norm != "Linf" or x_init is not None or self.eot_iter != 1:
            return super().attack_single_run(x, y, x_init)
        with torch.no_grad():
            adversarial, robust = self._search(x, y)
        losses = torch.zeros(len(x), device=x.device)  # only other callers use them
        return adversarial, robust, losses, adversarial

    def _search(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        start = (images + self.eps * self.normalize(2 * torch.rand(images.shape).to(images.device) - 1)).clamp_(0, 1)
        adversarial, robust = start.clone(), torch.ones(len(images), dtype=torch.bool, device=images.device)
        logits, losses, gradients = self._ascent(start, labels)
        if self.loss != "ce":
            checks.check_zero_gradients(gradients.contiguous(), logger=self.logger)
        climb = _Climb(self, images, labels, start, losses, gradients)
        for step in range(self.n_iter + 1):
            if step > 0:
                climb.step(step - 1)
                logits, losses, gradients = self._ascent(climb.points, climb.labels)
            wrong = logits.argmax(dim=1) != climb.labels
            if bool(wrong.any()):
                positions = climb.places[wrong]
                adversarial[positions], robust[positions] = climb.points[wrong], False
            if step > 0:
                climb.learn(step - 1, losses, gradients)
            lead = logits.amax(dim=1) - logits.gather(1, climb.labels[:, None]).squeeze(1)
            remaining = ~(lead > CLEARLY * logits.abs().amax(dim=1))
            if not bool(remaining.all()):
                climb.keep(remaining)
                if self.y_target is not None:
                    self.y_target = self.y_target[remaining]
                if not len(climb.places):
                    break
        return adversarial, robust

    def _ascent(self, points: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the logits, the loss of each image, and its gradient."""
        inputs = points.detach().requires_grad_()
        with torch.enable_grad():
            logits = self.model(inputs)
            losses = self._losses(logits, labels)
            (gradients,) = torch.autograd.grad(losses.sum(), inputs)
        return logits.detach(), losses.detach(), gradients

    def _losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.loss == "ce":
            return F.cross_entropy(logits, labels, reduction="none")
        return self.dlr_loss(logits, labels)


class StoppingTargetedAPGD(StoppingAPGD, APGDAttack_targeted):
    """Targeted Auto-PGD that drops an image once it is clearly wrong."""

    def _losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.dlr_loss_targeted(logits, labels)


class _Climb:
    """The images not yet fooled: their current and best points, and the lengths of their steps."""

    PER_IMAGE = ("images", "labels", "places", "lower", "upper", "points", "before", "gradients", "best_points",
                 "best_gradients", "best_losses", "lengths", "last_best", "last_halved")  # fmt: skip

    def __init__(
        self, attack: APGDAttack, images: Tensor, labels: Tensor, start: Tensor, losses: Tensor, gradients: Tensor
    ) -> None:
        self.images, self.labels = images, labels
        self.places = torch.arange(len(images), device=images.device)
        self.lower, self.upper = (images - attack.eps).clamp_(min=0.0), (images + attack.eps).clamp_(max=1.0)
        self.points = self.before = self.best_points = start
        self.gradients = self.best_gradients = gradients
        self.best_losses = self.last_best = losses
        self.lengths = torch.full((len(images), *[1] * (images.dim() - 1)), 2.0 * attack.eps, device=images.device)
        self.last_halved = torch.ones(len(images), dtype=torch.bool, device=images.device)
        self.losses = torch.zeros(attack.n_iter, len(images), device=images.device)
        self.period, self.shortest, self.shrinking, self.share = schedule(attack)
        self.since = 0

    def step(self, number: int) -> None:
        """Take a signed step and move three quarters of the way; the remaining quarter repeats the previous move."""
        momentum, self.before = self.points - self.before, self.points
        share = 0.75 if number > 0 else 1.0
        signed = torch.clamp(self.points + self.lengths * self.gradients.sign(), self.lower, self.upper)
        moved = self.points + (signed - self.points) * share + momentum * (1 - share)
        self.points = torch.clamp(moved, self.lower, self.upper)

    def learn(self, number: int, losses: Tensor, gradients: Tensor) -> None:
        """Store the best points so far.

        At the end of a period, an image that no longer climbs returns to its best point and halves its step.
        """
        self.losses[number], self.gradients = losses, gradients
        better = losses > self.best_losses
        column = (-1, *[1] * (self.points.dim() - 1))
        self.best_points = torch.where(better.view(column), self.points, self.best_points)
        self.best_gradients = torch.where(better.view(column), gradients, self.best_gradients)
        self.best_losses = torch.where(better, losses, self.best_losses)
        self.since += 1
        if self.since < self.period:
            return
        # As in the package, the very first loss is compared with the last entry, which is still zero.
        recent = self.losses[torch.arange(number - self.period, number + 1)]
        climbed = (recent[1:] > recent[:-1]).sum(dim=0)
        halved = (climbed <= self.period * self.share) | (~self.last_halved & (self.last_best >= self.best_losses))
        self.last_halved, self.last_best = halved, self.best_losses
        self.lengths = torch.where(halved.view(column), self.lengths / 2, self.lengths)
        self.points = torch.where(halved.view(column), self.best_points, self.points)
        self.gradients = torch.where(halved.view(column), self.best_gradients, self.gradients)
        self.period, self.since = max(self.period - self.shrinking, self.shortest), 0

    def keep(self, chosen: Tensor) -> None:
        """Drop all images but the chosen ones."""
        for name in self.PER_IMAGE:
            setattr(self, name, getattr(self, name)[chosen])
        self.losses = self.losses[:, chosen]


def stopping(attack: APGDAttack) -> StoppingAPGD:
    """Return the package's attack with its settings, but with our search."""
    names = ("norm", "eps", "n_iter", "n_restarts", "eot_iter", "topk", "use_largereps", "seed", "device", "logger")
    settings = {name: getattr(attack, name) for name in names}
    settings["rho"] = schedule(attack).share
    if isinstance(attack, APGDAttack_targeted):
        return StoppingTargetedAPGD(attack.model, n_target_classes=attack.n_target_classes, **settings)
    return StoppingAPGD(attack.model, loss=attack.loss, **settings)
