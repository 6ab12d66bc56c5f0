"""`python -m tests.conformance FILE.json`: exit code 0 if all cases agree, 1 if some differ, 2 for an unusable file."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from tests.conformance.comparison import Difference, compare
from tests.conformance.families import FAMILIES
from tests.conformance.oracle import Case, OracleFault, load
from trainers.plugins.spelling import nearest


@dataclass
class FamilyResult:
    cases: int = 0
    error: float = 0.0
    faults: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] in ("-h", "--help"):
        print("usage: python -m tests.conformance FILE.json   (or FILE.json.gz)")
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    try:
        results = run(Path(arguments[0]))
    except OracleFault as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return 2
    print(table(results))
    faults = [fault for result in results.values() for fault in result.unusable + result.faults]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 2 if any(result.unusable for result in results.values()) else 1 if faults else 0


def run(path: Path) -> dict[str, FamilyResult]:
    cases = load(path)
    unknown = sorted({case.family for case in cases} - set(FAMILIES))
    if unknown:
        hint = nearest(unknown[0], FAMILIES).rstrip(";")
        raise OracleFault(f"unknown famil{'y' if len(unknown) == 1 else 'ies'} {', '.join(unknown)}{hint}")
    results: dict[str, FamilyResult] = {}
    for case in cases:
        result = results.setdefault(case.family, FamilyResult())
        result.cases += 1
        try:
            found = differences(case)
        except OracleFault as fault:
            result.unusable.append(f"{case.id}: {fault}")
            continue
        result.error = max([result.error, *(difference.error for difference in found)])
        result.faults += [
            f"{case.id}: {difference.field} {difference.fault}" for difference in found if difference.fault
        ]
    return results


def differences(case: Case) -> list[Difference]:
    family = FAMILIES[case.family]
    try:
        produced = family.compute(case)
    except Exception as error:
        # Arrays and hyperparameters come from the file, so any error they cause is reported as a fault of this case.
        raise OracleFault(f"cannot be computed: {_first_words(error)}") from error
    return [
        found
        for name, value in case.expected.items()
        for found in compare({name: value}, produced, family.tolerance(name))
    ]


def _first_words(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return f"{kind}{(str(error).splitlines() or [''])[0]}"


def table(results: dict[str, FamilyResult]) -> str:
    width = max(len(name) for name in results)
    lines = [f"{'family':<{width}}  cases  largest error"]
    for name, result in sorted(results.items()):
        verdict = f"   {len(result.faults)} values differ" if result.faults else ""
        verdict += f"   {len(result.unusable)} cases cannot be computed" if result.unusable else ""
        lines.append(f"{name:<{width}}  {result.cases:5d}  {result.error:13.2e}{verdict}")
    cases = sum(result.cases for result in results.values())
    lines.append(f"{len(results)} families, {cases} cases, {sum(len(r.faults) for r in results.values())} differences")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
