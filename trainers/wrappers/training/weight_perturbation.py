"""Adversarial weight perturbation (AWP, Wu et al. 2020), composed over any method's loss.

loss = perturbation.around(method).batch_loss(model, batch, attack)
loss.backward(); optimizer.step(); perturbation.after_update(model)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trainers.compat.torch_internals import copy_without_hooks
from trainers.method import Attack, Batch, Method, Objective
from trainers.wrapper import Hooks


class WeightPerturbation(Hooks):
    """AWP at work in one training.

    Between the loss and `after_update` the model's weights are w + γd, and the optimizer steps from there.
    """

    def __init__(self, gamma: float, warmup_epochs: int = 0) -> None:
        self.gamma = gamma
        self.warmup_epochs = warmup_epochs
        self.directions: dict[str, Tensor] = {}
        self._proxy: nn.Module | None = None

    def is_active(self, epoch: int) -> bool:
        return epoch + 1 >= self.warmup_epochs

    def around(self, method: Method) -> Method:
        return PerturbedLoss(method, self)

    def perturbed_loss(self, method: Method, model: nn.Module, batch: Batch, attack: Attack) -> Tensor:
        """Return the loss at the worst weights nearby, on the images that the attack found at the unmoved weights."""
        remembered = Remembered(attack, model)
        weights = perturbed_weights(model)
        loss = method.batch_loss(self._proxy_of(model), batch, remembered)
        # The official proxy takes a gradient step and uses the difference of weights; its learning rate cancels out.
        gradients = torch.autograd.grad(loss, list(weights.values()))
        self.directions = {
            name: weight.detach().norm() * gradient / (gradient.norm() + 1e-20)
            for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
        }
        self._move(model, self.gamma)
        remembered.rewind()
        return method.batch_loss(model, batch, remembered)

    def after_update(self, model: nn.Module) -> None:
        """Subtract γd from the updated weights."""
        self._move(model, -self.gamma)
        self.directions = {}

    @torch.no_grad()
    def _move(self, model: nn.Module, amount: float) -> None:
        for name, direction in self.directions.items():
            model.get_parameter(name).add_(direction, alpha=amount)

    def _proxy_of(self, model: nn.Module) -> nn.Module:
        """Return a copy with the same parameters and its own buffers, so that its forwards do not move the model's."""
        if self._proxy is None:
            self._proxy = copy_without_hooks(model)
        with torch.no_grad():
            for mine, its in zip(self._proxy.buffers(), model.buffers(), strict=True):
                mine.copy_(its)
        return self._proxy.train()


@dataclass(frozen=True)
class PerturbedLoss(Method):
    method: Method
    perturbation: WeightPerturbation

    def batch_loss(self, model: nn.Module, batch: Batch, attack: Attack) -> Tensor:
        return self.perturbation.perturbed_loss(self.method, model, batch, attack)


def perturbed_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights that AWP moves: those of convolutions and linear layers, not BatchNorm or biases."""
    return {name: p for name, p in model.named_parameters() if name.endswith("weight") and p.dim() > 1}


class Remembered:
    """An attack that runs once, against the given model, and then replays its answers in the same order."""

    def __init__(self, attack: Attack, model: nn.Module) -> None:
        self.attack = attack
        self.model = model
        self.steps = attack.steps
        self._answers: list[Any] = []
        self._position = 0
        self._crafting = False

    def rewind(self) -> None:
        self._position = 0

    def __call__(
        self,
        model: nn.Module,
        images: Tensor,
        objective: Objective,
        *,
        epsilon: Tensor | float | None = None,
        step_size: Tensor | float | None = None,
        observe: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        def craft() -> tuple[Tensor, list[Tensor]]:
            seen: list[Tensor] = []
            watch = seen.append if observe is not None else None
            found = self.attack(self.model, images, objective, epsilon=epsilon, step_size=step_size, observe=watch)
            return found, seen

        adversarial, seen = self._next(craft)
        for logits in seen:
            observe(logits)  # type: ignore[misc]  # logits were recorded only because there is an observer
        return adversarial

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        return self._next(lambda: self.attack.logits(self.model, images))

    def once(self, craft: Callable[[], Any]) -> Any:
        return self._next(craft)

    def _next(self, craft: Callable[[], Any]) -> Any:
        if self._crafting:  # an attack inside `once` is part of the answer being computed
            return craft()
        if self._position == len(self._answers):
            self._crafting = True
            self._answers.append(craft())
            self._crafting = False
        self._position += 1
        return self._answers[self._position - 1]
