"""What one trial needs, and how many of them a cluster holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import ray
import torch

from sweep.studies.model import Study
from trainers.data import needs_files

UNITS = 10_000  # Ray counts resources in ten-thousandths


@dataclass(frozen=True)
class TrialResources:
    gpus: float
    cpus: float
    memory: int = 0

    def per_trial(self) -> dict[str, float]:
        """In Ray's words."""
        wanted = {"gpu": self.gpus, "cpu": self.cpus, "memory": float(self.memory)}
        return {name: amount for name, amount in wanted.items() if amount}

    @property
    def devices(self) -> float:
        """What a trial counts for in device-hours: its share of a GPU; on a CPU one place is one device."""
        return self.gpus or 1.0

    def fits(self, node: dict[str, float]) -> int:
        """How many trials a node with these resources holds, as Ray places them: a share of a GPU is of one GPU."""
        counts = []
        if self.gpus:
            present = _units(node.get("GPU", 0.0))
            share = max(1, _units(self.gpus))
            if share > UNITS:
                counts.append(present // share)
            else:
                counts.append(present // UNITS * (UNITS // share) + present % UNITS // share)
        if self.cpus:
            counts.append(_units(node.get("CPU", 0.0)) // max(1, _units(self.cpus)))
        if self.memory:
            counts.append(int(node.get("memory", 0.0)) // self.memory)
        return min(counts, default=0)

    def __str__(self) -> str:
        parts = [f"{self.gpus:g} GPU" if self.gpus else "", f"{self.cpus:g} CPU" if self.cpus else ""]
        parts.append(f"{self.memory / 1024**3:.1f} GB memory" if self.memory else "")
        return " + ".join(part for part in parts if part)


def nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def choose(study: Study, *, scales: bool = False) -> TrialResources:
    """As the study says. Left open: one GPU per trial where there are GPUs, else one CPU.

    One CPU, not all of them: results of a CPU depend on its number of threads, and trials side by side use it better.
    A cluster that scales may have no GPU yet: there what the study needs counts, not what is there now.
    """
    wanted = study.resources
    has_gpus = any(node["Resources"].get("GPU", 0) > 0 for node in nodes())
    present = 1.0 if has_gpus or (scales and needs_gpu(study)) else 0.0
    gpus = wanted.gpus if wanted.gpus is not None else present
    return TrialResources(gpus, wanted.cpus if wanted.cpus is not None else 1.0, wanted.memory or 0)


def needs_gpu(study: Study) -> bool:
    """Whether a study that leaves it open is one for GPUs: data that come with the code are for a CPU."""
    return needs_files(study.dataset)


def scales() -> bool:
    """Whether an autoscaler adds nodes to this cluster when something waits for them."""
    from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
    from ray.autoscaler.v2.utils import is_autoscaler_v2
    from ray.experimental.internal_kv import _internal_kv_get

    try:
        if is_autoscaler_v2(fetch_from_server=True):
            return True
        status = json.loads(_internal_kv_get(DEBUG_AUTOSCALING_STATUS) or b"{}")
    except Exception:  # none of these are promised by Ray: without an answer the cluster is what it is now
        return False
    # A cluster without an autoscaler gets a report too, in which every node is a type of its own, named after itself.
    types = (status.get("autoscaler_report") or {}).get("active_nodes") or {}
    return any(not name.startswith("node_") for name in types)


def local_resources(study: Study, cpus: int) -> tuple[TrialResources, int]:
    """The same for this machine alone, without Ray, and how many trials it holds at once."""
    present = torch.cuda.device_count()
    wanted = study.resources
    gpus = wanted.gpus if wanted.gpus is not None else (1.0 if present else 0.0)
    resources = TrialResources(gpus, wanted.cpus if wanted.cpus is not None else 1.0)
    return resources, max(1, resources.fits({"CPU": cpus, "GPU": present}))


def slots(resources: TrialResources) -> int:
    """How many trials the cluster holds at once, as it is now."""
    return max(1, sum(resources.fits(node["Resources"]) for node in nodes()))


def _units(amount: float) -> int:
    return round(amount * UNITS)
