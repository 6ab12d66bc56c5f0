"""Checks of a worker's node for anything that prevents work there. They run in the worker."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from sweep.errors import UserError
from sweep.evaluation.checkpoints import data_set
from sweep.listing import size
from sweep.store.base import Store
from sweep.store.same_data import node_fault
from sweep.work.pieces import Setting
from trainers.assembly import data_sha256
from trainers.dataset import DataMissing

VERSIONS = ("torch", "ray", "optuna", "numpy", "pyautoattack")
SPARE_BYTES = 100 * 1024**2


@dataclass(frozen=True)
class Node:
    """A process's report on its node. `fault` is the reason why nothing can be computed there."""

    host: str
    fault: str | None = None
    gpu: str | None = None
    gpu_bytes: int = 0


class NodeCheck:
    """The node of this process. A good one is examined only once, because a process does many pieces."""

    def __init__(self, setting: Setting, gpus: float) -> None:
        self.setting, self.gpus = setting, gpus
        self._node: Node | None = None

    def node(self, store: Store) -> Node:
        if self._node is None or self._node.fault:
            self._node = examine(self.setting, self.gpus, store)
        return self._node


def examine(setting: Setting, gpus: float, store: Store) -> Node:
    """Look for anything that would keep this node from working."""
    fault = (
        version_fault(setting.versions) or (gpu_fault() if gpus else None) or disk_fault(store) or _data_fault(setting)
    )
    name, memory = _gpu() if gpus and fault is None else (None, 0)
    return Node(platform.node(), fault, name, memory)


def versions_here() -> dict[str, str]:
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in VERSIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found


def version_fault(expected: Mapping[str, str]) -> str | None:
    """Return a fault if versions differ from those of the driver. An empty `expected` is not compared."""
    here = versions_here()
    differing = [
        f"{name} {here.get(name, 'absent')} (the driver has {wanted})"
        for name, wanted in sorted(expected.items())
        if here.get(name, "absent") != wanted
    ]
    return f"other versions: {', '.join(differing)}; install the same everywhere" if differing else None


def disk_fault(store: Store) -> str | None:
    for folder in {str(store.local("") or ""), tempfile.gettempdir()} - {""}:
        if Path(folder).is_dir() and (free := shutil.disk_usage(folder).free) < SPARE_BYTES:
            return f"the disk of {folder} is full ({size(free)} free)"
    return None


def _data_fault(setting: Setting) -> str | None:
    if not setting.dataset:
        return None
    try:
        bundle = data_set(setting.dataset, setting.data_dir)  # cached: the first task needs it anyway
        fault = node_fault(setting.data, data_sha256(bundle, setting.wrappers, setting.data_dir))
    except (UserError, DataMissing, OSError) as error:
        return str(error)
    if fault:
        data_set.cache_clear()  # the next check reads the folder again
    return fault


def gpu_fault() -> str | None:
    """Return a fault if this process should have a GPU but cannot use it. It must never train on the CPU silently."""
    build = f"torch {torch.__version__}, built for {_build()}"
    if not torch.cuda.is_available():
        return (
            f"holds a GPU that {build}, cannot use ({driver_state()}); install a torch build that this driver "
            "supports, or train on the CPU with --set resources.gpus=0"
        )
    for index in range(torch.cuda.device_count()):
        try:
            convolve(torch.device("cuda", index))
        except RuntimeError as fault:
            first = (str(fault).splitlines() or [""])[0]
            return f"GPU {torch.cuda.get_device_name(index)} cannot compute with {build}: {first} ({driver_state()})"
    return None


def convolve(device: torch.device) -> None:
    """Run the smallest operation that needs cuDNN and a kernel for this particular device."""
    layer = torch.nn.Conv2d(3, 8, 3).to(device)
    found = layer(torch.ones(2, 3, 8, 8, device=device)).sum()
    found.backward()
    if not bool(torch.isfinite(found).item()):
        raise RuntimeError("a convolution gave no number")


def gpu_report() -> list[dict[str, Any]]:
    """Return name, compute capability and bytes of memory of each GPU that this process sees."""
    found = []
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        capability = f"{facts.major}.{facts.minor}"
        found.append({"name": facts.name, "capability": capability, "bytes": facts.total_memory})
    return found


def driver_state() -> str:
    try:
        line = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        return "no NVIDIA driver is loaded"
    return line.partition(":")[2].strip() or line


def _build() -> str:
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU only"


def _gpu() -> tuple[str | None, int]:
    found = gpu_report()
    return (found[0]["name"], found[0]["bytes"]) if found else (None, 0)
