"""Submission through the Jobs API of a Ray cluster: send a study with its code, and follow its log."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import shutil
import stat
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweep import studies
from sweep.cluster.session import PACKAGES
from sweep.commands import VARIABLE, option_words, spelled, submitted
from sweep.errors import UserError
from sweep.studies.options import StudyOptions
from sweep.submission.options import SubmitOptions
from trainers.plugins import registry

DEFAULT_TOKEN = "~/.ray/auth_token"  # Ray's own default
POLL_SECONDS = 1.0
READY_SECONDS = 60.0
INTERRUPTED = 130


def use_no_token() -> None:
    os.environ["RAY_AUTH_MODE"] = "disabled"


def use_token(file: str | None) -> None:
    """Make Ray use the token in `file`, or its usual one. Refuse a file that others can read.

    Ray reads the token from the environment, where RAY_AUTH_TOKEN precedes RAY_AUTH_TOKEN_PATH. A file that the user
    names precedes both.
    """
    os.environ["RAY_AUTH_MODE"] = "token"
    if file is None and os.environ.get("RAY_AUTH_TOKEN"):
        return
    path = Path(os.path.expanduser(file or os.environ.get("RAY_AUTH_TOKEN_PATH") or DEFAULT_TOKEN))
    if not path.is_file():
        raise UserError(
            f"no token at {path}; copy the cluster's there (chmod 600), name it with --token, "
            "or say --no-token for a cluster that asks for none"
        )
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise UserError(f"others can read the token {path}; run: chmod 600 {path}")
    os.environ.pop("RAY_AUTH_TOKEN", None)
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(path)


def stage(options: StudyOptions, folder: Path) -> tuple[str, list[str]]:
    """Copy the code, the study and the plug-ins into one folder, and nothing else from the working directory."""
    here = Path(__file__).resolve().parents[2]
    for name in PACKAGES:
        shutil.copytree(here / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    study, found = options.study, studies.find(options.study)
    if found.parent != studies.FOLDER:
        shutil.copy(found, folder / found.name)
        study = found.name
    plugins = []
    for number, plugin in enumerate(options.plugins or ()):
        target = folder / "plugins" / str(number) / Path(plugin).name
        target.parent.mkdir(parents=True)
        shutil.copy(plugin, target)
        if code := registry.code_of(Path(plugin).stem):
            code.copy_to(target.parent)
        plugins.append(str(target.relative_to(folder)))
    return study, plugins


def run(options: SubmitOptions, address: str, python: str) -> int:
    """Submit a study, follow its log, and return the exit code of the sweep on the cluster."""
    try:
        from ray.exceptions import AuthenticationError
        from ray.job_submission import JobSubmissionClient
    except ImportError:
        raise UserError("job submission is not installed: pip install 'robustsweep[cluster]'") from None
    for name in ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk", "ray._private.runtime_env"):
        logging.getLogger(name).setLevel(logging.WARNING)
    again = submitted(options.study.words())  # records name this command, not that of the cluster's copy
    environment = {"RAY_USAGE_STATS_ENABLED": "0", VARIABLE: again, **options.environment()}
    with tempfile.TemporaryDirectory(prefix="robustsweep-submit-") as temporary:
        options = replace(options, study=options.study.elsewhere(Path(temporary)))
        words = options.sweep_arguments(*stage(options.study, Path(temporary)))
        entrypoint = shlex.join([python, "-m", "sweep.run", *words, "--address", "auto"])
        try:
            client = JobSubmissionClient(address)
            job = _hand_over(client, entrypoint, {"working_dir": temporary, "env_vars": environment})
        except (ConnectionError, RuntimeError, ValueError, AuthenticationError) as fault:
            raise UserError(f"{address} did not take the study: {_cause(fault)}") from None
    print(f"{address}: {job} runs {entrypoint}", flush=True)
    how = options.tables or spelled("reports", *option_words(store=options.store))
    print(f"tables: {how}", flush=True)
    try:
        return asyncio.run(_follow(client, job))
    except KeyboardInterrupt:
        print(f"\nno longer following; it goes on. Stop it with: ray job stop --address {address} {job}")
        return INTERRUPTED


def _hand_over(client: Any, entrypoint: str, runtime_env: dict[str, Any]) -> str:
    """Submit the job and return its id. Retry for a while: a new cluster accepts jobs only some time after it is up."""
    end = time.monotonic() + READY_SECONDS
    while True:
        try:
            return str(client.submit_job(entrypoint=entrypoint, runtime_env=runtime_env))
        except RuntimeError as fault:
            if "No available agent" not in str(fault) or time.monotonic() > end:
                raise
            time.sleep(POLL_SECONDS)


async def _follow(client: Any, job: str) -> int:
    """Print the job's log as it grows, and return the exit code. Reconnect after a lost connection."""
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
        pass  # the caller tries again, after a look at the job's state
    return max(seen, position)


def _cause(fault: Exception) -> str:
    text = str(fault).strip()
    if "401" in text or "403" in text or "uthentication" in text:
        return f"it asks for another token ({text.splitlines()[0]})"
    return text.splitlines()[0] if text else type(fault).__name__
