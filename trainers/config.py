"""What one trial is: every value that can move its numbers, checked and frozen. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializationInfo,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from trainers import registry
from trainers.values import Amount, Hyperparameter, NonNegative, Positive, Strict, Unit
from trainers.wrapper import Wrapper

CHECKPOINTS = ("last", "best_test", "best_validation")


class InnerAttack(Strict):
    """The attack inside training. `method` leaves start and BatchNorm mode to the method's own code."""

    norm: Literal["linf"] = "linf"
    epsilon: Amount = "8/255"
    step_size: Amount = "2/255"
    steps: int = Field(10, ge=0)
    start: Literal["method", "uniform", "gauss", "none"] = "method"
    mode: Literal["method", "train", "eval", "train_untracked"] = "method"


class Schedule(Strict):
    """Learning rate over time: `factors[i]` times the initial rate from `at[i]` on (METHODS.md §2, §6, §7).

    piecewise        at in 0-based epochs, read per iteration at epoch + (i+1)/n_batches
    piecewise_epoch  at in 1-based epochs, constant within an epoch
    steps            at in optimizer steps already done
    interpolate      knots in 1-based epochs, linear in between
    onecycle         torch's OneCycleLR stepped once an epoch, momentum cycled; learning_rate is its maximum
    """

    kind: Literal["constant", "piecewise", "piecewise_epoch", "steps", "interpolate", "onecycle"] = "piecewise"
    at: tuple[NonNegative, ...] = (100.0, 150.0)
    factors: tuple[NonNegative, ...] = (0.1, 0.01)
    warmup_fraction: Unit = 0.025

    @model_validator(mode="after")
    def _points_match_factors(self) -> Schedule:
        if self.kind in ("constant", "onecycle"):
            return self
        if len(self.at) != len(self.factors):
            raise ValueError(f"'at' has {len(self.at)} points but 'factors' has {len(self.factors)}; give one each")
        if list(self.at) != sorted(self.at):
            raise ValueError("'at' must rise")
        return self


class Augmentation(Strict):
    crop: Literal["none", "reflect", "zero"] = "none"
    padding: int = Field(4, ge=0)
    flip: bool = False
    rotation: NonNegative = 0.0
    # Absent rather than 0, which would rename every stored trial.
    cutmix: Positive | None = Field(None, description="alpha of CutMix, for losses that take mixed labels")


class Recipe(Strict):
    """How one model is trained; a study gives it once, and a method may override parts of it."""

    epochs: int = Field(200, ge=1)
    steps: int | None = Field(None, ge=1, description="optimizer steps instead of epochs (MMA)")
    batch_size: int = Field(128, ge=1)
    learning_rate: Positive = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: NonNegative = 5e-4
    nesterov: bool = False
    decay_batchnorm: bool = True
    schedule: Schedule = Schedule()
    augmentation: Augmentation = Augmentation()
    standardize: bool = True
    log_clean_forward: bool = True  # the official loop's extra clean forward moves BatchNorm's buffers
    attack: InnerAttack = InnerAttack()


class Selection(Strict):
    """Which epoch's weights are kept: `best_validation` when images are held out, `best_test` in the protocol `paper`.

    What the protocol does not look at is not measured: `heldout` leaves the test images alone until the evaluation.
    The last epoch is always measured.
    """

    protocol: Literal["paper", "heldout"] = "paper"
    validation: int = Field(0, ge=0, description="training images held out")
    validation_from: Literal["start", "end", "spread"] = "end"
    loss: Literal["ce", "cw"] = "ce"
    steps: int = Field(20, ge=0)
    step_size: Amount = "2/255"
    epsilon: Amount = "8/255"
    from_epoch: int = Field(0, ge=0, description="the first epoch that is measured, counted from 0")
    every: int = Field(1, ge=1, description="epochs between two measurements")
    ties: Literal["first", "last"] = "first"
    images: int | None = Field(None, ge=1, description="test images used for selection; all if absent")
    # Absent rather than false, which would rename every stored trial.
    margin: Literal[True] | None = Field(None, description="also attack the held-out images' margins, for a search")

    @model_validator(mode="after")
    def _heldout_needs_images(self) -> Selection:
        if self.protocol == "heldout" and self.validation == 0:
            raise ValueError("protocol 'heldout' needs validation > 0; set selection.validation or protocol: paper")
        return self

    def measures(self, epoch: int, epochs: int) -> bool:
        """Whether this 0-based epoch of so many is measured: every so many epochs of the training, and the last."""
        return epoch + 1 == epochs or (epoch >= self.from_epoch and (epoch + 1) % self.every == 0)

    @property
    def headline(self) -> str:
        return "best_test" if self.protocol == "paper" else "best_validation"

    def named(self, checkpoints: Iterable[str]) -> list[str]:
        """Each once, the headline's own name in place of `headline`."""
        return list(dict.fromkeys(self.headline if name == "headline" else name for name in checkpoints))


class TrialConfig(Strict):
    """One training. Two trials with equal configurations have equal numbers, whichever study asked.

    Written down, each wrapper's settings stand at the top level under its name, null where it is absent.
    """

    dataset: str
    model: str
    method: str = Field(description="base method and wrappers, e.g. sovr+awp")
    hyperparameters: dict[str, Hyperparameter] = {}
    wrappers: dict[str, SerializeAsAny[Wrapper]] = {}
    recipe: Recipe = Recipe()
    selection: Selection = Selection()
    train_images: int | None = Field(None, ge=1, description="use only the first n training images")
    test_images: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0)
    plugin: str | None = Field(None, description="SHA-256 of the plug-ins that define method, model and data set")

    @model_validator(mode="before")
    @classmethod
    def _gather_wrappers(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        names = registry.WRAPPERS.names()
        given = content.get("wrappers", {}) | {name: content[name] for name in names if content.get(name) is not None}
        wrappers = {name: registry.WRAPPERS.get(name).model_validate(value) for name, value in given.items()}
        # Margins are always recorded; records of earlier versions say whether they were.
        left_out = {*names, "margins"}
        return {key: value for key, value in content.items() if key not in left_out} | {"wrappers": wrappers}

    @model_serializer(mode="wrap")
    def _spread_wrappers(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        wrappers = content.pop("wrappers", {})
        absent = {} if info.exclude_none else dict.fromkeys(registry.WRAPPERS.names())
        return content | absent | wrappers
