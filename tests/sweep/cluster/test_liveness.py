"""A sweep whose Ray is gone ends with one message; what it finished stays, and the command that it names goes on."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from sweep.cluster import liveness
from sweep.cluster.liveness import Liveness
from sweep.cluster.resources import TrialResources
from sweep.store.lease_upkeep import held
from sweep.store.opening import open_store
from tests.patience import patience
from tests.sweep.tiny_study import TINY, tiny

ROOT = Path(__file__).parents[3]
RUN = """
import sys
from sweep import cli
from sweep.cluster import liveness
from sweep.engine import stopping
liveness.LOST_SECONDS, stopping.PATIENCE_SECONDS = 5.0, 3.0
sys.argv = ["sweep", "run", *sys.argv[1:]]
cli.main()
"""


@pytest.fixture
def head(monkeypatch):
    """A cluster of our own making: a port that answers, and the nodes that it lists."""
    server = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{server.getsockname()[1]}"
    context = SimpleNamespace(gcs_address=address, get_node_id=lambda: "driver", get_job_id=lambda: "01000000")
    monkeypatch.setattr("ray.get_runtime_context", lambda: context)
    monkeypatch.setattr(liveness, "LOST_SECONDS", 0.6)
    driver = {"NodeID": "driver", "NodeManagerAddress": "10.0.0.2", "Alive": True, "Resources": {}}
    cluster = SimpleNamespace(server=server, driver=driver, nodes=[{"Resources": {"CPU": 2.0}}])
    others = {"NodeID": "other", "Alive": True}
    monkeypatch.setattr("ray.nodes", lambda: [cluster.driver, *({**others, **node} for node in cluster.nodes)])
    yield cluster
    server.close()


def lost_within(seconds: float, patience: float | None = None) -> list[str]:
    reasons: list[str] = []
    told = threading.Event()

    def lost(reason: str) -> None:
        reasons.append(reason)
        told.set()

    with Liveness(TrialResources(0, 1), lost, patience):
        told.wait(seconds)
    return reasons


def test_a_cluster_with_a_node_that_fits_is_never_lost(head):
    assert lost_within(2.0) == []


def test_a_cluster_without_a_node_that_fits_is_lost(head):
    head.nodes = [{"Resources": {"GPU": 1.0}}]
    (reason,) = lost_within(30)
    assert "no living node with 1 CPU" in reason


def test_a_node_that_comes_back_in_time_is_not_missed(head):
    head.nodes = []
    threading.Timer(0.3, lambda: head.nodes.append({"Resources": {"CPU": 1.0}})).start()
    assert lost_within(2.0) == []


def test_a_head_that_does_not_answer_is_lost(head):
    head.server.close()
    (reason,) = lost_within(30)
    assert "the head of the Ray cluster (127.0.0.1:" in reason and "has not answered" in reason


def test_a_driver_whose_node_the_head_has_declared_dead_is_lost(head):
    head.driver["Alive"] = False
    (reason,) = lost_within(30, patience=600.0)  # nodes may be long in coming, but this one does not come back
    assert "the driver's node (10.0.0.2)" in reason and "dead for" in reason


def test_a_driver_whose_node_the_head_has_forgotten_is_lost(head):
    head.driver = {**head.driver, "NodeID": "new"}  # a head that was started again without its state
    (reason,) = lost_within(30)
    assert "the driver's node (driver)" in reason


@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", ["raylet", "gcs_server"])
def test_a_sweep_whose_ray_dies_ends_with_the_command_to_go_on(tmp_path, victim):
    tiny(tmp_path, methods={"at": {}}, search=None, train={**TINY["train"], "epochs": 20_000})
    store = tmp_path / "store"
    words = ["--study", str(tmp_path / "tiny.yaml"), "--store", str(store), "--out", str(tmp_path / "reports")]
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        while not list(store.glob("trials/*/resume.pt")):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.1)
        os.kill(child(process.pid, victim), signal.SIGKILL)
        output, _ = process.communicate(timeout=patience(120))
    finally:
        process.kill()
    assert process.returncode == 1 and "Traceback" not in output, output
    assert "error: the " in output and "to go on: python -m sweep.run --study" in output.splitlines()[-1]
    assert list(store.glob("trials/*/resume.pt"))
    end = time.monotonic() + patience(60)
    while held(open_store(store)):  # its workers end with it, and their leases with them
        assert time.monotonic() < end
        time.sleep(0.2)


def child(parent: int, name: str) -> int:
    """The newest: on a loaded machine a first Ray may not have come up in time, and wait for the end of the process."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        pid, _, rest = status.read_text().partition(" (")
        command, _, facts = rest.rpartition(") ")
        if command == name and facts.split()[1] == str(parent):
            found.append(int(pid))
    return max(found)
