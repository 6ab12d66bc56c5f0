"""A store of either kind; what is behind s3:// is moto's server on loopback."""

import pytest

from sweep.store.base import Store
from sweep.store.opening import open_store


@pytest.fixture(params=["folder", "s3"])
def store(request, tmp_path) -> Store:
    if request.param == "folder":
        return open_store(tmp_path / "store")
    address = request.getfixturevalue("endpoint")
    return open_store(f"s3://results/{tmp_path.name}?endpoint_override={address}&region=us-east-1")
