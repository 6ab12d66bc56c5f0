"""All uses of undocumented parts of Ray, each with its reason.

If a new version of Ray changes one of them, `tests/sweep/cluster/test_ray_compat.py` fails first.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import ray
from ray.tune.progress_reporter import TrialProgressCallback

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # "0": nodes have the address 127.0.0.1, and no other machine can join


class SilentProgress(TrialProgressCallback):
    """A silent replacement for the callback that Tune adds by itself, which prints into the display."""

    def __init__(self) -> None:
        """Keep no state."""

    def on_trial_result(self, *arguments: Any, **info: Any) -> None:
        """Print nothing; the display shows it."""

    def on_trial_error(self, *arguments: Any, **info: Any) -> None:
        """Print nothing; the display shows it."""

    def on_trial_complete(self, *arguments: Any, **info: Any) -> None:
        """Print nothing; the display shows it."""


def show_title(title: str) -> None:
    """Show a title in `ps`. By default, Ray names an actor's process after its class and method."""
    raylet: Any = ray._raylet
    with contextlib.suppress(AttributeError):
        raylet.setproctitle(f"ray::{title}")


def read_secrets_anew() -> None:
    """Forget the token of an earlier Ray session in this process, for example in a notebook."""
    inner: Any = ray._raylet
    with contextlib.suppress(AttributeError):
        inner.Config.initialize("")
        inner.AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def loopback_only() -> Iterator[None]:
    """Make a Ray that is started inside the block listen on loopback only, whatever the environment says.

    Ray reads the variable once, when it is imported, and a notebook or one of our own modules may have imported it long
    before. Therefore the constant that it read is set as well. The variable is for Ray's processes, which inherit it.
    Both are restored afterwards: otherwise this program, or a `ray start` that it calls, could not join a cluster.
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


@contextlib.contextmanager
def own_signals() -> Iterator[None]:
    """Keep Ray from installing its SIGTERM handler while it starts.

    The handler raises SystemExit wherever Python happens to be. Inside a fork or a destructor, the exception would be
    printed and lost.
    """
    from ray._private import utils

    handler = utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda _: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = handler


def scales() -> bool:
    """Return whether an autoscaler adds nodes to this cluster for waiting work."""
    try:
        from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
        from ray.autoscaler.v2.utils import is_autoscaler_v2
        from ray.experimental.internal_kv import _internal_kv_get

        if is_autoscaler_v2(fetch_from_server=True):
            return True
        status = json.loads(_internal_kv_get(DEBUG_AUTOSCALING_STATUS) or b"{}")
    except Exception:  # without an answer, assume that the cluster does not grow
        return False
    # A cluster without an autoscaler sends a report too; each node in it is its own type, named after the node.
    types = (status.get("autoscaler_report") or {}).get("active_nodes") or {}
    return any(not name.startswith("node_") for name in types)


@contextlib.contextmanager
def idle_actors_end(seconds: float) -> Iterator[None]:
    """Let a Tuner that is fitted inside end an actor that has waited for a trial for so long. Tune always keeps one,
    whose node an autoscaler cannot take away."""
    from ray.tune.execution import tune_controller

    inner: Any = tune_controller
    cache = inner._ObjectCache

    class Cache(cache):  # type: ignore[misc, valid-type]
        _cached = 0.0

        def cache_object(self, key: Any, obj: Any) -> bool:
            self._cached, self._may_keep_one = time.monotonic(), True
            return bool(super().cache_object(key, obj))

        def flush_cached_objects(self, force_all: bool = False) -> Iterator[Any]:
            self._may_keep_one = time.monotonic() - self._cached < seconds
            yield from super().flush_cached_objects(force_all)

    inner._ObjectCache = Cache
    try:
        yield
    finally:
        inner._ObjectCache = cache
