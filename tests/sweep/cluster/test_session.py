"""How Ray starts, or does not, and what it says by itself."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import ray

from sweep.cluster.session import WithoutRaylet, connected
from sweep.errors import SweepEnded
from tests.sweep.tiny_study import tiny


def test_what_rays_listener_prints_stays_out_of_the_display(capsys):
    with contextlib.redirect_stdout(WithoutRaylet(sys.stdout)):
        for name in ("ray_listen_error_messages", "another"):
            thread = threading.Thread(target=print, args=(f"from {name}",), name=name)
            thread.start()
            thread.join()
        print("from the sweep")
    assert capsys.readouterr().out == "from another\nfrom the sweep\n"


@pytest.fixture
def refusing(monkeypatch):
    """A Ray that fails to start so many times, and then does."""

    def make(failures):
        calls = []

        def init(**_):
            calls.append(1)
            if len(calls) <= failures:
                raise RuntimeError("The current node timed out during startup.\nMore words\n")

        monkeypatch.setattr("ray.init", init)
        monkeypatch.setattr("ray.shutdown", lambda: None)
        return calls

    return make


def test_a_ray_that_does_not_start_is_tried_once_more(refusing, capsys):
    calls = refusing(1)
    with connected(None):
        pass
    assert len(calls) == 2
    said = capsys.readouterr().err
    assert said == "Ray did not start (The current node timed out during startup.); trying once more\n"


def test_what_a_failed_start_left_is_ended_and_others_are_not(monkeypatch):
    others, left = subprocess.Popen(["sleep", "600"]), []

    def init(**_):
        if left:
            return
        left.append(subprocess.Popen(["sh", "-c", "sleep 600 & wait"]))
        raise RuntimeError("timed out")

    monkeypatch.setattr("ray.init", init)
    monkeypatch.setattr("ray.shutdown", lambda: None)
    try:
        with connected(None):
            assert left[0].wait(30) == -signal.SIGKILL and others.poll() is None
    finally:
        others.kill()
        others.wait()


def test_a_ray_that_ran_before_in_this_process_leaves_its_token_behind():
    tokens = set()
    for _ in range(2):
        for name in [name for name in os.environ if name.startswith("RAY_AUTH_")]:
            del os.environ[name]
        with connected(None):
            assert ray.get(ray.remote(lambda: 1).remote()) == 1
            tokens.add(os.environ["RAY_AUTH_TOKEN"])
    assert len(tokens) == 2


def test_a_ray_that_does_not_start_at_all_is_told_with_its_cause(refusing):
    calls = refusing(9)
    with pytest.raises(SweepEnded, match="tried twice: The current node timed out during startup.\nOften"):
        with connected(None):
            pytest.fail("there is no Ray")
    assert len(calls) == 2


def test_a_start_that_a_stop_ended_is_not_tried_again(refusing):
    calls = refusing(9)
    with pytest.raises(RuntimeError, match="timed out"):
        with connected(None, stopping=lambda: True):
            pytest.fail("there is no Ray")
    assert len(calls) == 1


def test_rays_own_settings_are_read_although_ray_was_imported_before():
    code = """
import ray
from sweep.cluster.session import connected
with connected(None):
    config = ray._raylet.Config
    print(config.grpc_client_keepalive_time_ms())
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    # Ray's processes accept a ping a minute; without a setting it sends one in five minutes.
    assert 60_000 < int(done.stdout) < 120_000, done.stderr


@pytest.mark.timeout(200)
def test_the_command_says_in_a_few_lines_that_ray_did_not_start(tmp_path):
    tiny(tmp_path)
    (tmp_path / "file").write_text("")
    words = ["--study", str(tmp_path / "tiny.yaml"), "--store", str(tmp_path / "store"), "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "RAY_TMPDIR": str(tmp_path / "file")}
    found = subprocess.run(
        [sys.executable, "-m", "sweep.run", *words], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert found.returncode == 1 and "Traceback" not in found.stderr
    assert "error: Ray did not start, tried twice: " in found.stderr and len(found.stderr.splitlines()) < 8
