"""The configuration of one trial: every value that can change its numbers, checked and frozen. Loads no torch."""

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

from trainers.plugins import registry
from trainers.values import Amount, Hyperparameter, NonNegative, NormName, Positive, Strict, Unit
from trainers.wrapper import Wrapper

CHECKPOINTS = ("last", "best_test", "best_validation")
EPOCH_CHECKPOINT = re.compile(r"epoch-([1-9][0-9]*)")


@lru_cache  # called for every label
def kept_epoch(checkpoint: str) -> int | None:
    """Return N for a checkpoint named `epoch-N` (the weights after N epochs), None for every other name."""
    match = EPOCH_CHECKPOINT.fullmatch(checkpoint)
    return int(match[1]) if match else None


def is_checkpoint(name: str) -> bool:
    """Return True if a checkpoint may have this name."""
    return name in CHECKPOINTS or kept_epoch(name) is not None


class InnerAttack(Strict):
    """The attack inside training. `method` leaves start and BatchNorm mode to the method."""

    norm: NormName = Field("linf", description="norm of the ball around each image")
    epsilon: Amount = Field("8/255", description="radius of the ball; pixels lie in [0, 1]")
    step_size: Amount = Field("2/255", description="length of one step of the attack")
    steps: int = Field(10, ge=0, description="steps of the attack on every training batch")
    start: Literal["method", "uniform", "gauss", "none"] = Field(
        "method",
        description="where it starts: as the method's code does, anywhere in the ball, close to the image, or at it",
    )
    mode: Literal["method", "train", "eval", "train_untracked"] = Field(
        "method",
        description="BatchNorm mode while it runs; train_untracked uses batch statistics but keeps the running ones",
    )


class Schedule(Strict):
    """Learning rate over time: from `at[i]` on, `factors[i]` times the initial rate (METHODS.md §2, §6, §7).

    piecewise        at in 0-based epochs, read in every iteration at epoch + (i+1)/n_batches
    piecewise_epoch  at in 1-based epochs, constant within an epoch
    steps            at in completed optimizer steps
    interpolate      knots in 1-based epochs, linear in between
    onecycle         torch's OneCycleLR, stepped once an epoch, momentum cycled; learning_rate is its maximum
    """

    kind: Literal["constant", "piecewise", "piecewise_epoch", "steps", "interpolate", "onecycle"] = Field(
        "piecewise", description="constant, dropping at points, linear between knots, or one cycle"
    )
    at: tuple[NonNegative, ...] = Field(
        (100.0, 150.0),
        description="increasing points in time: 0-based epochs (piecewise), steps (steps), otherwise 1-based epochs",
    )
    factors: tuple[NonNegative, ...] = Field((0.1, 0.01), description="multiples of learning_rate, one for each point")
    warmup_fraction: Unit = Field(0.025, description="onecycle: share of the training in which the rate rises")

    @model_validator(mode="after")
    def _points_match_factors(self) -> Schedule:
        if self.kind in ("constant", "onecycle"):
            return self
        if len(self.at) != len(self.factors):
            raise ValueError(f"'at' has {len(self.at)} points but 'factors' has {len(self.factors)}; give one each")
        if list(self.at) != sorted(self.at):
            raise ValueError(f"'at' must increase, not {list(self.at)}; sort the points")
        return self


class Augmentation(Strict):
    """Random changes of the training images."""

    crop: Literal["none", "reflect", "zero"] = Field(
        "none", description="random crop of the image after padding it with its reflection or with zeros"
    )
    padding: int = Field(4, ge=0, description="pixels added on each side before the crop")
    flip: bool = Field(False, description="mirror half of the images, left to right")
    rotation: NonNegative = Field(0.0, description="largest random rotation, in degrees")
    # None rather than 0, which would rename every stored trial.
    cutmix: Positive | None = Field(
        None, description="alpha of CutMix, for losses that accept mixed labels", examples=[1.0]
    )


def _absent_if(default: bool) -> BeforeValidator:
    """Return a validator that drops a switch at its default, so that writing it out renames no trial."""
    return BeforeValidator(lambda value: None if value is default else value)


# Settings of how a network is computed, with the value that each has when absent. They were added later: absent ones
# appear in no name or record.
COMPUTED = {"precision": None, "compile": False, "deterministic": False, "channels_last": True}


class Recipe(Strict):
    """The training of one model. A study sets it once, and a method may override parts of it."""

    epochs: int = Field(200, ge=1, description="passes over the training images")
    steps: int | None = Field(None, ge=1, description="optimizer steps instead of epochs (MMA)", examples=[50000])
    batch_size: int = Field(128, ge=1, description="images per step")
    learning_rate: Positive = Field(0.1, description="learning rate of SGD, before the schedule")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.9, description="momentum of SGD")
    weight_decay: NonNegative = Field(5e-4, description="weight decay of SGD")
    nesterov: bool = Field(False, description="Nesterov's momentum")
    decay_batchnorm: bool = Field(True, description="apply weight decay to BatchNorm's parameters too")
    schedule: Schedule = Field(Schedule(), description="learning rate over time")
    augmentation: Augmentation = Field(Augmentation(), description="random changes of the training images")
    standardize: bool = Field(
        True, description="subtract the data set's mean and divide by its standard deviation, inside the network"
    )
    # The official loop's extra clean forward pass updates BatchNorm's buffers.
    log_clean_forward: bool = Field(
        True, description="one more clean forward pass in each step, as in the official code, which logs its accuracy"
    )
    attack: InnerAttack = Field(InnerAttack(), description="the attack inside training")
    precision: Literal["ieee", "tf32", "bf16"] | None = Field(
        None,
        description="precision of the network; absent: float32, with tf32 in a GPU's convolutions",
        examples=["bf16"],
    )
    compile: Annotated[Literal[True] | None, _absent_if(False)] = Field(
        None, description="compile the network with torch.compile", examples=[True]
    )
    deterministic: Annotated[Literal[True] | None, _absent_if(False)] = Field(
        None, description="make a GPU repeat its numbers bit for bit, at a cost; a CPU always does", examples=[True]
    )
    channels_last: Annotated[Literal[False] | None, _absent_if(True)] = Field(
        None, description="false: keep weights and images in torch's default memory format", examples=[False]
    )

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        return {name: value for name, value in content.items() if value is not None or name not in COMPUTED}


class Selection(Strict):
    """The rule that selects the epoch whose weights are kept.

    `best_validation` is kept if images are held out, `best_test` under the protocol `paper`. Images that the protocol
    does not use are not measured: `heldout` leaves the test images alone until the evaluation. The last epoch is always
    measured.
    """

    protocol: Literal["paper", "heldout"] = Field(
        "paper", description="which weights the tables show: best on test images (paper) or on held-out ones (heldout)"
    )
    validation: int = Field(0, ge=0, description="training images held out", examples=[1000])
    validation_from: Literal["start", "end", "spread"] = Field(
        "end", description="which images are held out: the first or last of the file, or evenly spread over each class"
    )
    loss: Literal["ce", "cw"] = Field("ce", description="loss that the selection attack maximises")
    steps: int = Field(20, ge=0, description="steps of the selection attack; 0 selects by clean accuracy")
    step_size: Amount = Field("2/255", description="step size of the selection attack")
    epsilon: Amount = Field("8/255", description="radius of the selection attack")
    from_epoch: int = Field(0, ge=0, description="first epoch that is measured, counted from 0")
    every: int = Field(1, ge=1, description="epochs between two measurements")
    ties: Literal["first", "last"] = Field("first", description="which of two equally good epochs is kept")
    images: int | None = Field(None, ge=1, description="test images used for selection; all if absent", examples=[1000])
    # None rather than false, which would rename every stored trial.
    margin: Literal[True] | None = Field(
        None,
        description="also measure accuracy under a margin attack on the held-out images, for a search",
        examples=[True],
    )
    quick: Literal[True] | None = Field(
        None, description="also measure accuracy under `quick` on the held-out images, for a search", examples=[True]
    )
    norm: NormName | None = Field(
        None, description="norm of the selection attack; that of train.attack if absent", examples=["l2"]
    )
    keep: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        None, description="epochs N, counted from 1, whose weights are also kept, as epoch-N", examples=[[100]]
    )

    @model_validator(mode="after")
    def _heldout_needs_images(self) -> Selection:
        if self.protocol == "heldout" and self.validation == 0:
            raise ValueError("protocol 'heldout' needs validation > 0; set selection.validation or protocol: paper")
        return self

    def measures(self, epoch: int, epochs: int) -> bool:
        """Return True if this 0-based epoch of `epochs` is measured: every `every` epochs, and the last one."""
        return epoch + 1 == epochs or (epoch >= self.from_epoch and (epoch + 1) % self.every == 0)

    @property
    def headline(self) -> str:
        """Return the name of the checkpoint that the tables show."""
        return "best_test" if self.protocol == "paper" else "best_validation"

    def named(self, checkpoints: Iterable[str]) -> list[str]:
        """Return the names of these checkpoints, each once.

        `headline` becomes the headline checkpoint's own name. An `epoch-N` that this training does not keep is left
        out.
        """
        wanted = [name for name in checkpoints if kept_epoch(name) in (None, *(self.keep or ()))]
        return list(dict.fromkeys(self.headline if name == "headline" else name for name in wanted))


class TrialConfig(Strict):
    """The configuration of one training. Equal configurations give equal numbers, whichever study defines them.

    When serialised, each wrapper's settings appear at the top level under its name, null if it is absent.
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
        """Collect the wrappers' settings, which are serialised at the top level, into `wrappers`."""
        if not isinstance(content, dict):
            return content
        rest = dict(content)
        named = {name: rest.pop(name, None) for name in registry.WRAPPERS.names()}
        settings = rest.pop("wrappers", {}) | {name: value for name, value in named.items() if value is not None}
        wrappers = {name: registry.WRAPPERS.get(name).model_validate(value) for name, value in settings.items()}
        rest.pop("margins", None)  # always recorded now; earlier versions stored a switch
        return rest | {"wrappers": wrappers}

    @model_serializer(mode="wrap")
    def _spread_wrappers(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Write each wrapper's settings at the top level under its name."""
        content: dict[str, Any] = handler(self)
        wrappers = content.pop("wrappers", {})
        absent = {} if info.exclude_none else dict.fromkeys(registry.WRAPPERS.names())
        return content | absent | wrappers
