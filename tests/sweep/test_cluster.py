"""Two nodes on loopback: one is lost, then the driver, and the tables are as if nothing had happened."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save_file
from test_engine import outcome, records, wait_for
from tiny_study import tiny

from sweep.cluster import preflight
from sweep.engine.options import RunOptions
from sweep.engine.run import run_study
from sweep.store import layout
from sweep.store.opening import open_store
from sweep.store.records.trial import TrialRecord
from sweep.studies.model import Study
from tests.own_files import STUDY, write_study, write_user_files
from tests.patience import patience

ROOT = Path(__file__).parents[2]
SHAPES = {"0.weight": (4, 1, 3, 3), "0.bias": (4,), "3.weight": (3, 36), "3.bias": (3,)}  # of tests.own_files.NETWORK
FAST_HEALTH_CHECKS = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "5",
}


@pytest.fixture(scope="module")
def cluster():
    before = dict(os.environ)
    os.environ.update(FAST_HEALTH_CHECKS)
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 100_000_000}
    made = Cluster(initialize_head=True, connect=False, head_node_args={**node, "include_dashboard": False})
    made.second = made.add_node(**node)
    yield made
    made.shutdown()
    os.environ.clear()
    os.environ.update(before)


def start(cluster, folder, store, out, study="tiny.yaml"):
    words = ["--study", str(folder / study), "--store", str(store), "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-m", "sweep.run", *words, "--address", cluster.address, "--yes"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.timeout(400)
def test_losing_a_node_and_then_the_driver_changes_no_number(cluster, tmp_path):
    changes = {"methods": {"at": {}, "sovr": {}}, "seeds": [0], "search": {"sovr": {"candidates": 4}}}
    study = tiny(tmp_path, **changes)
    store = tmp_path / "store"

    driver = start(cluster, tmp_path, store, tmp_path / "reports")
    wait_for(lambda: records(store) >= 1, 200)
    cluster.remove_node(cluster.second, allow_graceful=False)
    lost = records(store)
    wait_for(lambda: records(store) > lost, 200)  # what ran on the lost node has moved to the other
    assert driver.poll() is None
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    assert records(store) < 6

    cluster.second = cluster.add_node(num_cpus=1, object_store_memory=100_000_000)
    driver = start(cluster, tmp_path, store, tmp_path / "reports")
    output, _ = driver.communicate(timeout=patience(200))
    assert driver.returncode == 0, output

    undisturbed = tmp_path / "undisturbed"
    options = RunOptions(data_dir=tmp_path, out=tmp_path / "expected", progress=False, local=True)
    summary = run_study(study, open_store(undisturbed), options)
    assert summary.complete
    assert outcome(store) == outcome(undisturbed)
    assert (tmp_path / "reports/tables.md").read_bytes() == (tmp_path / "expected/tables.md").read_bytes()


@pytest.mark.timeout(120)
def test_a_request_that_fits_no_node_is_refused_with_what_the_nodes_have(cluster, tmp_path):
    tiny(tmp_path, resources={"cpus": 2})  # two in the cluster, one on each node
    driver = start(cluster, tmp_path, tmp_path / "store", tmp_path / "reports")
    output, _ = driver.communicate(timeout=patience(100))
    assert driver.returncode == 2, output
    assert "2 CPU" in output and "no node of the cluster" in output and "Traceback" not in output


@pytest.mark.timeout(300)
def test_an_own_network_and_an_own_data_set_are_trained_and_attacked_on_two_nodes(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("ROBUSTSWEEP_CACHE", str(tmp_path / "cache"))  # of the driver; the nodes take it over from it
    home = write_user_files(tmp_path / "user")
    write_study(home, seeds=[0, 1])
    driver = start(cluster, home, tmp_path / "store", tmp_path / "reports", "mine.yaml")
    wait_for((tmp_path / "store").exists, 100)
    (home / "my_net.py").unlink()  # the driver has read it, and the nodes get its text
    output, _ = driver.communicate(timeout=patience(200))
    assert driver.returncode == 0, output
    store = open_store(tmp_path / "store")
    found = [one for one in store.records(TrialRecord, store.record_paths(TrialRecord)) if one.status == "done"]
    assert [(one.config.model, one.config.dataset) for one in found] == [("my_net.py:build", "folder:pets")] * 2
    table = (tmp_path / "reports/tables.md").read_text()
    assert "pets, my\\_net" in table and "Clean" in table


@pytest.mark.timeout(300)
def test_modules_and_weights_of_an_own_network_reach_nodes_that_do_not_have_them(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("ROBUSTSWEEP_CACHE", str(tmp_path / "cache"))
    home = write_user_files(tmp_path / "user")
    (home / "warm.py").write_text(
        "from pathlib import Path\nfrom safetensors.torch import load_file\nfrom .my_net import build as base\n\n\n"
        "def build(classes, shape):\n    model = base(classes, shape)\n"
        "    model.load_state_dict(load_file(Path(__file__).parent / 'w.safetensors'))\n    return model\n"
    )
    weights = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    save_file(weights, home / "w.safetensors")
    write_study(home, model="warm.py:build", dataset="npz:bars.npz", train={**STUDY["train"], "learning_rate": 1e-9})
    checked = preflight.disk_faults

    def without_files(*arguments):
        """The last check before workers start: from here on no process finds the files where they were."""
        faults = checked(*arguments)
        for name in ("warm.py", "my_net.py", "w.safetensors"):
            (home / name).unlink()
        return faults

    monkeypatch.setattr(preflight, "disk_faults", without_files)
    store = open_store(tmp_path / "store")
    options = RunOptions(address=cluster.address, data_dir=tmp_path, out=None, yes=True, progress=False)
    assert run_study(Study.load(home / "mine.yaml"), store, options).complete
    (record,) = store.records(TrialRecord, store.record_paths(TrialRecord))
    assert record.status == "done"
    trained = load(store.read(layout.weights(record.trial, "last")))
    assert all(value.abs().max() < 1e-6 for value in trained.values()), "training began with the weights of the file"
