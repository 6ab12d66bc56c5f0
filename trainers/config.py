"""What one trial is: every value that can move its numbers, checked and frozen. Loads no torch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializationInfo,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from trainers import registry
from trainers.values import Amount, Hyperparameter, NonNegative, NormName, Positive, Strict, Unit
from trainers.wrapper import Wrapper

CHECKPOINTS = ("last", "best_test", "best_validation")
EPOCH_CHECKPOINT = re.compile(r"epoch-([1-9][0-9]*)")


@lru_cache  # asked of every label
def kept_epoch(checkpoint: str) -> int | None:
    """N of the checkpoint `epoch-N`, the weights after N epochs; None for every other name."""
    found = EPOCH_CHECKPOINT.fullmatch(checkpoint)
    return int(found[1]) if found else None


def is_checkpoint(name: str) -> bool:
    return name in CHECKPOINTS or kept_epoch(name) is not None


class InnerAttack(Strict):
    """The attack inside training. `method` leaves start and BatchNorm mode to the method's own code."""

    norm: NormName = Field("linf", description="of the ball around each image")
    epsilon: Amount = Field("8/255", description="radius of the ball; pixels lie in [0, 1]")
    step_size: Amount = Field("2/255", description="of one step of the attack")
    steps: int = Field(10, ge=0, description="steps of the attack on every training batch")
    start: Literal["method", "uniform", "gauss", "none"] = Field(
        "method",
        description="where it starts: as the method's own code does, anywhere in the ball, beside, or at the image",
    )
    mode: Literal["method", "train", "eval", "train_untracked"] = Field(
        "method", description="BatchNorm while it runs; train_untracked uses the batch but moves no running statistics"
    )


class Schedule(Strict):
    """Learning rate over time: `factors[i]` times the initial rate from `at[i]` on (METHODS.md §2, §6, §7).

    piecewise        at in 0-based epochs, read per iteration at epoch + (i+1)/n_batches
    piecewise_epoch  at in 1-based epochs, constant within an epoch
    steps            at in optimizer steps already done
    interpolate      knots in 1-based epochs, linear in between
    onecycle         torch's OneCycleLR stepped once an epoch, momentum cycled; learning_rate is its maximum
    """

    kind: Literal["constant", "piecewise", "piecewise_epoch", "steps", "interpolate", "onecycle"] = Field(
        "piecewise", description="constant, dropping at points, linear between knots, or one cycle"
    )
    at: tuple[NonNegative, ...] = Field(
        (100.0, 150.0), description="points, rising: 0-based epochs (piecewise), 1-based epochs, or steps (steps)"
    )
    factors: tuple[NonNegative, ...] = Field((0.1, 0.01), description="times learning_rate, one for each point")
    warmup_fraction: Unit = Field(0.025, description="onecycle: share of the training in which the rate rises")

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
    crop: Literal["none", "reflect", "zero"] = Field(
        "none", description="random crop of the image padded by its reflection or by zeros"
    )
    padding: int = Field(4, ge=0, description="pixels at each side before the crop")
    flip: bool = Field(False, description="mirror half of the images, left to right")
    rotation: NonNegative = Field(0.0, description="largest random rotation, in degrees")
    # Absent rather than 0, which would rename every stored trial.
    cutmix: Positive | None = Field(
        None, description="alpha of CutMix, for losses that take mixed labels", examples=[1.0]
    )


def _absent_if(default: bool) -> BeforeValidator:
    """A switch at its default is the same setting as none: it names no other trial."""
    return BeforeValidator(lambda value: None if value is default else value)


# How a network is computed, with what each counts as where it is absent: as it was before it could be said. Absent ones
# stand in no name or record.
COMPUTED = {"precision": None, "compile": False, "deterministic": False, "channels_last": True}


class Recipe(Strict):
    """How one model is trained; a study gives it once, and a method may override parts of it."""

    epochs: int = Field(200, ge=1, description="passes over the training images")
    steps: int | None = Field(None, ge=1, description="optimizer steps instead of epochs (MMA)", examples=[50000])
    batch_size: int = Field(128, ge=1, description="images per step")
    learning_rate: Positive = Field(0.1, description="of SGD, before the schedule")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.9, description="of SGD")
    weight_decay: NonNegative = Field(5e-4, description="of SGD")
    nesterov: bool = Field(False, description="Nesterov's momentum")
    decay_batchnorm: bool = Field(True, description="weight decay also on BatchNorm's parameters")
    schedule: Schedule = Field(Schedule(), description="learning rate over time")
    augmentation: Augmentation = Field(Augmentation(), description="random changes of the training images")
    standardize: bool = Field(True, description="subtract the data set's mean and divide by its spread in the network")
    # The official loop's extra clean forward moves BatchNorm's buffers.
    log_clean_forward: bool = Field(
        True, description="a clean forward in each step, as the official code has for its log"
    )
    attack: InnerAttack = Field(InnerAttack(), description="the attack inside training")
    precision: Literal["ieee", "tf32", "bf16"] | None = Field(
        None, description="of the network; absent: float32, and tf32 in a GPU's convolutions", examples=["bf16"]
    )
    compile: Annotated[Literal[True] | None, _absent_if(False)] = Field(
        None, description="the network by torch.compile", examples=[True]
    )
    deterministic: Annotated[Literal[True] | None, _absent_if(False)] = Field(
        None, description="a GPU repeats its numbers bit for bit, at a cost; a CPU always does", examples=[True]
    )
    channels_last: Annotated[Literal[False] | None, _absent_if(True)] = Field(
        None, description="false: weights and images in torch's usual memory format", examples=[False]
    )

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        return {name: value for name, value in content.items() if value is not None or name not in COMPUTED}


class Selection(Strict):
    """Which epoch's weights are kept: `best_validation` when images are held out, `best_test` in the protocol `paper`.

    What the protocol does not look at is not measured: `heldout` leaves the test images alone until the evaluation.
    The last epoch is always measured.
    """

    protocol: Literal["paper", "heldout"] = Field(
        "paper", description="which weights the tables show: best on test images (paper) or on held-out ones (heldout)"
    )
    validation: int = Field(0, ge=0, description="training images held out", examples=[1000])
    validation_from: Literal["start", "end", "spread"] = Field(
        "end", description="which ones: the first or last of the file, or spread evenly over each class"
    )
    loss: Literal["ce", "cw"] = Field("ce", description="what the attack of selection maximises")
    steps: int = Field(20, ge=0, description="of the attack of selection; 0 is clean accuracy")
    step_size: Amount = Field("2/255", description="of the attack of selection")
    epsilon: Amount = Field("8/255", description="of the attack of selection")
    from_epoch: int = Field(0, ge=0, description="the first epoch that is measured, counted from 0")
    every: int = Field(1, ge=1, description="epochs between two measurements")
    ties: Literal["first", "last"] = Field("first", description="which of two equally good epochs is kept")
    images: int | None = Field(None, ge=1, description="test images used for selection; all if absent", examples=[1000])
    # Absent rather than false, which would rename every stored trial.
    margin: Literal[True] | None = Field(
        None, description="also attack the held-out images' margins, for a search", examples=[True]
    )
    quick: Literal[True] | None = Field(
        None, description="also attack the held-out images with `quick`, for a search", examples=[True]
    )
    norm: NormName | None = Field(
        None, description="of the attack of selection; that of train.attack if absent", examples=["l2"]
    )
    keep: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        None, description="numbers of epochs after which the weights are kept as epoch-N", examples=[[100]]
    )

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
        """Each once, the headline's own name in place of `headline`; epoch-N where this training keeps it."""
        wanted = [name for name in checkpoints if kept_epoch(name) in (None, *(self.keep or ()))]
        return list(dict.fromkeys(self.headline if name == "headline" else name for name in wanted))


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

    @property
    def selection_norm(self) -> NormName:
        return self.selection.norm or self.recipe.attack.norm

    @model_validator(mode="before")
    @classmethod
    def _gather_wrappers(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        rest = dict(content)
        named = {name: rest.pop(name, None) for name in registry.WRAPPERS.names()}
        given = rest.pop("wrappers", {}) | {name: value for name, value in named.items() if value is not None}
        wrappers = {name: registry.WRAPPERS.get(name).model_validate(value) for name, value in given.items()}
        rest.pop("margins", None)  # always recorded; records of earlier versions say whether they were
        return rest | {"wrappers": wrappers}

    @model_serializer(mode="wrap")
    def _spread_wrappers(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        wrappers = content.pop("wrappers", {})
        absent = {} if info.exclude_none else dict.fromkeys(registry.WRAPPERS.names())
        return content | absent | wrappers
