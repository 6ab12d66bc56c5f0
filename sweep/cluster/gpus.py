"""A test of a node's GPUs: a small convolution on each, in a separate process, as Ray may hide them from this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from sweep.listing import size

TRY_SECONDS = 240.0
WHERE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class GpuFacts:
    found: tuple[dict[str, Any], ...] = ()
    cuda: str = ""  # the CUDA version that torch was built for
    fault: str | None = None

    def lines(self) -> list[str]:
        return [
            f"{gpu['name']}, compute capability {gpu['capability']}, {size(gpu['bytes'])}, CUDA {self.cuda}"
            for gpu in self.found
        ]


def examine_gpus(promised: float) -> GpuFacts:
    """Test the GPUs of this node. `promised` is the number that Ray reports for it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if not environment.get(WHERE):  # Ray hides the GPUs from a task that requested none
        environment.pop(WHERE, None)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "sweep.cluster.gpus"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=TRY_SECONDS,
            check=False,
        )
        answer = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return GpuFacts(fault=f"a convolution on its GPUs did not end within {TRY_SECONDS:.0f} s")
    except (OSError, ValueError, IndexError):
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        return GpuFacts(fault=f"the process that tries its GPUs ended with code {done.returncode}: {last}")
    found = tuple(answer["found"])
    if answer["fault"] is None and len(found) < promised:
        seen = f"Ray counts {promised:g} GPUs there, but torch sees {len(found)}"
        return GpuFacts(found, answer["cuda"], f"{seen}; start its Ray with --num-gpus={len(found)}")
    return GpuFacts(found, answer["cuda"], answer["fault"])


def _main() -> None:
    import torch

    from sweep.work.node_check import gpu_fault, gpu_report

    fault = gpu_fault()
    found = gpu_report() if torch.cuda.is_available() else []
    print(json.dumps({"found": found, "cuda": torch.version.cuda or "", "fault": fault}))


if __name__ == "__main__":
    _main()
