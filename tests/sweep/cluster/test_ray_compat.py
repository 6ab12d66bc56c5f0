"""What we use of Ray that is not documented: these fail first when a new version of Ray changes it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from ray.tune.callback import Callback
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.utils.callback import _create_default_callbacks

from sweep.cluster import compat
from sweep.cluster.compat import SilentProgress, own_signals, read_secrets_anew, scales, show_title

ROOT = Path(__file__).parents[3]


def python(text: str) -> str:
    """Run some lines in a process of their own, which Ray's settings may change."""
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_tune_adds_no_progress_callback_beside_a_silent_one(monkeypatch):
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    (plain,) = _create_default_callbacks([])
    assert type(plain) is TrialProgressCallback
    silent = SilentProgress()
    assert _create_default_callbacks([silent]) == [silent]


def test_the_silent_callback_answers_everything_that_tune_s_own_does(capsys):
    """It has none of the attributes that the original needs, so that every hook has to be its own."""
    own = {name for name in vars(TrialProgressCallback) if not name.startswith("_")}
    hooks = {name for name in own if hasattr(Callback, name) or name.startswith("on_")}
    assert hooks and hooks <= set(vars(SilentProgress))
    silent, trial = SilentProgress(), SimpleNamespace(trial_id="t", last_result={})
    silent.on_trial_result(0, [trial], trial, {"epoch": 1})
    silent.on_trial_error(0, [trial], trial)
    silent.on_trial_complete(0, [trial], trial)
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="reads the title as Linux shows it")
def test_a_title_is_shown_where_ps_looks():
    lines = python(
        "from sweep.cluster.compat import show_title\n"
        "show_title('sovr seed 0 · autoattack 2/4')\n"
        "print(open('/proc/self/cmdline').read().rstrip(chr(0)))"
    )
    assert lines.strip() == "ray::sovr seed 0 · autoattack 2/4"


def test_a_ray_without_titles_is_no_reason_to_fail(monkeypatch):
    monkeypatch.setattr(ray, "_raylet", SimpleNamespace())
    show_title("sovr seed 0")
    read_secrets_anew()


def test_ray_s_secrets_can_be_forgotten():
    """That the next Ray then asks for its own is tested with two real ones."""
    assert callable(ray._raylet.Config.initialize)
    assert callable(ray._raylet.AuthenticationTokenLoader.instance().reset_cache)


def test_ray_starts_without_a_handler_of_its_own_for_sigterm():
    started = """
import signal
from sweep.cluster.compat import own_signals
import ray
mine = lambda *_: None
signal.signal(signal.SIGTERM, mine)
with own_signals():
    ray.init(address="local", num_cpus=1, include_dashboard=False, object_store_memory=100_000_000)
print(signal.getsignal(signal.SIGTERM) is mine)
ray.shutdown()
"""
    assert python(started).splitlines()[-1] == "True"


def test_ray_has_its_own_handler_back_afterwards():
    from ray._private import utils

    before = utils.set_sigterm_handler
    with pytest.raises(RuntimeError), own_signals():
        assert utils.set_sigterm_handler is not before
        raise RuntimeError
    assert utils.set_sigterm_handler is before


def test_ray_says_whether_its_cluster_is_one_of_several_nodes():
    from ray._private import ray_constants

    assert isinstance(ray_constants.ENABLE_RAY_CLUSTER, bool) and compat.LOOPBACK == "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def test_a_cluster_of_fixed_nodes_does_not_scale_and_says_so():
    started = """
import ray
from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
from ray.autoscaler.v2.utils import is_autoscaler_v2
from ray.experimental.internal_kv import _internal_kv_get
from sweep.cluster.compat import scales
ray.init(address="local", num_cpus=1, include_dashboard=False, object_store_memory=100_000_000)
answer = _internal_kv_get(DEBUG_AUTOSCALING_STATUS)
print(is_autoscaler_v2(fetch_from_server=True), answer is None or isinstance(answer, bytes), scales())
ray.shutdown()
"""
    assert python(started).splitlines()[-1] == "False True False"


@pytest.mark.parametrize(
    ("nodes", "expected"), [({"node_0a1b2c": 1}, False), ({"ray.head.default": 1, "cpu_worker": 0}, True), ({}, False)]
)
def test_an_autoscaler_is_told_by_the_node_types_in_its_report(monkeypatch, nodes, expected):
    report = json.dumps({"autoscaler_report": {"active_nodes": nodes}}).encode()
    monkeypatch.setattr("ray.autoscaler.v2.utils.is_autoscaler_v2", lambda **_: False)
    monkeypatch.setattr("ray.experimental.internal_kv._internal_kv_get", lambda key: report)
    assert scales() is expected


def test_without_an_answer_a_cluster_is_what_it_is_now(monkeypatch):
    def silent(**_):
        raise ConnectionError("no answer")

    monkeypatch.setattr("ray.autoscaler.v2.utils.is_autoscaler_v2", silent)
    assert scales() is False


def test_tune_s_last_idle_actor_ends_where_idle_actors_end():
    from ray.tune.execution import tune_controller

    def left_after(cache) -> list[str]:
        assert cache.cache_object("one cpu", "actor")  # although no trial waits for one
        return list(cache.flush_cached_objects())

    plain = tune_controller._ObjectCache
    assert left_after(plain(may_keep_one=True)) == []
    with compat.idle_actors_end(60.0):
        assert left_after(tune_controller._ObjectCache(may_keep_one=True)) == []
    with compat.idle_actors_end(0.0):
        cache = tune_controller._ObjectCache(may_keep_one=True)
        assert left_after(cache) == ["actor"] and not cache.num_cached_objects
    assert tune_controller._ObjectCache is plain
