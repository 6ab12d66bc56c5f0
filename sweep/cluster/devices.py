"""What one trial needs, and how many of them a cluster holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ray
import torch

from sweep.studies.model import Study


@dataclass(frozen=True)
class TrialResources:
    gpus: float
    cpus: float
    memory: int = 0

    def per_trial(self) -> dict[str, float]:
        """In Ray's words."""
        wanted = {"gpu": self.gpus, "cpu": self.cpus, "memory": float(self.memory)}
        return {name: amount for name, amount in wanted.items() if amount}

    def fits(self, node: dict[str, float]) -> int:
        """How many trials a node with these resources holds."""
        wanted = {"GPU": self.gpus, "CPU": self.cpus, "memory": self.memory}
        counts = [node.get(name, 0.0) / amount + 1e-6 for name, amount in wanted.items() if amount]
        return int(min(counts, default=0))

    def __str__(self) -> str:
        parts = [f"{self.gpus:g} GPU" if self.gpus else "", f"{self.cpus:g} CPU" if self.cpus else ""]
        parts.append(f"{self.memory / 1024**3:.1f} GB memory" if self.memory else "")
        return " + ".join(part for part in parts if part)


def nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def choose(study: Study) -> TrialResources:
    """As the study says. Left open: one GPU per trial where there are GPUs, else one CPU.

    One CPU, not all of them: results of a CPU depend on its number of threads, and trials side by side use it better.
    """
    wanted = study.resources
    has_gpus = any(node["Resources"].get("GPU", 0) > 0 for node in nodes())
    gpus = wanted.gpus if wanted.gpus is not None else (1.0 if has_gpus else 0.0)
    return TrialResources(gpus, wanted.cpus if wanted.cpus is not None else 1.0, wanted.memory or 0)


def local_resources(study: Study, cpus: int) -> tuple[TrialResources, int]:
    """The same for this machine alone, without Ray, and how many trials it holds at once."""
    present = torch.cuda.device_count()
    wanted = study.resources
    gpus = wanted.gpus if wanted.gpus is not None else (1.0 if present else 0.0)
    resources = TrialResources(gpus, wanted.cpus if wanted.cpus is not None else 1.0)
    return resources, max(1, resources.fits({"CPU": cpus, "GPU": present}))


def slots(resources: TrialResources) -> int:
    """How many trials the cluster holds at once, as it is now."""
    return max(1, math.floor(sum(resources.fits(node["Resources"]) for node in nodes())))
