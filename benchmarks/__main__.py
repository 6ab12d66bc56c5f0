"""Run benchmarks one after the other, each in its own process: `python -m benchmarks [NAME ...]`."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NAMES = sorted(
    [*(file.stem for file in HERE.glob("[!_]*.py")), *(file.parent.name for file in HERE.glob("*/__main__.py"))]
)


def main(wanted: list[str]) -> int:
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        print(f"unknown benchmark {', '.join(unknown)}; known: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    worst = 0
    for name in wanted or NAMES:
        print(f"\n==> {name}", flush=True)
        worst = max(worst, subprocess.call([sys.executable, "-m", f"benchmarks.{name}"]))
    return worst


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
