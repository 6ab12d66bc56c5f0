"""autoattack, and its components one by one: apgd-ce, apgd-t, fab-t, square (Croce & Hein 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from trainers.attack import AttackSettings, EvaluationAttack, Verdicts

if TYPE_CHECKING:
    from torch import Tensor, nn

# In the standard order, with passes per image: about half of the images survive the first one.
COMPONENTS = {"apgd-ce": 100.0, "apgd-t": 450.0, "fab-t": 450.0, "square": 800.0}
DISPLAYS = {"autoattack": "AutoAttack", "square": "Square"}


class AutoAttack(EvaluationAttack):
    """The batch is part of the attack: its random starts depend on an image's place in its batch."""

    kind: str = "autoattack"
    components: tuple[str, ...]
    targets: int | None = Field(default=None, ge=1, description="target classes of apgd-t and fab-t")
    queries: int | None = Field(default=None, ge=1, description="queries of square")

    @classmethod
    def from_name(cls, name: str, settings: AttackSettings) -> AutoAttack | None:
        if name != "autoattack" and name not in COMPONENTS:
            return None
        components, classes = tuple(COMPONENTS) if name == "autoattack" else (name,), settings.classes
        if "apgd-t" in components and classes < 4:
            raise ValueError(
                f"{name} needs at least 4 classes for its targeted loss, not {classes}; use pgd or apgd-ce"
            )
        return cls(
            name=name,
            epsilon=settings.epsilon,
            seed=settings.seed,
            components=components,
            # 9 targets are the standard; with fewer than 10 classes there are only K-1 wrong ones.
            targets=min(9, classes - 1) if {"apgd-t", "fab-t"} & set(components) else None,
            queries=settings.queries if "square" in components else None,
            batch_size=settings.batch_size,
            images=settings.images,
        )

    @property
    def phases(self) -> tuple[str, ...]:
        return ("clean", *self.components)

    @property
    def cost(self) -> float:
        return sum(COMPONENTS[component] for component in self.components)

    @property
    def display(self) -> str:
        return DISPLAYS.get(self.name, self.name.upper())

    def verdicts(
        self, model: nn.Module, images: Tensor, labels: Tensor, phase: str, *, indices: Tensor, checks: bool
    ) -> Verdicts:
        from trainers.perturbation import autoattack
        from trainers.perturbation.linf import correct_predictions

        if phase != "clean":
            survived, warnings = autoattack.run_component(model, images, labels, phase, self)
            return Verdicts(survived, None, warnings)
        right = correct_predictions(model, images, labels)
        return Verdicts(right, right, autoattack.check_model(model, images, labels, self) if checks else [])
