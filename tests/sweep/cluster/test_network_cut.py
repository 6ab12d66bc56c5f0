"""The driver's node is cut off from the head long enough to be declared dead: the sweep ends, and the same
command goes on.

Head and driver live in network, process and mount namespaces of their own, so that Ray takes them for two machines.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.patience import patience
from tests.sweep.tiny_study import TINY, tiny

ROOT = Path(__file__).parents[3]
HEAD, DRIVER = "10.213.9.1", "10.213.9.2"
HEALTH_CHECKS = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "5",
}
START = "ray start --disable-usage-stats --object-store-memory=100000000 --temp-dir=/tmp/ray"
RUN = """
import sys
from sweep import cli
from sweep.cluster import liveness
from sweep.engine import stopping
liveness.LOST_SECONDS, stopping.PATIENCE_SECONDS = 20.0, 3.0
sys.argv = ["sweep", "run", *sys.argv[1:]]
cli.main()
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts():
    """Two network namespaces that a pair of interfaces connects."""
    if not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("needs iproute2's ip and util-linux' unshare")
    names = [f"robustsweep-{name}-{os.getpid()}" for name in ("head", "driver")]
    try:
        for name in names:
            ip("netns", "add", name)
    except subprocess.CalledProcessError as refused:
        pytest.skip(f"may not make network namespaces: {refused.stderr.decode().strip()}")
    try:
        ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for name, address in zip(names, (HEAD, DRIVER), strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                ip("-n", name, "link", "set", interface, "up")
            ip("-n", name, "route", "add", "default", "dev", "eth0")  # by it Ray finds its own address
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def start(host: str, script: str, log: Path) -> subprocess.Popen[bytes]:
    """Start a shell in a namespace; whatever it starts ends with it. Its /tmp/ray and /dev/shm are its own."""
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    private = "mkdir -p /tmp/ray && mount -t tmpfs tmpfs /tmp/ray && mount -t tmpfs tmpfs /dev/shm"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {**HEALTH_CHECKS, "RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with log.open("wb") as stream:
        return subprocess.Popen(
            ["ip", "netns", "exec", host, *namespaces, "sh", "-ec", f"{private}\n{script}"],
            cwd=log.parent,
            env=environment,
            stdout=stream,
            stderr=stream,
        )


@pytest.mark.timeout(500)
def test_a_driver_cut_off_until_its_node_is_dead_ends_and_its_command_goes_on(hosts, tmp_path):
    tiny(tmp_path, methods={"at": {}}, search=None, train={**TINY["train"], "epochs": 20_000})
    (tmp_path / "run.py").write_text(RUN)
    logs = [tmp_path / "head.log", tmp_path / "driver.log"]
    words = f"--study tiny.yaml --store store --out reports --logger none --yes --address {HEAD}:6379"
    join = f"until {START} --address={HEAD}:6379 --num-cpus=0; do sleep 1; done"
    run = f"{sys.executable} run.py {words}"
    processes = [start(hosts[0], f"{START} --head --port=6379 --num-cpus=1 --include-dashboard=false --block", logs[0])]

    def wait_for(condition: Callable[[], object], seconds: float) -> None:
        end = time.monotonic() + patience(seconds)
        while not condition():
            assert processes[-1].poll() is None and time.monotonic() < end, "".join(log.read_text() for log in logs)
            time.sleep(0.2)

    def checkpoints(since: float = 0.0) -> list[Path]:
        return [path for path in tmp_path.glob("store/trials/*/resume.pt") if path.stat().st_mtime > since]

    try:
        processes.append(start(hosts[1], f"{join}\n{run} || echo exit code $?\n{join}\nexec {run}", logs[1]))
        wait_for(checkpoints, 150)
        ip("-n", hosts[1], "link", "set", "eth0", "down")
        time.sleep(10)  # the head gives a node 5 s; the driver waits twice as long for the head
        ip("-n", hosts[1], "link", "set", "eth0", "up")
        ip("-n", hosts[1], "route", "add", "default", "dev", "eth0")
        wait_for(lambda: "exit code" in logs[1].read_text(), 100)
        ended = time.time()
        wait_for(lambda: checkpoints(ended), 150)  # devices that the first driver held to the end are free
    finally:
        for process in processes:
            process.kill()  # and with it its namespace
            process.wait()
    output = logs[1].read_text()
    assert "exit code 1\n" in output and "Traceback" not in output, output
    assert f"the driver's node ({DRIVER}) as dead for" in output, output
    assert "to go on: python -m sweep.run --study" in output.split("exit code")[0].splitlines()[-1]
