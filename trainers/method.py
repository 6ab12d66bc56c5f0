"""What a training method is: its hyperparameters are fields, its verb is the loss."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
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
    images: Tensor  # in [0, 1], (N, C, H, W)
    labels: Tensor  # int64 (N); with CutMix probabilities (N, classes)
    indices: Tensor  # positions in the training set; -1 for synthetic images
    state: dict[str, Tensor]  # what the method's `new_state` made, kept across epochs and in checkpoints


WRITABLE = (bool, int, float, str)  # what a study file can give and a record can keep
WRITABLE_IN_WORDS = "a bool, int, float or str"


def hyperparameter(
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[Any] | None = None,
    infinite: bool = False,
    log: bool = False,
) -> Any:
    """A field of a method with its legal range; `infinite` allows +inf above `high`, `log` makes a search of the
    declared range logarithmic."""
    if not isinstance(default, WRITABLE):
        raise ValueError(f"the default of a hyperparameter must be {WRITABLE_IN_WORDS}, but is {default!r}")
    if (low is not None or high is not None) and not is_number(default):
        raise ValueError(f"a hyperparameter with low or high must be a number, but its default is {default!r}")
    if log and (low is None or high is None or low <= 0):
        raise ValueError(f"a logarithmic hyperparameter needs a low above 0 and a high, not low={low}, high={high}")
    rules = {"low": low, "high": high, "choices": choices, "infinite": infinite, "log": log}
    return field(default=default, metadata=rules)


@dataclass(frozen=True)
class Method:
    start: ClassVar[str] = "uniform"  # where the inner attack starts: uniform, gauss (0.001 N(0,1)), none
    mode: ClassVar[str] = "train"  # BatchNorm mode while it runs: train, eval, train_untracked
    selects_on: ClassVar[str] = "pgd"  # what "best" means for this method: pgd or clean accuracy
    trains_on: ClassVar[str] = "attacked"  # the images that its loss sees, on which margins are taken: attacked, clean
    fixed_shapes: ClassVar[bool] = True  # the network sees whole batches, not a part that differs from step to step
    mixed_labels: ClassVar[bool] = False  # whether its loss takes rows of class probabilities too, as CutMix makes them
    passes: ClassVar[float] = 1.0  # cost of a step, in that of adversarial training
    display: ClassVar[str] = ""  # in tables; absent, the file's name

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


def declaration_faults(method: type[Method]) -> list[str]:
    """What keeps the class's fields from being hyperparameters, whatever their values."""
    if any(isinstance(value, Field) for above in method.__mro__ for value in vars(above).values()):
        return [f"decorate {method.__name__} with @dataclass(frozen=True)"]
    return [fault for fault in map(_default_fault, fields(method)) if fault]


def _default_fault(declared: Field[Any]) -> str | None:
    if isinstance(declared.default, WRITABLE):
        return None
    found = "" if declared.default is MISSING else f", not {declared.default!r}"
    return f"give {declared.name} a default that is {WRITABLE_IN_WORDS}{found}"


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)  # not int | float, which is made anew


def is_too_large(value: Any) -> bool:
    """Whether it is a whole number beyond the range of floats; the comparison itself is exact."""
    return isinstance(value, int) and abs(value) > sys.float_info.max


def _fault(name: str, value: Any, declared: Any) -> str | None:
    rule = declared.metadata
    limited = rule.get("low") is not None or rule.get("high") is not None
    if is_too_large(value):
        return f"{name} is too large; it has more than 308 digits"
    if limited and not is_number(value):
        return f"{name} = {value!r} must be a number"
    if declared.type in ("float", "int", float, int):
        if not is_number(value):
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
