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
FLIPS = "flips of "


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

    def flipped(self, kind: str) -> None:
        """A bit of a file of this kind."""
        self.counts["damages"] += 1
        self.counts[f"{FLIPS}{kind}"] += 1

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

    def flips(self) -> str:
        """Bits that were flipped, by the kind of file; empty where none were."""
        total: Counter[str] = sum((result.counts for result in self.results), Counter())
        found = {name.removeprefix(FLIPS): count for name, count in total.items() if name.startswith(FLIPS)}
        if not found:
            return ""
        return f"| flips of | {' | '.join(found)} |\n{'|---' * (len(found) + 1)}|\n| bits | " + (
            f"{' | '.join(map(str, found.values()))} |\n"
        )
