"""Ray sessions for a sweep: a private one on this machine's loopback, or an existing cluster that receives our code."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sweep.errors import SweepEnded, UserError

PACKAGES = ("sweep", "trainers", "search_spaces", "reports")
ADDRESS = re.compile(r"(ray://)?([\w.-]+|\[[\da-fA-F:]+\]):\d{1,5}")
OBJECT_STORE_BYTES = 200 * 1024**2  # nothing large travels through Ray: weights and records go through the store
IN_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # set by Ray in programs that were submitted through its Jobs API


@contextlib.contextmanager
def connected(
    address: str | None, *, verbose: bool = False, dashboard: bool = False, stopping: Callable[[], bool] = lambda: False
) -> Iterator[str]:
    """Connect to Ray for the block. Without an address, start a private Ray on loopback only.

    Yields:
        A line on how to reach its dashboard, empty without one.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # By default, Ray aborts the process a minute after the head's death; the sweep reports it and ends before that.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "180")
    # During a network cut, a worker may drop a connection, and by default the driver pings only after five minutes.
    # Never ping more than once a minute: cluster processes started without this setting take that for abuse and end
    # the driver's calls ("too many pings").
    os.environ.setdefault("RAY_grpc_client_keepalive_time_ms", "75000")
    os.environ.setdefault("RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS", "0")
    shown, token = "", ""
    if address is None and not any(name.startswith("RAY_AUTH_") for name in os.environ):
        # A secret for this session alone. By default, Ray would write one to ~/.ray that everybody can read.
        token = os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    import ray

    from sweep.cluster.compat import loopback_only, own_signals, read_secrets_anew

    if ray.is_initialized():
        raise UserError(
            "Ray is already running in this program, and a sweep starts or joins a Ray of its own: "
            "call ray.shutdown() first, or run the sweep in another process"
        )
    read_secrets_anew()
    options: dict[str, Any] = {
        "log_to_driver": verbose,
        "logging_level": logging.WARNING if verbose else logging.ERROR,
        "configure_logging": True,
    }
    with loopback_only() if address is None else contextlib.nullcontext():
        with own_signals():
            if address is None:
                started = _start(options | _dashboard(dashboard), stopping)
                shown = _reachable(started.dashboard_url, token) if dashboard else ""
            else:
                _join(address, options)
        try:
            with contextlib.nullcontext() if verbose else contextlib.redirect_stdout(WithoutRaylet(sys.stdout)):
                yield shown
        finally:
            ray.shutdown()
            if token:  # the next session gets a secret of its own
                for name in [name for name in os.environ if name.startswith("RAY_AUTH_")]:
                    del os.environ[name]


class WithoutRaylet(io.TextIOBase):
    """Standard output without the lines of Ray's listener thread.

    The listener prints "(raylet) A worker died…" into the display, whatever `log_to_driver` says. The sweep itself
    reports trials that fail for good.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if threading.current_thread().name == "ray_listen_error_messages":
            return len(text)
        return int(self._stream.write(text))

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return bool(self._stream.isatty())

    def fileno(self) -> int:
        return int(self._stream.fileno())


def _dashboard(wanted: bool) -> dict[str, Any]:
    return {"include_dashboard": wanted} | ({"dashboard_host": "127.0.0.1"} if wanted else {})


def _reachable(url: str, token: str) -> str:
    """Return a line on how to reach the dashboard. A token that the user has set must not appear in any log."""
    return f"Ray's dashboard: http://{url}" + (f" (when it asks for a token: {token})" if token else "")


def _start(options: dict[str, Any], stopping: Callable[[], bool]) -> Any:
    """Start a private Ray and return its context.

    Try twice: a loaded machine can be too slow for Ray's own limits, and remains of a killed session may be in the way.
    """
    import ray

    for attempt in (1, 2):
        before = set(_processes())
        try:
            return ray.init(address="local", object_store_memory=OBJECT_STORE_BYTES, **options)
        except Exception as fault:  # Ray raises a dozen types for this
            ray.shutdown()
            for process in _processes():
                if process not in before:  # after a failed start, Ray itself ends these only when this process ends
                    with contextlib.suppress(Exception):
                        process.kill()
            if stopping():
                raise
            if attempt == 2:
                raise SweepEnded(
                    f"Ray did not start, tried twice: {_first_line(fault)}\n"
                    "Often the machine is overloaded, its memory, /tmp or /dev/shm is full, or an earlier Ray was "
                    "killed and is in the way: 'ray stop' ends what is left of it.\n"
                    "Ray's own logs are in /tmp/ray/session_latest/logs; the same command tries again"
                ) from None
            print(f"Ray did not start ({_first_line(fault)}); trying once more", file=sys.stderr, flush=True)
    return None


def _processes() -> list[Any]:
    """Return all descendants of this process. They include Ray's workers, which are children of its raylet."""
    import psutil  # type: ignore[import-untyped]  # Ray's own copy

    return list(psutil.Process().children(recursive=True))


def check_address(address: str) -> None:
    """Raise UserError if this cannot be the address of a cluster."""
    if address.startswith(("http://", "https://")):
        raise UserError(
            f"--address {address} is a dashboard; use 'python -m sweep.submit --address {address}', or host:6379"
        )
    if address not in ("auto", "local") and not ADDRESS.fullmatch(address):
        raise UserError(f"--address {address}: must be auto, or host:port of a Ray cluster such as head:6379")


def _join(address: str, options: dict[str, Any]) -> None:
    import ray

    check_address(address)
    environment: dict[str, Any] = {"env_vars": {"RAY_USAGE_STATS_ENABLED": "0"}}
    if IN_A_JOB not in os.environ:
        environment["py_modules"] = [str(Path(__file__).resolve().parents[2] / name) for name in PACKAGES]
        environment["excludes"] = ["**/__pycache__"]
    else:
        environment = {}  # the job brought the code with it
    try:
        ray.init(address=address, runtime_env=environment, **options)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.AuthenticationError) as fault:
        raise UserError(
            f"cannot join the Ray cluster at {address}: {_first_line(fault)}\n"
            "Is it running and reachable, and is this machine one of its nodes (ray start --address=HEAD:6379)?\n"
            "If it asks for a token: RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH here too"
        ) from None


def _first_line(fault: BaseException) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]
