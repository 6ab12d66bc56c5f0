"""Settings of the test session: Ray stays on loopback and silent, real data is found through one variable."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray's token and the browser's profile go to the home folder: give them one that is thrown away.
os.environ["HOME"] = tempfile.mkdtemp(prefix="robustsweep-home-")
atexit.register(shutil.rmtree, os.environ["HOME"], ignore_errors=True)

import pytest  # noqa: E402

from tests.patience import patience  # noqa: E402
from trainers.plugins import registry  # noqa: E402

TESTS = Path(__file__).parent
# Files that take longest, first: begun last, one of them would keep the other cores waiting.
LONGEST = (
    "sweep/test_cluster.py",
    "chaos/test_chaos.py",
    "sweep/test_engine.py",
    "sweep/cluster/test_nodes.py",
    "sweep/cluster/test_liveness.py",
    "sweep/cluster/test_faults.py",
    "sweep/cluster/test_loopback.py",
    "sweep/cluster/test_network_cut.py",
    "test_packaging.py",
    "sweep/test_submit.py",
    "sweep/cluster/test_retries.py",
    "test_python_interface.py",
    "reports/test_page_browser.py",
    "sweep/test_cli.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files begin first; time-outs follow the load: those of a test's own mark, and the one of all others."""
    places = {TESTS / name: number for number, name in enumerate(LONGEST)}
    assert all(path.is_file() for path in places), "LONGEST names a file that is no longer there"
    items.sort(key=lambda item: places.get(item.path, len(places)))
    usual = float(config.getini("timeout") or 0)
    for item in items:
        mark = item.get_closest_marker("timeout")
        seconds = float(mark.args[0] if mark and mark.args else usual)
        if seconds:
            item.add_marker(pytest.mark.timeout(patience(seconds)), append=False)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real images, the paper's source and the official numbers."""
    folder = os.environ.get("ROBUSTSWEEP_SHARED")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs real data: set ROBUSTSWEEP_SHARED to a folder with data/, paper.tex and oracles.json")
    return Path(folder)


@pytest.fixture(autouse=True)
def no_plugin_outlives_its_test() -> Iterator[None]:
    yield from _forgetting_plugins()


@pytest.fixture(scope="module", autouse=True)
def no_plugin_outlives_its_file() -> Iterator[None]:
    """What fixtures of a whole file have loaded."""
    yield from _forgetting_plugins()


def _forgetting_plugins() -> Iterator[None]:
    before = set(registry.sources())
    yield
    for name in set(registry.sources()) - before:
        registry.forget(name)


@pytest.fixture(scope="module")
def endpoint():
    """An S3 service on loopback with the bucket `results`."""
    moto = pytest.importorskip("moto.server", reason="needs moto's S3 server (the dev extra)")
    boto3 = pytest.importorskip("boto3")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        boto3.client("s3", endpoint_url=address, region_name="us-east-1").create_bucket(Bucket="results")
        yield address
    server.stop()


@pytest.fixture(autouse=True)
def own_ray_secrets() -> Iterator[None]:
    """A command that was told of a cluster's token leaves it in the environment, and the next Ray would ask for it."""
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    before = {name: os.environ.get(name) for name in names}
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
