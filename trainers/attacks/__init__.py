"""The attacks of evaluations: one file for each kind, which knows its names. A file that is put here is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny

from trainers import registry
from trainers.attack import AttackSettings, EvaluationAttack, times
from trainers.spelling import nearest

EXAMPLES = (
    "clean", "fgsm", "pgd-20", "pgd-100", "cw-100", "spsa", "logit-scaling-10",
    "autoattack", "apgd-ce", "apgd-t", "fab-t", "square",
)  # fmt: skip


def parse(name: str, settings: AttackSettings | None = None, **changes: Any) -> EvaluationAttack:
    """The attack behind a name such as pgd-20, cw-100 or autoattack; autoattack*1.5 is at 1.5 times the radius."""
    settings = replace(settings or AttackSettings(), **changes)
    base, _, factor = name.partition("*")
    if factor:
        settings = replace(settings, epsilon=times(settings.epsilon, _factor(name, factor)))
    for kind in registry.ATTACKS.names():
        found = registry.ATTACKS.get(kind).from_name(base, settings)
        if found is not None:
            plugin = registry.sha256_of(registry.ATTACKS, kind)
            return found.model_copy(update={"plugin": plugin}) if plugin else found
    raise ValueError(f"unknown attack {name!r}{nearest(name, EXAMPLES)} known: {', '.join(EXAMPLES)}")


def _factor(name: str, text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"attack {name!r}: after * stands a factor of the radius, such as 1.5") from None


def from_record(content: Any) -> EvaluationAttack:
    """The attack that a record describes."""
    if isinstance(content, EvaluationAttack):
        return content
    if not isinstance(content, Mapping):
        raise ValueError("must be a mapping")
    return registry.ATTACKS.get(str(content.get("kind"))).model_validate(content)


# For fields of records: each attack is read and written as its own kind.
AnyAttack = Annotated[SerializeAsAny[EvaluationAttack], BeforeValidator(from_record)]


@cache
def display_name(name: str) -> str:
    """How tables write it; a name that no kind knows here is one of a plug-in's."""
    try:
        return parse(name).display
    except ValueError:
        return name.replace("-", " ").capitalize()
