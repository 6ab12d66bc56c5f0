from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks import scale
from benchmarks.scale.simulation import Simulation, study_of

RESULTS = Path(__file__).parents[1] / "results" / "scale.json"
LIMITS = {"use": 0.97, "driver_milliseconds": 10.0, "operations": 15.0, "growth": 2.0}


def simulated(trials: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="robustsweep-scale-") as folder:
        simulation = Simulation(study_of(trials, Path(folder)), trials)
        simulation.run()
    found = simulation.result()
    print("  ".join(f"{name} {value:.4g}" for name, value in found.items()), flush=True)
    for name, asked in (("operations", simulation.store.asked), ("checkpoints", simulation.store.checkpoints)):
        print(
            f"  {name}:", ", ".join(f"{kind} {count / trials:.1f}" for kind, count in asked.most_common(12)), flush=True
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=scale.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[100, 1000, 10_000])
    found = [simulated(trials) for trials in parser.parse_args().trials]
    first, last = found[0], found[-1]
    measured = {name: last[name] for name in LIMITS if name in last}
    measured["growth"] = last["driver_milliseconds"] / first["driver_milliseconds"]
    missed = [
        name for name, limit in LIMITS.items() if (measured[name] < limit if name == "use" else measured[name] > limit)
    ]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"measured": found, "limits": LIMITS, "missed": missed}, indent=1) + "\n")
    print(f"missed: {', '.join(missed)}" if missed else "all limits kept")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
