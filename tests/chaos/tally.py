"""What a campaign counts, and the table at its end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

COLUMNS = (
    "cases",
    "kills",
    "damages",
    "faults",
    "lost",
    "doubled",
    "differing",
    "silent",
    "hangs",
    "tracebacks",
    "processes left",
)
BAD = COLUMNS[4:]


@dataclass
class Result:
    """Of one case. `case` is all that is needed to repeat it."""

    part: str
    case: str
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)  # what went wrong, in words
    notes: list[str] = field(default_factory=list)

    def bad(self, what: str, words: str) -> None:
        self.counts[what] += 1
        self.faults.append(f"{what}: {words}")

    @property
    def command(self) -> str:
        return f"python -m tests.chaos --repeat {self.part}:{self.case}"


@dataclass
class Tally:
    results: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        result.counts["cases"] += 1
        self.results.append(result)

    @property
    def failed(self) -> list[Result]:
        return [result for result in self.results if result.faults]

    def table(self) -> str:
        """Markdown: a row for each part, a last one for all."""
        parts = list(dict.fromkeys(result.part for result in self.results))
        rows = [(part, [result for result in self.results if result.part == part]) for part in parts]
        rows.append(("all", self.results))
        lines = [f"| part | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
        for name, results in rows:
            total: Counter[str] = sum((result.counts for result in results), Counter())
            lines.append(f"| {name} | {' | '.join(str(total[column]) for column in COLUMNS)} |")
        return "\n".join(lines)
