"""Starting Ray for a sweep: this machine alone and on loopback, or an existing cluster that gets our code."""

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
OBJECT_STORE_BYTES = 200 * 1024**2  # nothing large travels through Ray: weights and records go by the store
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # "0": nodes have the address 127.0.0.1, and no other machine can join
IN_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # set by Ray in what was submitted through its Jobs API


@contextlib.contextmanager
def connected(
    address: str | None, *, verbose: bool = False, stopping: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Ray is up inside. Without an address a private one is started: no dashboard, loopback only."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # By itself Ray aborts the process a minute after the head's death; the sweep ends in its own words before that.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "180")
    # During a cut of the network a worker may give up a connection, and by itself the driver asks after five minutes.
    # Ask no more than once a minute: processes of a cluster that was started without this setting take that for abuse
    # and end the driver's calls ("too many pings").
    os.environ.setdefault("RAY_grpc_client_keepalive_time_ms", "75000")
    os.environ.setdefault("RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS", "0")
    if address is None and not any(name.startswith("RAY_AUTH_") for name in os.environ):
        # A secret for this session alone; by itself Ray would write one that everybody can read to ~/.ray.
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    import ray

    if ray.is_initialized():
        raise UserError(
            "Ray is already running in this program, and a sweep starts or joins a Ray of its own: "
            "call ray.shutdown() first, or run the sweep in another process"
        )
    _read_secrets_anew()
    options: dict[str, Any] = {
        "log_to_driver": verbose,
        "logging_level": logging.WARNING if verbose else logging.ERROR,
        "configure_logging": True,
    }
    with loopback_only() if address is None else contextlib.nullcontext():
        with _own_signals():
            if address is None:
                _start(options, stopping)
            else:
                _join(address, options)
        try:
            with contextlib.nullcontext() if verbose else contextlib.redirect_stdout(WithoutRaylet(sys.stdout)):
                yield
        finally:
            ray.shutdown()


@contextlib.contextmanager
def loopback_only() -> Iterator[None]:
    """Make a Ray that is started inside listen on loopback only, whatever the environment says.

    Ray reads the variable once, when it is imported, and a notebook or one of our own modules may have imported it long
    before: the constant that it read is set as well. The variable is for Ray's processes, which inherit it. Restore
    both afterwards: with them this program, and a `ray start` that it calls, could not be part of a cluster.
    """
    from ray._private import ray_constants

    before, clusters = os.environ.get(LOOPBACK), ray_constants.ENABLE_RAY_CLUSTER
    os.environ[LOOPBACK], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = clusters
        if before is None:
            del os.environ[LOOPBACK]
        else:
            os.environ[LOOPBACK] = before


def _read_secrets_anew() -> None:
    """A process in which a Ray ran before, such as a notebook's, would show the next one that one's token, or none."""
    import ray

    inner: Any = ray._raylet
    with contextlib.suppress(AttributeError):  # neither is part of Ray's documented interface
        inner.Config.initialize("")
        inner.AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """While Ray starts its handler of SIGTERM would raise SystemExit wherever Python then is, and an exception that
    meets a fork or a destructor is printed and lost."""
    from ray._private import utils

    handler = utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda _: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = handler


class WithoutRaylet(io.TextIOBase):
    """Standard output without what Ray's listener prints: "(raylet) A worker died…" amid the display, whatever
    `log_to_driver` says. A trial that fails for good is reported by the sweep itself."""

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


def _start(options: dict[str, Any], stopping: Callable[[], bool]) -> None:
    """A loaded machine can be too slow for Ray's own limits, and what a kill left may be in the way: two tries."""
    import ray

    for attempt in (1, 2):
        before = set(_processes())
        try:
            ray.init(address="local", include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, **options)
            return
        except Exception as fault:  # Ray has a dozen types for this
            ray.shutdown()
            for process in _processes():
                if process not in before:  # of a start that failed Ray itself ends these when we end
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


def _processes() -> list[Any]:
    """All below this process, those of others aside: a worker of Ray's is a child of its raylet."""
    import psutil  # type: ignore[import-untyped]  # Ray's own copy

    return list(psutil.Process().children(recursive=True))


def check_address(address: str) -> None:
    """Raise UserError for what cannot be the address of a cluster."""
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
        environment = {}  # the job brought the code along
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
