"""What a training method is: its hyperparameters are fields, its verb is the loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

if TYPE_CHECKING:  # hyperparameters are checked where torch is not loaded
    from torch import Tensor, nn

Objective: TypeAlias = "Callable[[Tensor], Tensor]"


class Attack(Protocol):
    """The inner attack as the study set it: norm, radius and steps are its own; the caller says what it maximises."""

    @property
    def steps(self) -> int: ...

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
        """Adversarial images. `observe` sees the logits of every iterate before its step."""

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        """The model's logits, without gradient, in the attack's BatchNorm mode: a fixed target to move away from."""

    def once(self, craft: Callable[[], Any]) -> Any:
        """The value of `craft()`; a wrapper that evaluates a loss twice on the same images returns the first value."""


@dataclass
class Batch:
    images: Tensor
    labels: Tensor
    indices: Tensor  # positions in the training set; -1 for synthetic images
    state: dict[str, Tensor]  # what the method's `new_state` made, kept across epochs and in checkpoints


def hyperparameter(
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[Any] | None = None,
    infinite: bool = False,
) -> Any:
    """A field of a method with its legal range; `infinite` allows +inf above `high`."""
    return field(default=default, metadata={"low": low, "high": high, "choices": choices, "infinite": infinite})


@dataclass(frozen=True)
class Method:
    start: ClassVar[str] = "uniform"  # where the inner attack starts: uniform, gauss (0.001 N(0,1)), none
    mode: ClassVar[str] = "train"  # BatchNorm mode while it runs: train, eval, train_untracked
    selects_on: ClassVar[str] = "pgd"  # what "best" means for this method: pgd or clean accuracy

    def __post_init__(self) -> None:
        faults = [fault for fault in (_fault(f.name, getattr(self, f.name), f) for f in fields(self)) if fault]
        if faults:
            raise ValueError("; ".join(faults))

    def loss(self, model: nn.Module, images: Tensor, labels: Tensor, attack: Attack) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} defines no loss(model, images, labels, attack)")

    def at_epoch(self, epoch: int) -> Method:
        """The method in force in this 0-based epoch: warm-ups return another one. The attack stays this method's."""
        return self

    def new_state(self, samples: int) -> dict[str, Tensor]:
        """What the method remembers of its training samples; empty for nearly all."""
        return {}

    def batch_loss(self, model: nn.Module, batch: Batch, attack: Attack) -> Tensor:
        """Override instead of `loss` only to use sample indices and state."""
        return self.loss(model, batch.images, batch.labels, attack)


def _fault(name: str, value: Any, declared: Any) -> str | None:
    rule = declared.metadata
    if declared.type in ("float", "int", float, int):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"{name} = {value!r} must be a number"
        if math.isnan(value) or (math.isinf(value) and not rule.get("infinite")):
            return f"{name} = {value!r} must be finite"
        if declared.type in ("int", int) and value != int(value):
            return f"{name} = {value!r} must be a whole number"
    if rule.get("choices") is not None and value not in rule["choices"]:
        return f"{name} = {value!r} must be one of {', '.join(map(str, rule['choices']))}"
    if rule.get("low") is not None and value < rule["low"]:
        return f"{name} = {value!r} must be at least {rule['low']}"
    if rule.get("high") is not None and value > rule["high"] and not (math.isinf(value) and rule.get("infinite")):
        return f"{name} = {value!r} must be at most {rule['high']}"
    return None
