"""What runs in a worker process: one piece of work of a sweep at a time, from its last checkpoint to its record.

Tune reuses the processes, so each piece sets what it depends on (seeds, threads, dtype, environment) by itself.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import random
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sweep.search.pruning import judged
from sweep.store.base import FORMAT, Store, open_store
from sweep.trials.identity import NUMERICS_VERSION, folder
from trainers.config import TrialConfig

LOG_LINES = 40
PUSH_SECONDS = 60.0  # a remote store gets the resume state at most this often

Report = Callable[[dict[str, Any]], None]


class Pruned(Exception):
    """Raised out of the training loop at a rung."""


def tune_trainable(config: dict[str, Any]) -> None:
    """The function that Ray Tune runs for every piece of work."""
    from ray import tune

    run(config["job"], tune.report)


def run(job: Mapping[str, Any], report: Report) -> None:
    from sweep.evaluation import asked as evaluation_work

    kinds = {
        "train": train_trial,
        "candidate": train_trial,
        "evaluate": evaluation_work.evaluate,
        "diagnose": evaluation_work.diagnose,
    }
    work = kinds[job["kind"]]
    store = open_store(job["store"])
    with _fresh_process(job["cpus"]), _scratch(store, job["folder"]) as place, _log(store, job, place):
        _load_plugins(job["plugins"])
        started = time.time()
        try:
            state = work(job, store, place, report)
        except (ValueError, TypeError, AttributeError) as error:
            if _is_of_the_loss(error):
                report({"repeats": True})
            raise
        report({"state": state, "kind": job["kind"], "started": started, "ended": time.time()})


def _is_of_the_loss(error: Exception) -> bool:
    """Raised in a training step: such a fault of the code comes again with every retry, unlike one of a disk."""
    return any(frame.f_code.co_name == "training_step" for frame, _ in traceback.walk_tb(error.__traceback__))


def train_trial(job: Mapping[str, Any], store: Store, place: Path, report: Report) -> str:
    """Train to the end, or as a search's candidate to the rung where it falls behind; the record comes last."""
    from sweep.evaluation.checkpoints import data_set
    from trainers.checkpoint import load_resume
    from trainers.train import train

    config = TrialConfig.model_validate(job["config"])
    needed = {int(rung): value for rung, value in job.get("cut_offs", {}).items()}
    saved = load_resume(place / "resume.pt") or {}
    curve: list[float | None] = [row["validation_pgd_accuracy"] for row in saved.get("curve", [])]
    started, pushed = time.time(), time.monotonic()

    def after_epoch(row: dict[str, Any]) -> None:
        nonlocal pushed
        curve.append(row["validation_pgd_accuracy"])
        _write_progress(store, job, len(curve), started)
        if store.local("") is None and time.monotonic() - pushed > PUSH_SECONDS:
            _push(store, job["folder"], place)
            pushed = time.monotonic()
        report(_numbers(row))
        if judged(curve, needed)[1]:
            raise Pruned

    _write_progress(store, job, len(curve), started)
    try:
        if judged(curve, needed)[1]:
            raise Pruned
        outcome = train(
            config,
            folder=place,
            data_dir=job["data_dir"],
            device=device(),
            on_epoch=after_epoch,
            data=data_set(config.dataset, job["data_dir"]),
        )
    except Pruned:
        state = load_resume(place / "resume.pt") or {}
        store.write_json(
            candidate_path(job["search"], job["trial"]),
            {"kind": "candidate", "format": FORMAT, "trial": job["trial"], "status": "pruned", "curve": state["curve"]},
        )
        for path in store.list(job["folder"]):
            store.delete(path)
        return "pruned"
    _push(store, job["folder"], place, without="resume.pt")
    store.write_trial_record(trial_record(job, config, outcome, time.time() - started))
    store.delete(f"{job['folder']}/resume.pt")
    store.delete(f"{job['folder']}/progress.json")
    return str(outcome["status"])


def trial_record(
    job: Mapping[str, Any], config: TrialConfig, outcome: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    return {
        "kind": "trial",
        "format": FORMAT,
        "trial": job["trial"],
        "config": config.model_dump(mode="json"),
        "numerics": NUMERICS_VERSION,
        "status": outcome["status"],
        "reason": outcome["reason"],
        "curve": outcome["curve"],
        "checkpoints": outcome["checkpoints"],
        "metrics": _metrics(outcome["curve"], outcome["checkpoints"]),
        "steps": outcome["steps"],
        "wall_seconds": max(seconds, outcome["train_seconds"]),
        **provenance(job),
    }


def provenance(job: Mapping[str, Any]) -> dict[str, Any]:
    return {"versions": versions(), "commit": job["commit"], "device": device_name(), "command": job["command"]}


@functools.cache
def versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    import torch

    # Its own word says which build it is (2.13.0+cu130), which the package's metadata may leave out.
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    for name in ("ray", "robustsweep"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@functools.cache
def device_name() -> str:
    import torch

    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return "cpu " + next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"cpu {platform.machine()}"


def candidate_path(search: str, trial: str) -> str:
    return f"searches/{search}/candidates/{folder(trial)}.json"


def _metrics(curve: list[dict[str, Any]], checkpoints: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Each kept checkpoint's accuracies, as the training loop measured them."""
    found = {}
    for name, kept in checkpoints.items():
        for key, value in curve[kept["epoch"]].items():
            if key.endswith("_accuracy") and value is not None:
                found[f"{name}_{key}"] = value
    return found


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if isinstance(value, int | float)}


def _write_progress(store: Store, job: Mapping[str, Any], epochs: int, started: float) -> None:
    facts = {
        "trial": job["trial"],
        "label": job["label"],
        "seed": job["seed"],
        "epoch": epochs,
        "epochs": job["epochs"],
        "started": started,
        "updated": time.time(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
    store.write(f"{job['folder']}/progress.json", json.dumps(facts, sort_keys=True).encode())


def _push(store: Store, path: str, place: Path, without: str = "") -> None:
    """Copy the trial's files into a remote store; in a folder store they are there already."""
    if store.local("") is not None:
        return
    for file in sorted(place.iterdir()):
        if file.is_file() and file.name != without and not file.name.startswith("."):
            store.push_file(file, f"{path}/{file.name}")


def _load_plugins(sources: Mapping[str, str]) -> None:
    from trainers import registry

    for name, source in sources.items():
        registry.load_source(name, source)


@contextlib.contextmanager
def _fresh_process(cpus: float) -> Iterator[None]:
    """As if the process had just started, whatever the trial before it did."""
    import numpy
    import torch

    environment = dict(os.environ)
    torch.set_num_threads(max(1, int(cpus)))
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.manual_seed(0)
    numpy.random.seed(0)
    random.seed(0)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@contextlib.contextmanager
def _scratch(store: Store, path: str) -> Iterator[Path]:
    """Where files are written: in a folder store their own place, else a temporary folder with what is stored."""
    local = store.local(path)
    if local is not None:
        local.mkdir(parents=True, exist_ok=True)
        yield local
        return
    with tempfile.TemporaryDirectory(prefix="robustsweep-") as temporary:
        store.fetch_folder(path, Path(temporary))
        yield Path(temporary)


@contextlib.contextmanager
def _log(store: Store, job: Mapping[str, Any], place: Path) -> Iterator[None]:
    """Everything that is printed goes to the trial's log.txt, and a failure's traceback with it."""
    file = place / "log.txt"
    with file.open("a", encoding="utf-8", buffering=1) as log:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        log.write(f"{now} {job['kind']} {job['label']} on {socket.gethostname()}\n")
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            try:
                yield
            except Exception:
                traceback.print_exc(file=log)
                log.flush()
                if store.local("") is None:
                    store.push_file(file, f"{job['folder']}/log.txt")
                raise


def last_lines(store: Store, path: str) -> list[str]:
    try:
        text = store.read(f"{path}/log.txt").decode("utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-LOG_LINES:]
