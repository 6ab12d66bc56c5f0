"""What can be composed over any method: its settings, what it asks for, and its hooks into training. Loads no torch."""

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
    """A wrapper at work in one training. Every hook may be left as it is."""

    model: nn.Module | None = None  # what is evaluated and kept in place of the trained model

    def is_active(self, epoch: int) -> bool:
        """Whether the hooks of a step are called in this 0-based epoch."""
        return True

    def around(self, method: Method) -> Method:
        """The method whose loss is computed in place of this one's."""
        return method

    def settings(self, model: nn.Module, step: int) -> AbstractContextManager[None]:
        """In force during step `step`, counted from 0."""
        return nullcontext()

    def after_update(self, model: nn.Module) -> None:
        """Right after the optimizer's step, before any other forward."""

    def after_step(self, model: nn.Module, step: int) -> None:
        """After the whole step `step`, counted from 0."""

    def end_epoch(self, model: nn.Module) -> None:
        """Before the model is evaluated."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Wrapper(Strict):
    """A subclass's fields are the wrapper's settings, its file's name what stands after the + in a method's name."""

    display: ClassVar[str]
    excludes: ClassVar[dict[str, str]] = {}  # wrapper that cannot go with this one -> why
    passes: ClassVar[float] = 0.0  # forward-backward passes that it adds to each step
    state_copies: ClassVar[int] = 0  # of the weights, kept in the state to resume from
    needs_files: ClassVar[bool] = False
    few_epochs: ClassVar[dict[str, Any]] = {}  # settings that show its work in a training of three epochs

    def begin(self, model: nn.Module, steps: int) -> Hooks:
        """Its hooks for a training of this model in so many steps."""
        raise NotImplementedError

    def check_files(self, facts: DatasetFacts, folder: Path) -> None:
        """Raises DataMissing where the data folder lacks what the wrapper needs."""

    def data_sha256(self, folder: Path) -> dict[str, str]:
        """The SHA-256 of each file that the wrapper trains on, by its name in the settings."""
        return {}

    def prepare(self, data: DataBundle, folder: Path) -> DataBundle:
        return data
