"""A worker process that does one piece after another.

Nothing of an earlier piece remains: seeds, threads, dtype, environment and GPU memory are reset.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch

from sweep.store import layout
from sweep.store.base import Store
from sweep.store.leases import Lease, take
from sweep.store.opening import open_store
from sweep.store.patient import PatientStore
from sweep.trials.provenance import device
from sweep.work.node_check import Node, NodeCheck, gpu_fault
from sweep.work.pieces import Metrics, Piece, Setting, Workplace
from trainers.loop import heartbeat
from trainers.plugins import registry

LOG_LINES = 40
HOLD_SECONDS = 300.0  # a faulty node is checked again after this time
ELSEWHERE_SECONDS = 5.0
_check: NodeCheck | None = None  # this process's knowledge of its node


class Refusal(NamedTuple):
    """A reason why this process cannot do a piece.

    It holds its device for `seconds`, so that no other piece is sent there.
    """

    state: str
    reason: str
    seconds: float


class Worker:
    """A process while it does one piece."""

    def __init__(
        self, config: Mapping[str, Any], setting: Setting, report: Callable[[Metrics], None], node: str
    ) -> None:
        self.config, self.setting, self.report = config, setting, report
        self.store: Store = PatientStore(open_store(setting.store))
        self.node_name = node
        resources = config.get("resources", {})
        self.cpus, self.gpus = resources.get("cpu", 1.0), resources.get("gpu", 0.0)
        self._leases: list[Lease] = []
        self._steps, self._next_sign = 0, time.monotonic() + setting.sign_seconds
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Worker:
        self._exit.enter_context(fresh_process(self.cpus))
        self._exit.enter_context(heartbeat.heard_by(self._hear))
        return self

    def __exit__(self, *fault: Any) -> None:
        self._exit.__exit__(*fault)

    def refusal(self) -> Refusal | None:
        """Report this node to the driver. Return the reason if the piece cannot be done here."""
        node = self._node()
        self.report({"node": self.node_name, "host": node.host, "gpu": node.gpu, "gpu_bytes": node.gpu_bytes})
        bad = node.fault or self.config.get("bad_nodes", {}).get(self.node_name)
        if not bad and self.gpus and not torch.cuda.is_available():
            bad = gpu_fault()  # it must not train on the CPU silently
        if bad:
            return Refusal("held", bad, self.config.get("hold_seconds", HOLD_SECONDS))
        if self.node_name in self.config.get("avoided_nodes", ()):
            return Refusal("elsewhere", "it failed on this node before", ELSEWHERE_SECONDS)
        if self.config.get("gpu_bytes", 0) and node.gpu_bytes <= self.config["gpu_bytes"]:
            return Refusal("elsewhere", "this GPU has too little memory for it", ELSEWHERE_SECONDS)
        return None

    def hold_device(self, refusal: Refusal) -> Metrics:
        """Keep the device for a while. Otherwise, a node that fails at once would soon have tried all pieces."""
        metrics = {"state": refusal.state, "fault": refusal.reason}
        end = time.monotonic() + refusal.seconds
        while time.monotonic() < end:
            self.report(metrics)
            time.sleep(min(1.0, refusal.seconds))
        return metrics

    @contextlib.contextmanager
    def lease(self, name: str) -> Iterator[bool]:
        """Hold a lease. Yield False while another process has it. Losing the lease ends the piece at its next step."""
        owner, dead = self.config.get("owner", ""), self.config.get("dead_owners", ())
        lease = take(self.store, name, owner=owner, dead=dead)
        if lease is None:
            yield False
            return
        self._leases.append(lease)
        try:
            yield True
        finally:
            self._leases.remove(lease)
            lease.release()

    @contextlib.contextmanager
    def workplace(self, piece: Piece) -> Iterator[Workplace]:
        folder = layout.trial_folder(piece.trial)
        with _scratch(self.store, folder, piece.needs_files) as path, _log(self.store, piece, path):
            yield Workplace(self.setting, self.store, path, self.report, self.lease, device())

    def _node(self) -> Node:
        global _check
        if _check is None or _check.setting is not self.setting or _check.gpus != self.gpus:
            registry.load_sources(self.setting.plugins)
            _check = NodeCheck(self.setting, self.gpus)
        return _check.node(self.store)

    def _hear(self) -> None:
        """Check the leases at every step, and report a sign of life from time to time."""
        for lease in self._leases:
            lease.check()
        self._steps += 1
        if time.monotonic() > self._next_sign:
            self.report({"steps": self._steps})
            self._next_sign = time.monotonic() + self.setting.sign_seconds


def last_lines(store: Store, trial: str) -> list[str]:
    """Return the last lines of a trial's log."""
    try:
        text = store.read(layout.trial_file(trial, layout.LOG)).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-LOG_LINES:]


@contextlib.contextmanager
def fresh_process(cpus: float) -> Iterator[None]:
    """Reset the process to the state of a new one, whatever it did before."""
    environment = dict(os.environ)
    torch.set_num_threads(max(1, int(cpus)))
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.manual_seed(0)
    numpy.random.seed(0)
    random.seed(0)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@contextlib.contextmanager
def _scratch(store: Store, path: str, with_files: bool) -> Iterator[Path]:
    """Yield the folder to write files to: the trial's own in a folder store, otherwise a temporary one."""
    local = store.local(path)
    if local is not None:
        local.mkdir(parents=True, exist_ok=True)
        yield local
        return
    with tempfile.TemporaryDirectory(prefix="robustsweep-") as temporary:
        if with_files:
            store.fetch_folder(path, Path(temporary))
        yield Path(temporary)


@contextlib.contextmanager
def _log(store: Store, piece: Piece, folder: Path) -> Iterator[None]:
    """Write everything that is printed to the trial's log, including the traceback of a failure."""
    file = folder / layout.LOG
    if file.is_symlink():  # a link in a store from elsewhere may point to files that are not ours
        file.unlink()
    with file.open("a", encoding="utf-8", buffering=1) as log:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        log.write(f"{now} {piece.stage} {piece.label} on {socket.gethostname()} with {cores} cores\n")
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            try:
                yield
            except Exception:
                traceback.print_exc(file=log)
                log.flush()
                if store.local("") is None:
                    path = layout.trial_file(piece.trial, layout.LOG)
                    before = store.read(path) if not piece.needs_files and store.exists(path) else b""
                    store.write(path, before + file.read_bytes())
                raise
