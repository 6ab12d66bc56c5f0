"""A local run listens on loopback only, however it is started: the sockets of its processes are looked at."""

import ipaddress
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray

from sweep.cluster.compat import loopback_only
from sweep.cluster.session import connected
from sweep.errors import UserError
from tests.patience import patience
from tests.sweep.tiny_study import TINY, tiny

ROOT = Path(__file__).parents[3]
VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
SOURCES = [path for top in ("sweep", "robustsweep", "trainers", "reports") for path in (ROOT / top).rglob("*.py")]
NOTEBOOK = """
import ray  # before robustsweep, as a notebook may do
import robustsweep
robustsweep.run("tiny.yaml", store="store")
"""
WAYS = {
    "sweep.run": ["-m", "sweep.run", "--study", "tiny.yaml", "--store", "store", "--out", "reports"],
    "sweep.decide": ["-m", "sweep.decide", "sovr > at", "--study", "tiny.yaml", "--store", "store", "--out", "reports"],
    "notebook": ["-c", NOTEBOOK],
}


def listening(pid: int) -> set[tuple[str, str]]:
    """Return process name and address of every TCP or UDP socket that this process or one below it has open."""
    import psutil  # Ray's own copy, found once Ray is imported

    sockets = set()
    process = psutil.Process(pid)
    for member in (process, *process.children(recursive=True)):
        try:
            for entry in member.net_connections("inet"):
                if entry.status in (psutil.CONN_LISTEN, psutil.CONN_NONE) and entry.laddr:
                    sockets.add((member.name(), entry.laddr.ip.removeprefix("::ffff:")))  # IPv4 in IPv6
        except psutil.NoSuchProcess:
            continue
    return sockets


@pytest.mark.timeout(200)
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="lists the sockets of other processes as Linux does")
@pytest.mark.parametrize("way", WAYS)
def test_every_socket_of_a_local_run_is_on_loopback(way, tmp_path):
    tiny(tmp_path, search=None, train={**TINY["train"], "epochs": 20_000})
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    log = tmp_path / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, *WAYS[way]],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + patience(150)
        while not list((tmp_path / "store").glob("trials/*/resume.pt")):
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        sockets = listening(process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(patience(60))
    assert {"gcs_server", "raylet"} < {name for name, _ in sockets}, sockets
    assert not {(name, address) for name, address in sockets if not ipaddress.ip_address(address).is_loopback}


def test_a_cluster_can_be_joined_after_a_local_run_of_the_same_program(monkeypatch):
    from ray._private import ray_constants

    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    for value in (None, "1"):
        monkeypatch.delenv(VARIABLE, raising=False) if value is None else monkeypatch.setenv(VARIABLE, value)
        with loopback_only():
            assert os.environ[VARIABLE] == "0" and not ray_constants.ENABLE_RAY_CLUSTER
        assert os.environ.get(VARIABLE) == value and ray_constants.ENABLE_RAY_CLUSTER


@pytest.mark.parametrize("address", [None, "127.0.0.1:6379"])
def test_a_ray_that_the_program_runs_itself_is_not_shut_down(address, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "shutdown", lambda: pytest.fail("it was shut down"))
    with pytest.raises(UserError, match=re.escape("ray.shutdown()")), connected(address):
        pytest.fail("two at once")


def test_only_the_session_starts_a_ray():
    starts = {path.relative_to(ROOT).as_posix() for path in SOURCES if re.search(r"\bray\.init\(", path.read_text())}
    assert starts == {"sweep/cluster/session.py"}
