"""The attacks of evaluations: one file per kind, which parses its names. New files are found automatically."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny, TypeAdapter, ValidationError

from trainers.attack import AttackSettings, EvaluationAttack, times
from trainers.plugins import registry
from trainers.plugins.spelling import nearest
from trainers.values import NORM_DISPLAYS, NORM_NAMES, Amount

AMOUNT = TypeAdapter(Amount)
EXAMPLE = "autoattack@l2:128/255"


def parse(name: str, settings: AttackSettings | None = None, **changes: Any) -> EvaluationAttack:
    """Return the attack behind a name such as pgd-20, cw-100 or autoattack.

    autoattack*1.5 uses 1.5 times the radius; autoattack@l2:0.5 uses another norm with a radius of its own. `changes`
    override `settings`. Raise ValueError, with suggestions, for an unknown name.
    """
    settings = replace(settings or AttackSettings(), **changes)
    base, times_sign, factor = name.partition("*")
    base, at_sign, ball = base.partition("@")
    if at_sign:
        settings = _in_ball(name, ball, settings)
    if times_sign:
        if not re.fullmatch(r"\d{1,4}(\.\d{1,9})?", factor):
            raise ValueError(f"attack {name!r}: after * stands a factor of the radius, such as 1.5")
        settings = replace(settings, epsilon=times(settings.epsilon, Fraction(factor)))
    for kind in registry.ATTACKS.names():
        attack = registry.ATTACKS.get(kind).from_name(base, settings)
        if attack is not None:
            plugin = registry.sha256_of(registry.ATTACKS, kind)
            return attack.model_copy(update={"plugin": plugin}) if plugin else attack
    if name == "corruptions":
        raise ValueError("corruptions are 75 evaluations; ask for one such as corruption-fog-3")
    examples = [example for kind in registry.ATTACKS.names() for example in registry.ATTACKS.get(kind).examples]
    raise ValueError(f"unknown attack {name!r}{nearest(name, examples)} known: {', '.join(examples)}")


def _in_ball(name: str, ball: str, settings: AttackSettings) -> AttackSettings:
    """Return the settings with the norm and radius that follow @ in an attack's name."""
    text, _, epsilon = ball.partition(":")
    norm = next((candidate for candidate in NORM_NAMES if candidate == text), None)
    if norm is None:
        raise ValueError(f"attack {name!r}: after @ stands a norm and its radius, such as {EXAMPLE}")
    if not epsilon and norm != settings.norm:
        raise ValueError(f"attack {name!r}: norm {norm} needs a radius of its own, such as {EXAMPLE}")
    try:
        radius = AMOUNT.validate_python(epsilon or settings.epsilon)
    except ValidationError:
        raise ValueError(
            f"attack {name!r}: the radius {epsilon!r} must be a number or a fraction such as 8/255"
        ) from None
    step_size = settings.step_size if norm == settings.norm else None
    return replace(settings, norm=norm, epsilon=radius, step_size=step_size)


def from_record(content: Any) -> EvaluationAttack:
    """Return the attack that a record describes."""
    if isinstance(content, EvaluationAttack):
        return content
    if not isinstance(content, Mapping):
        raise ValueError("must be a mapping")
    return registry.ATTACKS.get(str(content.get("kind"))).model_validate(content)


# Type of a record's field: each attack is read and written as its own kind.
AnyAttack = Annotated[SerializeAsAny[EvaluationAttack], BeforeValidator(from_record)]


@cache
def display_name(name: str) -> str:
    """Return the name as tables write it; unknown names are assumed to belong to a plug-in."""
    base, at_sign, norm = name.partition("@")
    ending = f", {NORM_DISPLAYS.get(norm, norm)}" if at_sign else ""
    try:
        return parse(base).display + ending
    except ValueError:
        return base.replace("-", " ").capitalize() + ending
