"""The resources of one Ray Tune trial, and how many trials fit on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import ray
import torch
from ray.tune import PlacementGroupFactory

from sweep.studies.model import Study
from sweep.studies.sections import Share
from trainers.data import needs_files

UNITS = 10_000  # Ray counts resources in ten-thousandths


@dataclass(frozen=True)
class TrialResources:
    """Devices, cores and bytes of memory of one Tune trial."""

    gpus: float
    cpus: float
    memory: int = 0

    def per_trial(self) -> dict[str, float]:
        """Return the resources under Tune's names. Zero amounts are omitted."""
        wanted = {"gpu": self.gpus, "cpu": self.cpus, "memory": float(self.memory)}
        return {name: amount for name, amount in wanted.items() if amount}

    def with_share(self, share: Share | None) -> TrialResources:
        """Return these resources, changed to those that a column or the attacks set."""
        if share is None:
            return self
        named = share.model_dump(include=set(Share.model_fields), exclude_none=True)
        return replace(self, **named)

    @property
    def devices(self) -> float:
        """The devices of a trial for counting device-hours: its share of a GPU, or 1 on a CPU."""
        return self.gpus or 1.0

    def fits(self, node: dict[str, float]) -> int:
        """Return how many trials fit on a node. As in Ray, a share of a GPU always comes from a single GPU."""
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
    """Return the resources of a training: those of the study, else one GPU if there are any, else one CPU.

    The default is one CPU instead of all: results on a CPU depend on the number of threads, and parallel trials make
    better use of the cores. A cluster that scales may have no GPU yet; then the needs of the study decide.
    """
    wanted = study.resources
    has_gpus = any(node["Resources"].get("GPU", 0) > 0 for node in nodes())
    present = 1.0 if has_gpus or (scales and needs_gpu(study)) else 0.0
    gpus = wanted.gpus if wanted.gpus is not None else present
    return TrialResources(gpus, wanted.cpus if wanted.cpus is not None else 1.0, wanted.memory or 0)


def resources_of(config: Mapping[str, Any]) -> PlacementGroupFactory:
    """Return the resources of a Tune trial, from its config.

    A long piece gets its own process, which bears its title. Short pieces share processes, because starting one takes
    seconds.
    """
    names = {"gpu": "GPU", "cpu": "CPU", "memory": "memory"}
    bundle = {names[name]: amount for name, amount in config["resources"].items()}
    own = {"name": f"{config['title']} ({config['owner']})"} if config["own_process"] else {}
    return PlacementGroupFactory([bundle], **own)


def resources_by_piece(study: Study, base: TrialResources) -> dict[tuple[str, str], TrialResources]:
    """Return the resources of every column's trainings ("train") and attacks ("attack"), by column and stage."""
    wanted = {}
    for column, label in study.columns().items():
        own = base.with_share(study.methods[label].resources)
        wanted[column, "train"] = own
        wanted[column, "attack"] = own.with_share(study.resources.evaluation)
    return wanted


def needs_gpu(study: Study) -> bool:
    """Return whether a study without a setting should use GPUs. Data sets that come with the code are for CPUs."""
    return needs_files(study.dataset)


def local_resources(study: Study, cpus: int) -> tuple[TrialResources, int]:
    """Return the resources of a trial on this machine without Ray, and how many fit at once."""
    present = torch.cuda.device_count()
    wanted = study.resources
    gpus = wanted.gpus if wanted.gpus is not None else (1.0 if present else 0.0)
    resources = TrialResources(gpus, wanted.cpus if wanted.cpus is not None else 1.0)
    return resources, max(1, resources.fits({"CPU": cpus, "GPU": present}))


def slots(resources: TrialResources) -> int:
    """Return how many trials the cluster holds at once, in its present state."""
    return max(1, sum(resources.fits(node["Resources"]) for node in nodes()))


def _units(amount: float) -> int:
    return round(amount * UNITS)
