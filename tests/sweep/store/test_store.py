"""The store keeps files whole, in a folder and behind s3://."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sweep.errors import UserError
from sweep.store.folder import FolderStore
from sweep.store.opening import existing_store, open_store
from sweep.store.records.trial import TrialRecord


def test_bytes_come_back_and_listings_are_complete(store):
    store.write("b/2", b"two")
    store.write("b/c/3", b"three")
    store.write("a", b"one")
    store.write("a", b"one again")
    assert store.read("a") == b"one again" and store.exists("b/2") and not store.exists("b")
    assert store.paths() == ["a", "b/2", "b/c/3"]
    assert store.paths("b") == store.paths("b/") == ["b/2", "b/c/3"] and store.paths("none") == []
    assert {(entry.path, entry.size) for entry in store.entries("b")} == {("b/2", 3), ("b/c/3", 5)}
    assert list(store.read_many(["b/2", "none", "a"])) == [("b/2", b"two"), ("a", b"one again")]
    store.delete("a")
    store.delete("a")
    assert not store.exists("a")
    with pytest.raises(FileNotFoundError):
        store.read("a")


def test_paths_cannot_leave_the_store(store):
    for path in ("../x", "/etc/passwd", "a/../../x"):
        with pytest.raises(ValueError, match="leaves the store"):
            store.write(path, b"")


def test_files_go_in_and_come_out_whole(store, tmp_path):
    source = tmp_path / "weights"
    source.write_bytes(os.urandom(300_000))
    store.push_file(source, "trials/x/last.safetensors")
    store.write("trials/x/log.txt", b"hello")
    fetched = store.fetch_folder("trials/x", tmp_path / "scratch")
    assert sorted(path.name for path in fetched) == ["last.safetensors", "log.txt"]
    assert (tmp_path / "scratch/last.safetensors").read_bytes() == source.read_bytes()
    if isinstance(store, FolderStore):
        store.push_file(store.local("trials/x/log.txt"), "trials/x/log.txt")
        assert store.read("trials/x/log.txt") == b"hello"


def test_only_one_of_many_creates_a_path(store):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: store.create("only", str(number).encode()), range(24)))
    assert sum(made) == 1
    assert store.read("only") == str(made.index(True)).encode()


WRITER = """
import sys
from sweep.store.opening import open_store
from tests.records import trial_record
store, number = open_store(sys.argv[1]), 0
print("ready", flush=True)
while True:
    number += 1
    store.write_record(trial_record(steps=number, reason="y" * 200_000))
"""


def test_a_writer_killed_at_any_moment_leaves_a_whole_record(tmp_path):
    store = open_store(tmp_path)
    for delay in (0.0, 0.003, 0.011, 0.02):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        writer.stdout.readline()
        while not store.record_paths(TrialRecord):
            time.sleep(0.001)
        time.sleep(delay)
        writer.kill()
        writer.wait()
        (path,) = store.paths()
        assert len(store.record(TrialRecord, path).reason or "") == 200_000


def test_addresses_that_cannot_be_stores_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for uri, expected in (
        (tmp_path / "file", "is a file"),
        ("gs://bucket/x", "only folders and s3://"),
        ("s3://", "no bucket"),
        ("s3://bucket/x?endpoint=1", "unknown option 'endpoint'"),
    ):
        with pytest.raises(UserError, match=expected):
            open_store(uri)
    with pytest.raises(UserError, match="does not exist"):
        existing_store(tmp_path / "none")


def test_a_missing_bucket_and_a_dead_service_are_named(endpoint, monkeypatch):
    monkeypatch.setattr("sweep.store.s3.PAUSE_SECONDS", 0.01)
    with pytest.raises(UserError, match="no bucket 'elsewhere'"):
        open_store(f"s3://elsewhere/x?endpoint_override={endpoint}")
    with pytest.raises(UserError, match="could not open the bucket"):
        open_store("s3://results/x?endpoint_override=http://127.0.0.1:9")


def test_a_place_in_a_bucket_where_nothing_is_stored_is_no_store(endpoint):
    address = f"s3://results/misspelt?endpoint_override={endpoint}&region=us-east-1"
    with pytest.raises(UserError, match="there is no store at s3://results/misspelt"):
        existing_store(address)
    open_store(address).write("a", b"")
    assert existing_store(address).paths() == ["a"]


def test_a_folder_with_a_link_outside_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("x")
    store = open_store(tmp_path / "store")
    store.write("a", b"")
    Path(tmp_path / "store/link").symlink_to(tmp_path / "secret")
    assert store.paths() == ["a"]
