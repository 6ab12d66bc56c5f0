"""A cluster with bad nodes: a GPU that torch cannot use is found at once, and nodes that join later and fail whatever
they are given cost no trial."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray
import torch

from sweep.cluster import preflight
from sweep.cluster.resources import TrialResources
from sweep.cluster.session import connected
from sweep.errors import UserError
from sweep.store.opening import open_store
from sweep.work.node_check import examine
from sweep.work.pieces import Setting
from tests.patience import patience
from tests.sweep.tiny_study import tiny

ROOT = Path(__file__).parents[3]
DATA = """
import os
from trainers.data.sets.digits import load as load_digits
from trainers.dataset import DatasetFacts, DataSource

def load(folder, download):
    if os.environ.get("BAD_NODE") == "data":
        raise RuntimeError("the files are not here")
    images, *others = load_digits(folder, download)
    return (255 - images if os.environ.get("BAD_NODE") == "images" else images, *others)

far_digits = DataSource(DatasetFacts(10, (1, 8, 8), 1437, 360), display="Far", load=load, files="far.npz")
"""
METHOD = """
import errno, os, time
from dataclasses import dataclass
from pathlib import Path
import torch.nn.functional as F
from trainers.method import Method

@dataclass(frozen=True)
class Slow(Method):
    def loss(self, model, images, labels, attack):
        if os.environ.get("BAD_NODE") == "disk":
            raise OSError(errno.ENOSPC, "No space left on device")
        while not Path({go!r}).exists():  # until the bad nodes have been found out
            time.sleep(0.1)
        return F.cross_entropy(model(images), labels)
"""


@pytest.fixture(scope="module")
def cluster():
    """A head without GPUs, and a node of which Ray believes that it has one."""
    before = dict(os.environ)
    os.environ["RAY_AUTH_MODE"] = "disabled"
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 100_000_000}
    made = Cluster(initialize_head=True, connect=False, head_node_args={**node, "include_dashboard": False})
    made.gpu = made.add_node(**node, num_gpus=1)
    yield made
    made.shutdown()
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.timeout(200)
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without GPUs")
def test_a_gpu_that_torch_cannot_use_is_refused_by_the_preflight_and_by_the_worker_that_holds_it(cluster, tmp_path):
    study, store = tiny(tmp_path, resources={"gpus": 1}), open_store(tmp_path / "store")
    with connected(cluster.address):
        with pytest.raises(UserError) as refused:
            preflight.check(study, store, TrialResources(1, 1), tmp_path)
        setting = Setting(store.uri, str(tmp_path))
        node = ray.get(ray.remote(num_gpus=1, max_retries=0)(examine).remote(setting, 1.0, store))
    for text in (str(refused.value), node.fault):
        assert f"holds a GPU that torch {torch.__version__}" in text and "NVIDIA driver" in text
        assert "--set resources.gpus=0" in text
    cluster.remove_node(cluster.gpu)


@pytest.mark.timeout(400)
def test_nodes_that_join_later_and_cannot_work_get_no_work_and_are_named(cluster, tmp_path):
    (tmp_path / "far_digits.py").write_text(DATA)
    (tmp_path / "slow.py").write_text(METHOD.replace("{go!r}", repr(str(tmp_path / "go"))))
    plugins = [tmp_path / "far_digits.py", tmp_path / "slow.py"]
    changes = {"dataset": "far_digits", "methods": {"slow": {}}, "seeds": [0, 1, 2, 3], "search": None}
    changes["resources"] = {"gpus": 0}
    changes["evaluation"] = {"attacks": ["clean"], "suite": None, "epsilon": "0.1", "images": 20}
    tiny(tmp_path, plugins=plugins, **changes)
    other = tmp_path / "other/torch-9.9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9.9\n")
    words = ["--study", str(tmp_path / "tiny.yaml"), "--store", str(tmp_path / "store"), "--logger", "none"]
    for plugin in plugins:
        words += ["--plugin", str(plugin)]
    log = tmp_path / "driver.log"
    with log.open("w") as stream:
        driver = subprocess.Popen(
            [sys.executable, "-m", "sweep.run", *words, "--address", cluster.address, "--yes"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    store, end = tmp_path / "store", time.monotonic() + patience(200)

    def wait_for(condition):
        while not condition():
            assert driver.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.2)

    wait_for(lambda: list(store.glob("trials/*/progress.json")))
    kinds = ("disk", "data", "images")
    for bad in (*({"BAD_NODE": kind} for kind in kinds), {"PYTHONPATH": f"{other.parent}:{ROOT}"}):
        cluster.add_node(num_cpus=1, object_store_memory=100_000_000, env_vars=bad)
    wait_for(lambda: log.read_text().count("gets no more work") == 4)
    (tmp_path / "go").touch()
    driver.wait(patience(100))
    output = log.read_text()
    assert driver.returncode == 0, output  # every trial was done elsewhere
    named = [line for line in output.splitlines() if line.startswith("node ") and "got no more work" in line]
    assert len(named) == 4, output
    for words in (
        "far.npz",
        "other data under the name 'far_digits' (sha256 ",
        "No space left on device",
        "torch 9.9.9 (the driver has",
    ):
        assert sum(words in line for line in named) == 1
    assert set(open_store(store).trial_states().values()) == {"done"}
    logs = "".join(path.read_text() for path in store.glob("trials/*/log.txt"))
    assert (
        2 <= logs.count("No space left on device\n") <= 3
    )  # two fast failures there, or three where two began at once
