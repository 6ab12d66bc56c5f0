"""Settings of the test session: Ray stays on loopback and silent, real data is found through one variable."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray's token and the browser's profile go to the home folder: give them one that is thrown away.
os.environ["HOME"] = tempfile.mkdtemp(prefix="robustsweep-home-")
atexit.register(shutil.rmtree, os.environ["HOME"], ignore_errors=True)

import pytest  # noqa: E402


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real images, the paper's source and the official numbers."""
    folder = os.environ.get("ROBUSTSWEEP_SHARED")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs real data: set ROBUSTSWEEP_SHARED to a folder with data/, paper.tex and oracles.json")
    return Path(folder)
