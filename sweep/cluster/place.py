"""What a worker's machine is like, and what keeps it from doing our work: looked at where the worker runs."""

from __future__ import annotations

import platform
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import ray
import torch

from sweep.errors import UserError
from sweep.evaluation.checkpoints import data_set
from sweep.listing import size
from sweep.store.base import Store
from sweep.store.same_data import node_fault
from sweep.work.tasks import Setting
from trainers.assembly import data_sha256
from trainers.dataset import DataMissing

VERSIONS = ("torch", "ray", "optuna", "numpy", "pyautoattack")
SPARE_BYTES = 100 * 1024**2
LOOK_SECONDS = 300.0  # a place with a fault is looked at again


@dataclass(frozen=True)
class Place:
    """Of one worker process; `fault` says why nothing can be computed there."""

    node: str
    host: str
    fault: str | None = None
    gpu: str | None = None
    gpu_bytes: int = 0


class Lookout:
    """This process's place; good ones are looked at once, because processes do many tasks."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._place: Place | None = None
        self._next = 0.0

    def place(self, store: Store) -> Place:
        if self._place is None or (self._place.fault and time.monotonic() > self._next):
            self._place = look(self.setting, store)
            self._next = time.monotonic() + LOOK_SECONDS
        return self._place


def look(setting: Setting, store: Store) -> Place:
    node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
    fault = (
        version_fault(setting.versions)
        or (gpu_fault() if setting.gpus else None)
        or disk_fault(store)
        or _data_fault(setting)
    )
    name, memory = _gpu() if setting.gpus and fault is None else (None, 0)
    return Place(node, platform.node(), fault, name, memory)


def versions_here() -> dict[str, str]:
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in VERSIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found


def version_fault(expected: Mapping[str, str]) -> str | None:
    """Against those of the driver; without any, nothing is compared."""
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
        bundle = data_set(setting.dataset, setting.data_dir)  # kept: the first task needs it anyway
        fault = node_fault(setting.data, data_sha256(bundle, setting.wrappers, setting.data_dir))
    except (UserError, DataMissing, OSError) as error:
        return str(error)
    if fault:
        data_set.cache_clear()  # the next look is to see what is there by then
    return fault


def gpu_fault() -> str | None:
    """Of a process that was promised a GPU: a trial must never go to the CPU in silence."""
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
    """The smallest thing that needs a kernel for this very device, and cuDNN."""
    layer = torch.nn.Conv2d(3, 8, 3).to(device)
    found = layer(torch.ones(2, 3, 8, 8, device=device)).sum()
    found.backward()
    if not bool(torch.isfinite(found).item()):
        raise RuntimeError("a convolution gave no number")


def gpu_report() -> list[dict[str, Any]]:
    """Name, compute capability, memory and CUDA version of each GPU that this process sees."""
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
