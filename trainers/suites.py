"""Which attacks an evaluation runs, as frozen values with a name each. Loads no torch."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from pydantic import Field

from trainers.config import Amount, NonNegative, Positive, Strict

AUTOATTACK_COMPONENTS = ("apgd-ce", "apgd-t", "fab-t", "square")
SCALES = ("0.1", "1", "10", "100")
SUITES = ("main", "components", "various_attacks", "larger_epsilon", "logit_scaling", "diagnostics", "paper")

Kind = Literal["clean", "fgsm", "pgd", "spsa", "autoattack"]


class EvaluationAttack(Strict):
    """Everything that can move the verdicts of one attack. Fields that mean nothing to its kind stay absent.

    `batch_size` belongs to AutoAttack only: its random starts depend on an image's place in its batch, so the batch
    is part of the attack. The attacks of our own draw by image and give the same verdicts for every batch size.
    """

    name: str
    kind: Kind
    norm: Literal["linf"] = "linf"
    epsilon: Amount = "8/255"
    seed: int = Field(default=0, ge=0)
    loss: Literal["ce", "cw", "cw_clamped_above", "cw_until_wrong"] | None = None
    start: Literal["uniform", "none"] | None = None
    steps: int | None = Field(default=None, ge=0)
    step_size: Amount | None = None
    alpha: Positive | None = Field(default=None, description="factor on the logits (logit scaling)")
    strict: bool | None = Field(default=None, description="robust only if correct after every step, not just the last")
    samples: int | None = Field(default=None, ge=1, description="SPSA directions per step")
    delta: Positive | None = Field(default=None, description="SPSA finite difference")
    learning_rate: NonNegative | None = None
    components: tuple[str, ...] | None = None
    targets: int | None = Field(default=None, ge=1, description="target classes of apgd-t and fab-t")
    queries: int | None = Field(default=None, ge=1, description="queries of square")
    batch_size: int | None = Field(default=None, ge=1)
    images: tuple[int, int] | None = Field(
        default=None, description="first and last + 1 of the test images; all if absent"
    )

    @property
    def id(self) -> str:
        """A file name: the attack's name and radius for people, a hash of all its values for certainty."""
        canonical = json.dumps(self.model_dump(mode="json", exclude_none=True), sort_keys=True, separators=(",", ":"))
        radius = "" if self.kind == "clean" else "-" + self.epsilon.replace("/", "_")
        return f"{self.name}{radius}-{hashlib.sha256(canonical.encode()).hexdigest()[:8]}"

    @property
    def phases(self) -> tuple[str, ...]:
        """What is computed one after the other, each on the survivors of the one before; one phase for our attacks."""
        return ("clean", *self.components) if self.components is not None else ("",)


def parse(
    name: str,
    *,
    epsilon: str = "8/255",
    step_size: str | None = None,
    classes: int = 10,
    seed: int = 0,
    batch_size: int = 256,
    queries: int = 5000,
    images: tuple[int, int] | None = None,
) -> EvaluationAttack:
    """The attack behind a name such as pgd-20, cw-100, logit-scaling-10, autoattack or square.

    PGD's step is a quarter of the radius unless given: 2/255 for the usual 8/255.
    """
    step_size = step_size or _times(epsilon, Fraction(1, 4))
    if name == "clean":
        return EvaluationAttack(name=name, kind="clean", epsilon="0", images=images)
    if name == "fgsm":
        return EvaluationAttack(
            name=name, kind="fgsm", epsilon=epsilon, loss="ce", start="none", steps=1, step_size=epsilon, images=images
        )
    if match := re.fullmatch(r"(pgd|cw)-(\d+)", name):
        return EvaluationAttack(
            name=name,
            kind="pgd",
            epsilon=epsilon,
            seed=seed,
            loss="ce" if match[1] == "pgd" else "cw",
            start="uniform",
            steps=int(match[2]),
            step_size=step_size,
            images=images,
        )
    if match := re.fullmatch(r"logit-scaling-(\d+(?:\.\d+)?)(-strict)?", name):
        return EvaluationAttack(
            name=name,
            kind="pgd",
            epsilon=epsilon,
            seed=seed,
            loss="ce",
            start="uniform",
            steps=20,
            step_size=step_size,
            alpha=float(match[1]),
            strict=bool(match[2]) or None,
            images=images,
        )
    if match := re.fullmatch(r"spsa(?:-(\d+))?", name):
        return EvaluationAttack(
            name=name,
            kind="spsa",
            epsilon=epsilon,
            seed=seed,
            steps=int(match[1] or 100),
            samples=256,
            delta=0.001,
            learning_rate=0.01,
            images=images,
        )
    if name == "autoattack" or name in AUTOATTACK_COMPONENTS:
        components = AUTOATTACK_COMPONENTS if name == "autoattack" else (name,)
        if "apgd-t" in components and classes < 4:
            raise ValueError(
                f"{name} needs at least 4 classes for its targeted loss, not {classes}; use pgd or apgd-ce"
            )
        return EvaluationAttack(
            name=name,
            kind="autoattack",
            epsilon=epsilon,
            seed=seed,
            components=components,
            # 9 targets are the standard; with fewer than 10 classes there are only K-1 wrong ones.
            targets=min(9, classes - 1) if {"apgd-t", "fab-t"} & set(components) else None,
            queries=queries if "square" in components else None,
            batch_size=batch_size,
            images=images,
        )
    known = [*_EXAMPLES, *AUTOATTACK_COMPONENTS]
    raise ValueError(f"unknown attack {name!r}; {_hint(name, known)}")


_EXAMPLES = ("clean", "fgsm", "pgd-20", "pgd-100", "cw-100", "spsa", "logit-scaling-10", "autoattack")

_MAIN = ("clean", "pgd-20", "autoattack")
_VARIOUS = ("clean", "autoattack", "fgsm", "pgd-100", "cw-100", "spsa")
_SCALING = tuple(f"logit-scaling-{alpha}" for alpha in SCALES)


def attacks(
    suite: str,
    *,
    epsilon: str = "8/255",
    step_size: str | None = None,
    classes: int = 10,
    seed: int = 0,
    batch_size: int = 256,
    images: int | None = None,
) -> list[EvaluationAttack]:
    """The attacks of a suite, each once. `larger_epsilon` is 1.5 and 2 times the radius: 12/255 and 16/255 of 8/255.

    `images` limits the evaluation to the first n test images.
    """

    def build(names: tuple[str, ...], radius: str = epsilon) -> list[EvaluationAttack]:
        return [
            parse(
                name,
                epsilon=radius,
                step_size=step_size,
                classes=classes,
                seed=seed,
                batch_size=batch_size,
                images=None if images is None else (0, images),
            )
            for name in names
        ]

    large = [attack for radius in larger_radii(epsilon) for attack in build(("autoattack",), radius)]
    chosen = {
        "main": build(_MAIN),
        "components": build(("clean", "autoattack", *AUTOATTACK_COMPONENTS)),
        "various_attacks": build(_VARIOUS),
        "larger_epsilon": build(("clean",)) + large,
        "logit_scaling": build(("clean", *_SCALING)),
        "diagnostics": build(("clean", "pgd-20")),
    }
    chosen["paper"] = [attack for attacks_of_suite in list(chosen.values()) for attack in attacks_of_suite]
    if suite not in chosen:
        raise ValueError(f"unknown suite {suite!r}; {_hint(suite, SUITES)}")
    return list({attack.id: attack for attack in chosen[suite]}.values())


def larger_radii(epsilon: str) -> tuple[str, str]:
    return _times(epsilon, Fraction(3, 2)), _times(epsilon, Fraction(2))


def _times(amount: str, factor: Fraction) -> str:
    """A multiple of an amount, over the same denominator where there is one: 3/2 of 8/255 is 12/255."""
    numerator, _, denominator = amount.partition("/")
    product = f"{float(Fraction(numerator) * factor):.12g}"
    return f"{product}/{denominator}" if denominator else product


def wants_diagnostics(suite: str) -> bool:
    return suite in ("diagnostics", "paper")


def _hint(name: str, known: Sequence[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1)
    return (f"did you mean {nearest[0]!r}? " if nearest else "") + f"known: {', '.join(known)}"
