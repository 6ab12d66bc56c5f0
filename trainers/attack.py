"""What an attack of an evaluation is: settings under a name, and the verdicts that they lead to. Loads no torch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from trainers.values import Amount, NormName, Strict

if TYPE_CHECKING:
    from torch import Tensor, nn

    from trainers.counterexample_file import Counterexamples

FORWARD = 0.4  # the cost of a forward alone, in forward-backward passes


@dataclass(frozen=True)
class AttackSettings:
    """What an evaluation asks of all its attacks; each takes what concerns it."""

    epsilon: str = "8/255"
    norm: NormName = "linf"
    step_size: str | None = None
    classes: int = 10
    shape: tuple[int, int, int] | None = None  # of an image, where it is known
    seed: int = 0
    batch_size: int = 256
    queries: int = 5000
    images: tuple[int, int] | None = None

    @property
    def step(self) -> str:
        """PGD's step: a quarter of the radius unless given, 2/255 for the usual 8/255."""
        return self.step_size or times(self.epsilon, Fraction(1, 4))


@dataclass(frozen=True)
class Verdicts:
    """`correct` and `clean` are boolean, one per image; `clean` is absent where a phase does not look at it.

    `adversarial` are the images that `correct` is about, where the attack made any: what fools the model is kept.
    `distances` say, of an attack that looks for the nearest, how far from each image the model was fooled.
    """

    correct: Tensor
    clean: Tensor | None = None
    warnings: list[str] = field(default_factory=list)
    adversarial: Tensor | None = None
    counterexamples: Counterexamples | None = None  # None where none are kept, by their places among the images
    distances: Tensor | None = None


class EvaluationAttack(Strict):
    """Everything that can move the verdicts of one attack. A subclass sets `kind`, which is its file's name.

    `batch_size` is for attacks whose verdicts depend on an image's place in its batch. All others draw by image and
    give the same verdicts for every batch size.
    """

    examples: ClassVar[tuple[str, ...]] = ()  # of its names, for who misspells one

    name: str
    kind: str
    norm: NormName = "linf"
    epsilon: Amount = "8/255"
    seed: int = Field(default=0, ge=0)
    batch_size: int | None = Field(default=None, ge=1)
    images: tuple[int, int] | None = Field(
        default=None, description="first and last + 1 of the test images; all if absent"
    )
    plugin: str | None = Field(default=None, description="SHA-256 of the plug-in that defines the attack")

    @classmethod
    def from_name(cls, name: str, settings: AttackSettings) -> EvaluationAttack | None:
        """The attack of this kind behind a name, None where the name is not of this kind. Its own name is its kind's
        unless it reads more out of a name."""
        kind = cls.model_fields["kind"].default
        taken = {key: getattr(settings, key) for key in ("norm", "epsilon", "seed", "images")}
        return cls(name=name, kind=kind, **taken) if name == kind else None

    @property
    def id(self) -> str:
        """A file name: the attack's name, norm and radius for people, a hash of all its values for certainty."""
        canonical = json.dumps(self.model_dump(mode="json", exclude_none=True), sort_keys=True, separators=(",", ":"))
        norm = "" if self.norm == "linf" else f"-{self.norm}"
        return f"{self.name}{norm}{self._radius}-{hashlib.sha256(canonical.encode()).hexdigest()[:8]}"

    @property
    def _radius(self) -> str:
        return "-" + self.epsilon.replace("/", "_")

    @property
    def phases(self) -> tuple[str, ...]:
        """What is computed one after the other, each on the survivors of the one before."""
        return ("",)

    @property
    def cost(self) -> float:
        """Forward-backward passes per image, roughly."""
        raise NotImplementedError

    def passes(self, phase: str) -> float:
        """Those of an image that reaches this phase."""
        return self.cost / len(self.phases)

    def expected_passes(self, right: float, robust: float) -> float:
        """Per image, of a model that classifies this share right and keeps that share right under attack."""
        reached = (1.0, right, *(robust for _ in self.phases[2:]))
        return sum(share * self.passes(phase) for share, phase in zip(reached, self.phases, strict=False))

    @property
    def display(self) -> str:
        return self.name.replace("-", " ").capitalize()

    def images_of(self, images: Tensor, labels: Tensor, dataset: str, data_dir: str | None) -> Tensor:
        """The images that it is about: those of the test set unless it brings a version of its own of each."""
        return images

    def adversarial(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        """What the attack makes of a batch. `indices` are the images' positions in their data set: randomness goes
        by them."""
        raise NotImplementedError

    def verdicts(
        self, model: nn.Module, images: Tensor, labels: Tensor, phase: str, *, indices: Tensor, checks: bool
    ) -> Verdicts:
        """Of one batch on the model's device, with the model in eval mode.

        `checks` asks for whatever the attack looks at once for a data set.
        """
        from trainers.perturbation.projected_ascent import correct_predictions

        clean = correct_predictions(model, images, labels)
        found = self.adversarial(model, images, labels, indices)
        if found is images:
            return Verdicts(clean, clean)
        return Verdicts(correct_predictions(model, found, labels), clean, adversarial=found)


def times(amount: str, factor: Fraction) -> str:
    """A multiple of an amount, over the same denominator where there is one: 3/2 of 8/255 is 12/255."""
    numerator, _, denominator = amount.partition("/")
    product = f"{float(Fraction(numerator) * factor):.12g}"
    return f"{product}/{denominator}" if denominator else product
