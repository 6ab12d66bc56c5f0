"""Options of a submission, and the scheduler files made from them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import jinja2

from sweep.commands import option_words, spelled, submitted
from sweep.engine.checks import check_wait
from sweep.errors import UserError
from sweep.studies.model import Study
from sweep.studies.options import StudyOptions
from sweep.trials.cost import budget_hours

TEMPLATES = Path(__file__).parent / "templates"
WAIT_SECONDS = 300.0  # for nodes, by default
NAMES = {"slurm": "slurm.sbatch", "kuberay": "kuberay.yaml"}


@dataclass(frozen=True)
class SubmitOptions:
    study: StudyOptions
    store: str | None
    data_dir: str | None = None
    budget: str | None = None
    env: tuple[str, ...] = ()
    nodes: int = 1
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    memory: str | None = None
    wait_for_nodes: float | None = None
    resubmit: bool = False
    min_nodes: int | None = None
    node_selectors: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()
    time: str = "24:00:00"
    partition: str | None = None
    folder: str = "."
    venv: str | None = None
    image: str = "robustsweep:latest"
    claim: str | None = None
    mount: str = "/shared"
    out: str | None = None
    sbatch: str | None = None
    modules: tuple[str, ...] = ()
    array: int | None = None
    retry_failed: bool = False

    @property
    def tables(self) -> str | None:
        """The folder for tables: beside the results if these are in a folder. A bucket cannot hold tables."""
        beside = None if self.store is None or "://" in self.store else f"{self.store.rstrip('/')}/reports"
        return self.out or beside

    def sbatch_lines(self) -> list[str]:
        """Split `--account x --qos=y` into one line for each option."""
        lines: list[str] = []
        for word in shlex.split(self.sbatch or ""):
            if word.startswith("-"):
                lines.append(word)
            elif not lines:
                raise UserError(f"--sbatch {self.sbatch}: must be options of sbatch, e.g. '--account=x --qos=y'")
            else:
                lines[-1] += f" {word}"
        return lines

    def sweep_arguments(self, study: str, plugins: Sequence[str]) -> list[str]:
        """Return the arguments of `python -m sweep.run` on the cluster, without the address."""
        return [
            *("--study", study, "--yes"),
            *(["--retry-failed"] if self.retry_failed else []),
            *option_words(
                store=self.store,
                data_dir=self.data_dir,
                methods=self.study.methods,
                seeds=self.study.seeds,
                budget=self.budget,
                wait_for_nodes=None if self.wait_for_nodes is None else f"{self.wait_for_nodes:g}",
                out=self.tables,
                set=self.study.settings,
                plugin=plugins,
            ),
        ]

    def environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for item in self.env:
            name, separator, value = item.partition("=")
            if not separator or not name.isidentifier():
                raise UserError(f"--env {item}: must be NAME=VALUE")
            if name in found:
                raise UserError(f"--env {name} is given twice, as {found[name]} and {value}; leave one of them out")
            found[name] = value
        return found


def check(options: SubmitOptions, ways: Sequence[str]) -> None:
    """Refuse mistakes here that the cluster would report only after minutes."""
    if len(ways) != 1:
        raise UserError("say where to: one of --address http://head:8265, --slurm FILE or --kuberay FILE")
    for name, path in (("--store", options.store), ("--data-dir", options.data_dir), ("--out", options.out)):
        if path is not None and "://" not in path and not Path(path).is_absolute():
            raise UserError(f"{name} {path}: must be an absolute path on the cluster, or s3://")
    if options.store is None:
        raise UserError("--store is needed: a folder that every node of the cluster sees, or s3://bucket/prefix")
    for name, value in (("--nodes", options.nodes), ("--cpus-per-node", options.cpus_per_node)):
        if value is not None and value < 1:
            raise UserError(f"{name} {value}: must be at least 1")
    if options.min_nodes is not None and not 0 <= options.min_nodes <= options.nodes:
        raise UserError(f"--min-nodes {options.min_nodes}: must be from 0 to --nodes {options.nodes}")
    if options.out is not None and "://" in options.out:
        raise UserError(f"--out {options.out}: tables are written to a folder that the first node sees")
    if options.array is not None and options.array < 1:
        raise UserError(f"--array {options.array}: must be at least 1")
    if options.array is not None and options.nodes != 1:
        raise UserError(f"--array {options.array}: each of its jobs has one node; leave out --nodes {options.nodes}")
    for module in options.modules:
        if not re.fullmatch(r"[\w.+/-]+", module):
            raise UserError(f"--module {module}: must be the name of a module, e.g. cuda/12.4")
    budget_hours(options.budget)
    check_wait(options.wait_for_nodes)
    options.sbatch_lines()
    options.study.load()
    options.environment()


def render(options: SubmitOptions, way: str, file: str) -> str:
    """Return the text of a file for `slurm` or `kuberay`."""
    study = options.study.load()
    words = options.sweep_arguments(options.study.study, options.study.plugins or ())
    facts = {
        **vars(options),
        "title": " ".join(study.title.split()),
        "study": study.name,
        "name": kubernetes_name(study.name),
        "file": file,
        "written_by": submitted([f"--{way}", file, "--study", options.study.study]),
        "command": spelled("sweep.run", *words),
        "env": [
            (name, shlex.quote(value) if way == "slurm" else value) for name, value in options.environment().items()
        ],
        "gpus_per_node": gpus_per_node(study) if options.gpus_per_node is None else options.gpus_per_node,
        "memory": _kubernetes_amount(options.memory) if way == "kuberay" else options.memory,
        "wait_for_nodes": f"{WAIT_SECONDS if options.wait_for_nodes is None else options.wait_for_nodes:.0f}",
        "min_nodes": options.nodes if options.min_nodes is None else options.min_nodes,
        "node_selectors": [_pair("--node-selector", item) for item in options.node_selectors],
        "tolerations": [toleration(item) for item in options.tolerations],
        "folder": shlex.quote(options.folder),
        "venv": shlex.quote(options.venv) if options.venv else "",
        "ray_version": version("ray"),
        "sbatch": options.sbatch_lines(),
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    return environment.get_template(NAMES[way]).render(facts)


def gpus_per_node(study: Study) -> int:
    """Return the number of GPUs: one per trial unless the study says otherwise, none for `digits`."""
    if study.resources.gpus is not None:
        return max(1, int(-(-study.resources.gpus // 1))) if study.resources.gpus else 0
    return 0 if study.dataset == "digits" else 1


def toleration(text: str) -> dict[str, str]:
    """Parse 'key=value:Effect', as in `kubectl taint`. Without a value, only the key must match."""
    matched = re.fullmatch(r"([\w./-]+)(?:=([\w.-]*))?(?::(NoSchedule|PreferNoSchedule|NoExecute))?", text)
    if not matched:
        raise UserError(f"--toleration {text}: must be KEY, KEY=VALUE or KEY=VALUE:NoSchedule")
    key, value, effect = matched.groups()
    found = {"key": key, "operator": "Exists" if value is None else "Equal"}
    return found | ({} if value is None else {"value": value}) | ({} if effect is None else {"effect": effect})


def _pair(option: str, text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not re.fullmatch(r"[\w./-]+", name) or not re.fullmatch(r"[\w.-]*", value):
        raise UserError(f"{option} {text}: must be KEY=VALUE")
    return name, value


def kubernetes_name(study: str) -> str:
    """Return a valid name for a RayJob: lower-case letters, digits and dashes, at most 47 characters."""
    return f"robustsweep-{re.sub(r'[^a-z0-9-]+', '-', study.lower())}"[:47].strip("-")


def _kubernetes_amount(memory: str | None) -> str | None:
    if memory is not None and not re.fullmatch(r"\d+(\.\d*)?([KMGTPE]i|[kMGTPE])?", memory):
        raise UserError(f"--memory {memory}: Kubernetes wants an amount such as 64Gi")
    return memory
