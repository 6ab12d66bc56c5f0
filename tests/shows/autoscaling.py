"""`python -m tests.shows.autoscaling`: Ray's fake autoscaler, from no node that fits to two, and back before the end.

Its fake nodes always join port 6379: nothing else may listen there.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sweep.store.opening import open_store
from tests.patience import patience
from tests.shows import study
from tests.sweep.tiny_study import TINY

PORT, NODES = 6379, 2
EMPTY = ("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands")
EMPTY += (
    "head_start_ray_commands",
    "worker_start_ray_commands",
    "cluster_synced_files",
    "rsync_exclude",
    "rsync_filter",
)
CONFIG = {
    "cluster_name": "shown",
    "provider": {
        "type": "fake_multinode",
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    },
    "available_node_types": {
        "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        "worker": {
            "resources": {"CPU": 1, "object_store_memory": 104857600},
            "node_config": {},
            "min_workers": 0,
            "max_workers": NODES,
        },
    },
    "head_node_type": "ray.head.default",
    "max_workers": NODES,
    "upscaling_speed": 10.0,
    "idle_timeout_minutes": 0.2,
    "auth": {"ssh_user": "ubuntu"},
    "docker": {},
    "file_mounts": {},
    "file_mounts_sync_continuously": False,
    **{name: [] for name in EMPTY},
}


def main() -> None:
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", PORT)) == 0:
            sys.exit(f"skipped: something listens on port {PORT}, which Ray's fake nodes need")
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_FAKE_CLUSTER": "1"}
    os.environ["AUTOSCALER_UPDATE_INTERVAL_S"] = "1"
    with tempfile.TemporaryDirectory(prefix="robustsweep-scaling-") as name:
        folder = Path(name)
        (folder / "cluster.json").write_text(json.dumps(CONFIG))
        words = ["start", "--head", f"--port={PORT}", "--num-cpus=0", "--dashboard-host=127.0.0.1", "--block"]
        words += [f"--autoscaling-config={folder / 'cluster.json'}", "--object-store-memory=100000000"]
        with (folder / "head.log").open("w") as log:
            ray = [str(Path(sys.executable).parent / "ray"), *words]
            head = subprocess.Popen(ray, stdout=log, stderr=log, start_new_session=True)
        try:
            _wait_for_head(folder / "head.log", head)
            trace = _sweep(folder)
        finally:
            os.killpg(head.pid, signal.SIGTERM)
            head.wait(60)
    counts = [count for _, count, done in trace if not done]
    assert counts[0] == 0 and max(counts) == NODES, trace
    assert min(counts[counts.index(NODES) :]) < NODES, trace  # a node went while the last trial was still running
    assert trace[-1][1] == 0, trace


def _wait_for_head(log: Path, head: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + patience(90)
    while "Ray runtime started" not in log.read_text():
        assert time.monotonic() < end and head.poll() is None, log.read_text()
        time.sleep(0.3)


def _sweep(folder: Path) -> list[tuple[float, int, bool]]:
    """Seconds, nodes that fit, whether the sweep has ended; printed where it changes."""
    import ray

    ray.init(address=f"127.0.0.1:{PORT}", log_to_driver=False, logging_level="ERROR")
    methods = {"slow": {}, "st": {"train": {"epochs": 2}}, "long": {"method": "slow", "train": {"epochs": 60}}}
    driver = study.start(
        folder, "--address", f"127.0.0.1:{PORT}", train={**TINY["train"], "epochs": 8}, methods=methods
    )
    began, trace = time.monotonic(), [(0.0, 0, False)]
    ended = 0.0
    while time.monotonic() - began < patience(400):
        nodes = sum(node["Alive"] and node["Resources"].get("CPU", 0) >= 1 for node in ray.nodes())
        done = driver.poll() is not None
        ended = ended or (time.monotonic() if done else 0.0)
        if (nodes, done) != trace[-1][1:]:
            trace.append((time.monotonic() - began, nodes, done))
            records = len(list(folder.glob("store/trials/*/record.json")))
            state = "ended" if done else "running"
            print(f"{trace[-1][0]:6.1f} s  {nodes} nodes, {records} trials done, sweep {state}", flush=True)
        if done and (not nodes or time.monotonic() - ended > patience(90)):
            break
        time.sleep(0.5)
    output = driver.communicate(timeout=10)[0]
    print(output)
    ray.shutdown()
    assert driver.returncode == 0 and set(open_store(folder / "store").trial_states().values()) == {"done"}
    return trace


if __name__ == "__main__":
    main()
