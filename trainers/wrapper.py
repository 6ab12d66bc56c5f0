"""The interface of a wrapper, composed over any method: its settings and its hooks into training. Loads no torch."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainers.dataset import DatasetFacts
from trainers.method import Method
from trainers.values import Strict

if TYPE_CHECKING:
    from torch import nn

    from trainers.data.bundle import DataBundle


class Hooks:
    """A wrapper at work in one training. Every hook is optional."""

    model: nn.Module | None = None  # evaluated and kept in place of the trained model

    def is_active(self, epoch: int) -> bool:
        """Return True if the hooks of a step are called in this 0-based epoch."""
        return True

    def around(self, method: Method) -> Method:
        """Return the method whose loss replaces this one's."""
        return method

    def settings(self, model: nn.Module, step: int) -> AbstractContextManager[None]:
        """Return a context that is active during step `step`, counted from 0."""
        return nullcontext()

    def after_update(self, model: nn.Module) -> None:
        """Act right after the optimizer's step, before any other forward."""

    def after_step(self, model: nn.Module, step: int) -> None:
        """Act after the whole step `step`, counted from 0."""

    def end_epoch(self, model: nn.Module) -> None:
        """Act before the model is evaluated."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class Wrapper(Strict):
    """The settings of a wrapper, as fields of a subclass.

    The name of its file follows the + in a method's name.
    """

    display: ClassVar[str]
    excludes: ClassVar[dict[str, str]] = {}  # wrapper that cannot be combined with this one -> why
    passes: ClassVar[float] = 0.0  # forward-backward passes added to each step
    state_copies: ClassVar[int] = 0  # copies of the weights in the state to resume from
    needs_files: ClassVar[bool] = False
    few_epochs: ClassVar[dict[str, Any]] = {}  # settings under which it takes effect in a training of three epochs

    def begin(self, model: nn.Module, steps: int) -> Hooks:
        """Return the hooks for a training of this model with so many steps."""
        raise NotImplementedError

    def check_files(self, facts: DatasetFacts, folder: Path) -> None:
        """Raise DataMissing if the data folder lacks a file that the wrapper needs."""

    def data_sha256(self, folder: Path) -> dict[str, str]:
        """Return the SHA-256 of each file that the wrapper trains on, by its name in the settings."""
        return {}

    def prepare(self, data: DataBundle, folder: Path) -> DataBundle:
        """Return the data to train on, extended if the wrapper adds any."""
        return data
