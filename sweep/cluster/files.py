"""Files for schedulers of other people's clusters: an sbatch script, a RayJob manifest."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jinja2

from sweep.errors import UserError
from sweep.studies.model import Study

TEMPLATES = Path(__file__).parent / "templates"
NAMES = {"slurm": "slurm.sbatch", "kuberay": "kuberay.yaml"}


def render(options: argparse.Namespace, way: str) -> Iterator[tuple[str, Path]]:
    """The text of the file, and where it goes."""
    from sweep.run import load
    from sweep.submit import environment, sweep_arguments

    study = load(options.study, options.set, options.methods, options.seeds, options.plugin)
    path = Path(getattr(options, way))
    command = shlex.join(["python", "-m", "sweep.run", *sweep_arguments(options, options.study, options.plugin)])
    facts = {
        "title": one_line(study.title),
        "study": study.name,
        "name": kubernetes_name(study.name),
        "file": path.name,
        "written_by": shlex.join(["sweep", "submit", f"--{way}", path.name, "--study", options.study]),
        "command": command,
        "env": [
            (name, shlex.quote(value) if way == "slurm" else value)
            for name, value in environment(options).items()
            if name != "RAY_USAGE_STATS_ENABLED"
        ],
        "nodes": _at_least_one("--nodes", options.nodes),
        "cpus_per_node": _at_least_one("--cpus-per-node", options.cpus_per_node),
        "gpus_per_node": gpus_per_node(study) if options.gpus_per_node is None else options.gpus_per_node,
        "memory": _kubernetes_amount(options.memory) if way == "kuberay" else options.memory,
        "time": options.time,
        "partition": options.partition,
        "folder": shlex.quote(options.folder),
        "venv": shlex.quote(options.venv) if options.venv else "",
        "image": options.image,
        "claim": options.claim,
        "mount": options.mount,
        "ray_version": version("ray"),
    }
    yield _fill(NAMES[way], facts), path


def gpus_per_node(study: Study) -> int:
    """One GPU per trial unless the study says otherwise; a CPU data set needs none."""
    if study.resources.gpus is not None:
        return max(1, int(-(-study.resources.gpus // 1))) if study.resources.gpus else 0
    return 0 if study.dataset == "digits" else 1


def kubernetes_name(study: str) -> str:
    """Small letters, digits and dashes; a RayJob's name may have 47 characters."""
    return f"robustsweep-{re.sub(r'[^a-z0-9-]+', '-', study.lower())}"[:47].strip("-")


def one_line(text: str) -> str:
    return " ".join(text.split())


def _kubernetes_amount(memory: str | None) -> str | None:
    if memory is not None and not re.fullmatch(r"\d+(\.\d*)?([KMGTPE]i|[kMGTPE])?", memory):
        raise UserError(f"--memory {memory}: Kubernetes wants an amount such as 64Gi")
    return memory


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise UserError(f"{name} {value}: must be at least 1")
    return value


def _fill(name: str, facts: dict[str, Any]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    return environment.get_template(name).render(facts)
