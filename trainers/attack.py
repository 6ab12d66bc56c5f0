"""Attacks of an evaluation: settings under a name, and the verdicts that they lead to. Loads no torch."""

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

    from trainers.attacks.scoring.counterexample_file import Counterexamples

FORWARD = 0.4  # cost of a forward pass alone, in forward-backward passes


@dataclass(frozen=True)
class AttackSettings:
    """The settings that an evaluation offers to all its attacks; each attack reads those that apply to it."""

    epsilon: str = "8/255"
    norm: NormName = "linf"
    step_size: str | None = None
    classes: int = 10
    shape: tuple[int, int, int] | None = None  # (C, H, W) of an image, if known
    seed: int = 0
    batch_size: int = 256
    queries: int = 5000
    images: tuple[int, int] | None = None

    @property
    def step(self) -> str:
        """Return PGD's step size: as given, otherwise a quarter of the radius (2/255 for the usual 8/255)."""
        return self.step_size or times(self.epsilon, Fraction(1, 4))


@dataclass(frozen=True)
class Verdicts:
    """The outcome of one phase for each image.

    `correct` and `clean` are boolean. `clean` is None if the phase does not look at clean images. `adversarial` holds
    the images that `correct` refers to, if the attack makes any. `distances`, for attacks that search for the nearest
    adversarial image, is how far from each image the model was fooled.
    """

    correct: Tensor
    clean: Tensor | None = None
    warnings: list[str] = field(default_factory=list)
    adversarial: Tensor | None = None
    counterexamples: Counterexamples | None = None  # indexed by position among the images; None if none are stored
    distances: Tensor | None = None


class EvaluationAttack(Strict):
    """The settings of one attack: every value that can change its verdicts.

    A subclass sets `kind`, which is the name of its file. `batch_size` is only for attacks whose verdicts depend on an
    image's position in its batch. All other attacks draw random numbers per image and give the same verdicts for every
    batch size.
    """

    examples: ClassVar[tuple[str, ...]] = ()  # names to suggest when one is misspelt

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
        """Return the attack behind a name, or None if the name belongs to another kind.

        By default an attack's name equals its kind. Override this to read settings from the name.
        """
        kind = cls.model_fields["kind"].default
        shared = {key: getattr(settings, key) for key in ("norm", "epsilon", "seed", "images")}
        return cls(name=name, kind=kind, **shared) if name == kind else None

    @property
    def id(self) -> str:
        """Return a unique file name: the attack's name, norm and radius, and a hash of all its settings."""
        canonical = json.dumps(self.model_dump(mode="json", exclude_none=True), sort_keys=True, separators=(",", ":"))
        norm = "" if self.norm == "linf" else f"-{self.norm}"
        return f"{self.name}{norm}{self._radius}-{hashlib.sha256(canonical.encode()).hexdigest()[:8]}"

    @property
    def _radius(self) -> str:
        return "-" + self.epsilon.replace("/", "_")

    @property
    def phases(self) -> tuple[str, ...]:
        """Return the names of the phases, which run in order, each on the survivors of the one before."""
        return ("",)

    @property
    def cost(self) -> float:
        """Return the approximate number of forward-backward passes per image."""
        raise NotImplementedError

    def passes(self, phase: str) -> float:
        """Return the approximate number of forward-backward passes per image that reaches this phase."""
        return self.cost / len(self.phases)

    def expected_passes(self, right: float, robust: float) -> float:
        """Return the expected forward-backward passes per image.

        `right` is the share of images that the model classifies correctly, `robust` the share that stays correct under
        attack.
        """
        reached = (1.0, right, *(robust for _ in self.phases[2:]))
        return sum(share * self.passes(phase) for share, phase in zip(reached, self.phases, strict=False))

    @property
    def display(self) -> str:
        """Return the attack's name as tables write it."""
        return self.name.replace("-", " ").capitalize()

    def images_of(self, images: Tensor, labels: Tensor, dataset: str, data_dir: str | None) -> Tensor:
        """Return the images to attack: the test images, unless the attack brings its own version of them.

        `images` and `labels` are the test set's, in order; `data_dir` is the folder with the data files.
        """
        return images

    def adversarial(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        """Return the adversarial version of a batch.

        `indices` are the images' positions in their data set; random numbers must depend on these.
        """
        raise NotImplementedError

    def verdicts(
        self, model: nn.Module, images: Tensor, labels: Tensor, phase: str, *, indices: Tensor, checks: bool
    ) -> Verdicts:
        """Return the verdicts for one batch on the model's device, with the model in eval mode.

        `checks` asks for whatever the attack inspects once per data set.
        """
        from trainers.attacks.perturbation.projected_ascent import correct_predictions

        clean = correct_predictions(model, images, labels)
        adversarial = self.adversarial(model, images, labels, indices)
        if adversarial is images:
            return Verdicts(clean, clean)
        return Verdicts(correct_predictions(model, adversarial, labels), clean, adversarial=adversarial)


def times(amount: str, factor: Fraction) -> str:
    """Return a multiple of an amount, keeping its denominator: 3/2 times 8/255 is 12/255."""
    numerator, _, denominator = amount.partition("/")
    product = f"{float(Fraction(numerator) * factor):.12g}"
    return f"{product}/{denominator}" if denominator else product
