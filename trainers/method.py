"""The interface of a training method: its hyperparameters are fields, and it defines a loss."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

if TYPE_CHECKING:  # hyperparameters are also checked without torch
    from torch import Tensor, nn

Objective: TypeAlias = "Callable[[Tensor], Tensor]"


class Attack(Protocol):
    """The inner attack. Norm, radius and steps come from the study; the caller says what to maximise."""

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
        """Return adversarial images.

        `objective` maps logits to the values to maximise, one for each image. `observe` is called with the logits of
        every iterate before its step. `epsilon` and `step_size`, one number for all images or one for each, override
        the study's.
        """

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        """Return logits in the attack's BatchNorm mode, without gradient: a fixed target to move away from."""

    def once(self, craft: Callable[[], Any]) -> Any:
        """Return `craft()`, computed only once per batch.

        A wrapper that evaluates the loss twice on the same images returns the first value again.
        """


@dataclass
class Batch:
    """One batch of training samples."""

    images: Tensor  # in [0, 1], (N, C, H, W)
    labels: Tensor  # int64 (N); with CutMix, probabilities (N, classes)
    indices: Tensor  # positions in the training set; -1 for synthetic images
    state: dict[str, Tensor]  # from the method's `new_state`; preserved across epochs and in checkpoints


WRITABLE = (bool, int, float, str)  # types that study files and records can hold
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
    """Return a field of a method with its legal range.

    `infinite` allows +inf above `high`. `log` makes a search of the declared range logarithmic.
    """
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
    """A training method. Its fields are its hyperparameters, declared with `hyperparameter`."""

    start: ClassVar[str] = "uniform"  # start of the inner attack: uniform, gauss (0.001 N(0,1)), none
    mode: ClassVar[str] = "train"  # BatchNorm mode of the inner attack: train, eval, train_untracked
    selects_on: ClassVar[str] = "pgd"  # accuracy that defines the best epoch: pgd or clean
    trains_on: ClassVar[str] = "attacked"  # images that the loss sees and margins are taken on: attacked, clean
    fixed_shapes: ClassVar[bool] = True  # False if the network sees parts of a batch that vary in size
    mixed_labels: ClassVar[bool] = False  # True if the loss also takes class probabilities, as CutMix needs
    passes: ClassVar[float] = 1.0  # cost of a step, relative to adversarial training
    display: ClassVar[str] = ""  # name in tables; empty: the file's name

    def __post_init__(self) -> None:
        faults = [fault for fault in (_fault(f.name, getattr(self, f.name), f) for f in fields(self)) if fault]
        if faults:
            raise ValueError("; ".join(faults))

    def loss(self, model: nn.Module, images: Tensor, labels: Tensor, attack: Attack) -> Tensor:
        """Return the loss of a batch, one number with gradient.

        `images` lie in [0, 1]. `attack(model, images, objective)` returns adversarial images.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no loss(model, images, labels, attack)")

    def at_epoch(self, epoch: int) -> Method:
        """Return the method to use in this 0-based epoch. Warm-ups return another method; the attack stays the same."""
        return self

    def new_state(self, samples: int) -> dict[str, Tensor]:
        """Return the state that the method keeps about its training samples; empty for nearly all methods."""
        return {}

    def batch_loss(self, model: nn.Module, batch: Batch, attack: Attack) -> Tensor:
        """Return the loss of a batch. Override this instead of `loss` only to use sample indices and state."""
        return self.loss(model, batch.images, batch.labels, attack)


def declaration_faults(method: type[Method]) -> list[str]:
    """Return what keeps the class's fields from being hyperparameters, whatever their values."""
    if any(isinstance(value, Field) for base in method.__mro__ for value in vars(base).values()):
        return [f"decorate {method.__name__} with @dataclass(frozen=True)"]
    return [fault for fault in map(_default_fault, fields(method)) if fault]


def _default_fault(declared: Field[Any]) -> str | None:
    if isinstance(declared.default, WRITABLE):
        return None
    present = "" if declared.default is MISSING else f", not {declared.default!r}"
    return f"give {declared.name} a default that is {WRITABLE_IN_WORDS}{present}"


def is_number(value: Any) -> bool:
    """Return True for an int or float that is not a bool."""
    # A tuple of types: int | float would be built at each call.
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_too_large(value: Any) -> bool:
    """Return True for an int beyond the range of floats; the comparison itself is exact."""
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
