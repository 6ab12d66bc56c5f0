"""The study's attack, watched: it saves a forward pass where two are equal and records the training logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from trainers.attacks.perturbation.projected_ascent import ProjectedAscent, batchnorm_mode
from trainers.compat.torch_internals import BatchNorm, batchnorms
from trainers.method import Objective


class WatchedAttack:
    """A `trainers.method.Attack` that merges its closing forward pass with the loss's.

    A train-mode attack ends with a forward of its result, only to update BatchNorm's buffers. Nearly always the loss
    then computes the same forward. One forward serves for both, with its batch counted twice in the buffers: two
    updates by the same statistics with momentum m equal one with 1 - (1 - m)². If the loss does something else first,
    the closing forward takes place after all.
    """

    def __init__(self, attack: ProjectedAscent, *, merges_forward: bool) -> None:
        closes = attack.mode == "train" and attack.final_forward and attack.steps > 0
        self.merges_forward = merges_forward and closes
        self.attack = replace(attack, final_forward=False) if self.merges_forward else attack
        self.steps = attack.steps
        self.recorded: Tensor | None = None  # logits of the training forward, preferably of attacked images
        self._attacking = False
        self._result: Tensor | None = None
        self._recorded_result = False
        self._due: Tensor | None = None  # attacked images whose closing forward is still due
        self._doubled: list[tuple[BatchNorm, float]] = []

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
        self._close(model)
        self._attacking = True
        try:
            adversarial = self.attack(model, images, objective, epsilon=epsilon, step_size=step_size, observe=observe)
        finally:
            self._attacking = False
        self._result = adversarial
        self._due = adversarial if self.merges_forward else None
        return adversarial

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        return self.attack.logits(model, images)

    def once(self, craft: Callable[[], Any]) -> Any:
        return self.attack.once(craft)

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """Watch the model's forwards while the loss is computed. Copies of the model inherit inactive hooks."""

        def before(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            if module is model and not self._attacking:
                self._before(model, arguments[0])

        def after(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            if module is model and not self._attacking:
                self._after(arguments[0], output)

        hooks = [model.register_forward_pre_hook(before), model.register_forward_hook(after, always_call=True)]
        try:
            yield
            self._close(model)
        finally:
            for hook in hooks:
                hook.remove()

    def _before(self, model: nn.Module, images: Tensor) -> None:
        if self._due is None:
            return
        tracked = [module for module in batchnorms(model) if module.track_running_stats]
        if images is self._due and all(module.training and module.momentum is not None for module in tracked):
            self._due = None
            self._doubled = [(module, module.momentum) for module in tracked if module.momentum is not None]
            for module, momentum in self._doubled:
                module.momentum = 1 - (1 - momentum) ** 2
        else:
            self._close(model)

    def _after(self, images: Tensor, output: Any) -> None:
        for module, momentum in self._doubled:
            module.momentum = momentum
            if module.num_batches_tracked is not None:
                module.num_batches_tracked.add_(1)
        self._doubled = []
        is_result = images is self._result
        if torch.is_grad_enabled() and isinstance(output, Tensor) and (is_result or not self._recorded_result):
            self.recorded = output.detach()
            self._recorded_result = is_result

    def _close(self, model: nn.Module) -> None:
        """Run the closing forward if it is still due."""
        if self._due is None:
            return
        images, self._due = self._due, None
        with torch.no_grad(), batchnorm_mode(model, "train"):
            model(images)
