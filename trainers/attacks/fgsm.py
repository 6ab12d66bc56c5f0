"""fgsm: one step as long as the radius, from the image itself (Goodfellow et al. 2015)."""

from __future__ import annotations

from trainers.attack import AttackSettings
from trainers.attacks.pgd import Pgd


class Fgsm(Pgd):
    """A single gradient step."""

    examples = ("fgsm",)

    kind: str = "fgsm"

    @classmethod
    def from_name(cls, name: str, settings: AttackSettings) -> Fgsm | None:
        if name != "fgsm":
            return None
        radius = settings.epsilon
        return cls(
            name=name,
            norm=settings.norm,
            epsilon=radius,
            start="none",
            steps=1,
            step_size=radius,
            images=settings.images,
        )

    @property
    def display(self) -> str:
        return "FGSM"
