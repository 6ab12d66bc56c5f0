"""Suites: the attacks that an evaluation runs, by name. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainers.attack import AttackSettings, EvaluationAttack
from trainers.attacks import corruption, parse
from trainers.plugins.spelling import nearest

SUITES: dict[str, tuple[str, ...]] = {
    "main": ("clean", "pgd-20", "autoattack"),
    "components": ("clean", "autoattack", "apgd-ce", "apgd-t", "fab-t", "square"),
    "various_attacks": ("clean", "autoattack", "fgsm", "pgd-100", "cw-100", "spsa"),
    "larger_epsilon": ("clean", "autoattack*1.5", "autoattack*2"),
    "logit_scaling": ("clean", "logit-scaling-0.1", "logit-scaling-1", "logit-scaling-10", "logit-scaling-100"),
    "diagnostics": ("clean", "pgd-20"),
}
GROUPS = {"corruptions": corruption.ALL}
SUITES["paper"] = tuple(dict.fromkeys(name for names in SUITES.values() for name in names))


def names_of(suite: str) -> tuple[str, ...]:
    """Return the names of a suite's attacks, in order."""
    if suite not in SUITES:
        raise ValueError(f"unknown suite {suite!r}{nearest(suite, SUITES)} known: {', '.join(SUITES)}")
    return SUITES[suite]


def attacks(names: Iterable[str], settings: AttackSettings | None = None, **changes: Any) -> list[EvaluationAttack]:
    """Return the attacks behind these names, each once. `corruptions` stands for all 15 at all 5 severities."""
    expanded = (member for name in names for member in GROUPS.get(name, (name,)))
    parsed = [parse(name, settings, **changes) for name in expanded]
    return list({attack.id: attack for attack in parsed}.values())


def wants_diagnostics(suite: str | None) -> bool:
    """Return True if a suite also runs the paper's diagnostics."""
    return suite in ("diagnostics", "paper")
