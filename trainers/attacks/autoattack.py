"""autoattack, its components (apgd-ce, apgd-t, fab-t, square) and autoattack-rand (Croce & Hein 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from trainers.attack import FORWARD, AttackSettings, EvaluationAttack, Verdicts

if TYPE_CHECKING:
    from torch import Tensor, nn

COMPONENTS = ("apgd-ce", "apgd-dlr", "apgd-t", "fab-t", "square")
STANDARD = ("apgd-ce", "apgd-t", "fab-t", "square")  # in the package's order
VERSIONS = {"autoattack": STANDARD, "autoattack-rand": ("apgd-ce", "apgd-dlr")}
QUERY = 0.32  # cost of one of square's queries, without gradient, in forward-backward passes
SAMPLES = 20  # of a randomised model's gradient, per step of autoattack-rand
DISPLAYS = {"autoattack": "AutoAttack", "autoattack-rand": "AutoAttack (rand)", "square": "Square"}


class AutoAttack(EvaluationAttack):
    """AutoAttack or one of its components.

    The batch is part of the attack, because the random starts depend on an image's position in its batch.
    """

    examples = ("autoattack", *STANDARD, "autoattack-rand")

    kind: str = "autoattack"
    components: tuple[str, ...]
    targets: int | None = Field(default=None, ge=1, description="target classes of apgd-t and fab-t")
    queries: int | None = Field(default=None, ge=1, description="queries of square")
    samples: int | None = Field(default=None, ge=1, description="gradients averaged in a step, of a randomised model")

    @classmethod
    def from_name(cls, name: str, settings: AttackSettings) -> AutoAttack | None:
        if name not in VERSIONS and name not in STANDARD:
            return None
        components, classes = VERSIONS.get(name, (name,)), settings.classes
        fewest = 4 if "apgd-t" in components else 3 if "apgd-dlr" in components else 1
        if classes < fewest:
            loss = "targeted loss" if fewest == 4 else "loss of logit ratios"
            raise ValueError(
                f"{name} needs at least {fewest} classes for its {loss}, not {classes}; use pgd or apgd-ce"
            )
        if "square" in components and settings.shape and not _square_starts(settings.norm, settings.shape):
            raise ValueError(
                f"{name} in {settings.norm} cannot start on {settings.shape[1]}x{settings.shape[2]} images: the tiles "
                "that pyautoattack's Square begins with do not fit; use pgd, apgd-ce, apgd-t or fab-t, or images of "
                "25x25 or more"
            )
        return cls(
            name=name,
            norm=settings.norm,
            epsilon=settings.epsilon,
            seed=settings.seed,
            components=components,
            # The standard is 9 targets; fewer than 10 classes leave only K-1 wrong ones.
            targets=min(9, classes - 1) if {"apgd-t", "fab-t"} & set(components) else None,
            queries=settings.queries if "square" in components else None,
            samples=SAMPLES if name == "autoattack-rand" else None,
            batch_size=settings.batch_size,
            images=settings.images,
        )

    @property
    def phases(self) -> tuple[str, ...]:
        return ("clean", *self.components)

    @property
    def cost(self) -> float:
        return self.expected_passes(right=1.0, robust=0.5)

    def passes(self, phase: str) -> float:
        if phase == "clean":
            return FORWARD
        if phase == "square":
            return QUERY * (self.queries or 0)
        return 100.0 * (self.targets or 1 if phase in ("apgd-t", "fab-t") else 1) * (self.samples or 1)

    @property
    def display(self) -> str:
        return DISPLAYS.get(self.name, self.name.upper())

    def verdicts(
        self, model: nn.Module, images: Tensor, labels: Tensor, phase: str, *, indices: Tensor, checks: bool
    ) -> Verdicts:
        from trainers.attacks.perturbation import autoattack

        if phase != "clean":
            survived, warnings, adversarial = autoattack.run_component(model, images, labels, phase, self)
            # An image that fools one draw of a randomised model need not fool the next.
            return Verdicts(survived, None, warnings, adversarial if self.samples is None else None)
        right = autoattack.clean_predictions(model, images, labels, self)
        return Verdicts(right, right, autoattack.check_model(model, images, labels, self) if checks else [])


def _square_starts(norm: str, shape: tuple[int, int, int]) -> bool:
    """Return True if Square's first perturbation in L2 and L1, five tiles a side plus a margin, fits the image."""
    _, height, width = shape
    side = height // 5
    margin = (height - 5 * side) // 2
    return norm == "linf" or side == 1 or (side > 1 and all(margin + n // side * side <= n for n in (height, width)))
