"""`python -m sweep.submit`: a study on somebody else's machines, by Ray Jobs, Slurm or KubeRay."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shlex
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweep.cluster import files as cluster_files
from sweep.cluster.session import PACKAGES
from sweep.errors import UserError

POLL_SECONDS = 1.0
READY_SECONDS = 60.0
INTERRUPTED = 130
DEFAULT_TOKEN = "~/.ray/auth_token"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="sweep submit",
        description="Run a study on a Ray cluster (--address), or write a file for Slurm or KubeRay.",
        epilog="Paths of --store and --data-dir are those of the cluster: absolute, or s3://.",
    )
    made.add_argument("--study", default="digits", help="a shipped study's name, or a YAML file (%(default)s)")
    made.add_argument("--address", help="the cluster's dashboard, e.g. http://head:8265: submit now and follow the log")
    made.add_argument("--slurm", metavar="FILE", help="write an sbatch file")
    made.add_argument("--kuberay", metavar="FILE", help="write a RayJob manifest")
    made.add_argument("--store", help="where results go: a folder that every node sees, or s3://…")
    made.add_argument("--data-dir", help="where the data sets are, on every node")
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="on top of the study; repeatable")
    made.add_argument("--methods", help="only these, comma-separated")
    made.add_argument("--seeds", help="instead of the study's")
    made.add_argument("--budget", help="start nothing beyond this many device-hours, e.g. 500h")
    made.add_argument("--plugin", action="append", default=[], metavar="FILE", help="a method of your own; repeatable")
    made.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for the sweep; repeatable")
    made.add_argument("--token", default=DEFAULT_TOKEN, help="file with the cluster's token (%(default)s)")
    made.add_argument("--no-token", action="store_true", help="the cluster asks for none")
    made.add_argument(
        "--python", default="python", help="--address: the cluster's interpreter that has the packages (%(default)s)"
    )
    made.add_argument("--nodes", type=int, default=1, help="Slurm, KubeRay: machines that train (%(default)s)")
    made.add_argument("--gpus-per-node", type=int, help="Slurm, KubeRay: what a trial needs, if absent")
    made.add_argument("--cpus-per-node", type=int, default=8, help="Slurm, KubeRay (%(default)s)")
    made.add_argument("--memory", help="of each node, e.g. 64G (Slurm) or 64Gi (KubeRay)")
    made.add_argument("--time", default="24:00:00", help="Slurm's time limit (%(default)s)")
    made.add_argument("--partition", help="Slurm's partition")
    made.add_argument("--folder", default=".", help="Slurm: the project's folder, seen by all nodes (%(default)s)")
    made.add_argument("--venv", help="Slurm: a virtual environment to use, e.g. .venv")
    made.add_argument(
        "--image", default="robustsweep:latest", help="KubeRay: an image with this project installed (%(default)s)"
    )
    made.add_argument("--claim", help="KubeRay: a PersistentVolumeClaim to mount, for store and data")
    made.add_argument("--mount", default="/shared", help="KubeRay: where it is mounted (%(default)s)")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    ways = [way for way in ("address", "slurm", "kuberay") if getattr(options, way)]
    if len(ways) != 1:
        raise UserError("say where to: one of --address http://head:8265, --slurm FILE or --kuberay FILE")
    _check_study(options)
    if options.address:
        return _submit(options)
    for text, path in cluster_files.render(options, ways[0]):
        path.write_text(text, encoding="utf-8")
        print(f"written: {path}")
    return 0


def sweep_arguments(options: argparse.Namespace, study: str, plugins: Sequence[str]) -> list[str]:
    """What follows `python -m sweep.run` on the cluster, the address aside."""
    words = ["--study", study, "--yes"]
    for name in ("store", "data_dir", "methods", "seeds", "budget"):
        value = getattr(options, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", value]
    for setting in options.set:
        words += ["--set", setting]
    for plugin in plugins:
        words += ["--plugin", plugin]
    return words


def environment(options: argparse.Namespace) -> dict[str, str]:
    found = {"RAY_USAGE_STATS_ENABLED": "0"}
    for item in options.env:
        name, separator, value = item.partition("=")
        if not separator or not name.isidentifier():
            raise UserError(f"--env {item}: must be NAME=VALUE")
        found[name] = value
    return found


def use_token(options: argparse.Namespace) -> None:
    """Ray reads the token from the environment. A file that others can read is no secret."""
    if options.no_token:
        os.environ["RAY_AUTH_MODE"] = "disabled"
        return
    if os.environ.get("RAY_AUTH_TOKEN"):
        os.environ["RAY_AUTH_MODE"] = "token"
        return
    given = options.token if options.token != DEFAULT_TOKEN else os.environ.get("RAY_AUTH_TOKEN_PATH", DEFAULT_TOKEN)
    path = Path(given).expanduser()
    if not path.is_file():
        raise UserError(
            f"no token at {path}; copy the cluster's there (chmod 600), name it with --token, "
            "or say --no-token for a cluster that asks for none"
        )
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise UserError(f"others can read the token {path}; run: chmod 600 {path}")
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(path)


def stage(options: argparse.Namespace, folder: Path) -> tuple[str, list[str]]:
    """The code, the study and the plug-ins in one folder, and nothing else of the working directory."""
    here = Path(__file__).resolve().parent.parent
    for name in PACKAGES:
        shutil.copytree(here / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    study = options.study
    if Path(study).is_file():
        shutil.copy(study, folder / Path(study).name)
        study = Path(study).name
    plugins = []
    for number, plugin in enumerate(options.plugin):
        target = folder / "plugins" / str(number) / Path(plugin).name
        target.parent.mkdir(parents=True)
        shutil.copy(plugin, target)
        plugins.append(str(target.relative_to(folder)))
    return study, plugins


def _check_study(options: argparse.Namespace) -> None:
    """Refuse here what the cluster would refuse after minutes."""
    from sweep.run import load

    for name, path in (("--store", options.store), ("--data-dir", options.data_dir)):
        if path is not None and "://" not in path and not Path(path).is_absolute():
            raise UserError(f"{name} {path}: must be an absolute path on the cluster, or s3://")
    if options.store is None:
        raise UserError("--store is needed: a folder that every node of the cluster sees, or s3://bucket/prefix")
    load(options.study, options.set, options.methods, options.seeds, options.plugin)


def _submit(options: argparse.Namespace) -> int:
    use_token(options)
    try:
        from ray.exceptions import AuthenticationError
        from ray.job_submission import JobSubmissionClient
    except ImportError:
        raise UserError("job submission is not installed: pip install 'robustsweep[cluster]'") from None
    for name in ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk", "ray._private.runtime_env"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="robustsweep-submit-") as temporary:
        study, plugins = stage(options, Path(temporary))
        entrypoint = shlex.join(
            [options.python, "-m", "sweep.run", *sweep_arguments(options, study, plugins), "--address", "auto"]
        )
        try:
            client = JobSubmissionClient(options.address)
            job = _hand_over(client, entrypoint, {"working_dir": temporary, "env_vars": environment(options)})
        except (ConnectionError, RuntimeError, ValueError, AuthenticationError) as fault:
            raise UserError(f"{options.address} did not take the study: {_cause(fault)}") from None
    print(f"{options.address}: {job} runs {entrypoint}", flush=True)
    try:
        return asyncio.run(_follow(client, job))
    except KeyboardInterrupt:
        print(f"\nno longer following; it goes on. Stop it with: ray job stop --address {options.address} {job}")
        return INTERRUPTED


def _hand_over(client: Any, entrypoint: str, runtime_env: dict[str, Any]) -> str:
    """The job's name. A cluster that has just started takes jobs a little later than it says it is up."""
    end = time.monotonic() + READY_SECONDS
    while True:
        try:
            return str(client.submit_job(entrypoint=entrypoint, runtime_env=runtime_env))
        except RuntimeError as fault:
            if "No available agent" not in str(fault) or time.monotonic() > end:
                raise
            time.sleep(POLL_SECONDS)


async def _follow(client: Any, job: str) -> int:
    """Its log as it comes, then its exit code. A connection that breaks is taken up again."""
    from ray.job_submission import JobStatus

    seen = 0
    while True:
        seen = await _tail(client, job, seen)
        facts = client.get_job_info(job)
        if facts.status.is_terminal():
            break
        await asyncio.sleep(POLL_SECONDS)
    if facts.status == JobStatus.SUCCEEDED:
        return 0
    print(f"{job}: {facts.status}: {facts.message or ''}".rstrip(": "), flush=True)
    return facts.driver_exit_code or (INTERRUPTED if facts.status == JobStatus.STOPPED else 1)


async def _tail(client: Any, job: str, seen: int) -> int:
    position = 0
    try:
        async for text in client.tail_job_logs(job):
            position += len(text)
            if position > seen:
                sys.stdout.write(text[-(position - seen) :])
                sys.stdout.flush()
                seen = position
    except (ConnectionError, RuntimeError, OSError):
        pass  # asked again by the caller, who looks at the job's state first
    return max(seen, position)


def _cause(fault: Exception) -> str:
    text = str(fault).strip()
    if "401" in text or "403" in text or "uthentication" in text:
        return f"it asks for another token ({text.splitlines()[0]})"
    return text.splitlines()[0] if text else type(fault).__name__


if __name__ == "__main__":
    from sweep.cli import main as command

    command(["submit", *sys.argv[1:]])
