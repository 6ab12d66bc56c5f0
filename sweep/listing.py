"""Plain columns of text, which print fast and can be piped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def columns(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return left-aligned columns, two spaces apart. The last column may be of any width."""
    texts = [[str(value) for value in row] for row in (headers, *rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    layout = "  ".join([*(f"{{:<{width}}}" for width in widths[:-1]), "{}"])
    return "\n".join(layout.format(*row).rstrip() for row in texts)


def settings(values: dict[str, object]) -> str:
    return " ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items()
    )


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def seed_list(seeds: Iterable[int]) -> str:
    """Return 0,1,2,3,4 as 0-4, in the spelling of --seeds."""
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)
