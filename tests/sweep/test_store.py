"""The store keeps its promises in a folder and behind s3://: whole, checked, and one holder per claim."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sweep.errors import UserError
from sweep.store.base import BrokenRecord, FolderStore, Store, open_store

TRIAL = "ab" * 32
PLACE = TRIAL[:16]


@pytest.fixture(scope="module")
def endpoint():
    moto = pytest.importorskip("moto.server", reason="needs moto's S3 server (the dev extra)")
    boto3 = pytest.importorskip("boto3")
    patch = pytest.MonkeyPatch()
    patch.setenv("AWS_ACCESS_KEY_ID", "test")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    boto3.client("s3", endpoint_url=address, region_name="us-east-1").create_bucket(Bucket="results")
    yield address
    server.stop()
    patch.undo()


@pytest.fixture(params=["folder", "s3"])
def store(request, tmp_path) -> Store:
    if request.param == "folder":
        return open_store(tmp_path / "store")
    address = request.getfixturevalue("endpoint")
    return open_store(f"s3://results/{tmp_path.name}?endpoint_override={address}&region=us-east-1")


def record(status: str = "done", **more) -> dict:
    return {"kind": "trial", "trial": TRIAL, "status": status, **more}


def test_bytes_come_back_and_listings_are_complete(store):
    store.write("b/2", b"two")
    store.write("b/c/3", b"three")
    store.write("a", b"one")
    store.write("a", b"one again")
    assert store.read("a") == b"one again" and store.exists("b/2") and not store.exists("b")
    assert store.list() == ["a", "b/2", "b/c/3"]
    assert store.list("b") == store.list("b/") == ["b/2", "b/c/3"] and store.list("none") == []
    assert {(entry.path, entry.size) for entry in store.entries("b")} == {("b/2", 3), ("b/c/3", 5)}
    store.delete("a")
    store.delete("a")
    assert not store.exists("a")
    with pytest.raises(FileNotFoundError):
        store.read("a")


def test_paths_cannot_leave_the_store(store):
    for path in ("../x", "/etc/passwd", "a/../../x"):
        with pytest.raises(ValueError, match="leaves the store"):
            store.write(path, b"")


def test_a_changed_record_is_noticed_and_a_reformatted_one_is_not_refused(store):
    store.write_json("x.json", {"b": 1.5, "a": "ä", "z": [1, 2]})
    assert {k: v for k, v in store.read_json("x.json").items() if k != "sha256"} == {"b": 1.5, "a": "ä", "z": [1, 2]}
    data = store.read("x.json")
    store.write("x.json", json.dumps(json.loads(data), indent=4).encode())
    assert store.read_json("x.json")["b"] == 1.5
    for wrong in (data.replace(b"1.5", b"1.6"), data[:-5], b"", b"[]", b'{"a": 1}', b"\xff\xfe"):
        store.write("x.json", wrong)
        with pytest.raises(BrokenRecord) as caught:
            store.read_json("x.json")
        assert caught.value.path == "x.json"


def test_a_collapsed_trials_nan_is_stored_as_null_and_infinity_as_text(store):
    store.write_json("x.json", {"curve": [{"loss": float("nan")}], "Lambda": float("inf")})
    found = store.read_json("x.json")
    assert found["curve"] == [{"loss": None}] and found["Lambda"] == "inf"


def test_states_come_from_the_listing_and_follow_the_record(store):
    assert store.trial_states() == {} and store.trial_record(TRIAL) is None
    store.write(f"trials/{PLACE}/resume.pt", b"half way")
    assert store.trial_states() == {}
    for status in ("failed", "done", "collapsed", "done"):
        store.write_trial_record(record(status))
        assert store.trial_states() == {PLACE: status} and store.trial_record(TRIAL)["status"] == status


def test_a_damaged_record_in_a_folder_is_broken_and_not_done(tmp_path):
    store = open_store(tmp_path)
    store.write_trial_record(record(checkpoints={"last": {"sha256": "c" * 64}}, curve=[{"epoch": 0}] * 50))
    path = f"trials/{PLACE}/record.json"
    whole = store.read(path)
    assert store.trial_states() == {PLACE: "done"}
    for damaged in (
        b"",
        whole[:-1],
        whole[: len(whole) // 2],
        whole.replace(b"epoch", b"epock", 1),
        b"\0" * len(whole),
    ):
        store.write(path, damaged)
        assert store.trial_states() == {PLACE: "broken"}
    store.write(path, json.dumps(json.loads(whole), indent=1).encode())
    assert store.trial_states() == {PLACE: "done"}


def test_a_broken_record_is_named_and_the_others_are_read(store):
    store.write_trial_record(record())
    store.write("trials/0000000000000000/record.json", b"{")
    with pytest.raises(BrokenRecord):
        list(store.trial_records())
    broken: list[BrokenRecord] = []
    assert [found["trial"] for found in store.trial_records(broken)] == [TRIAL]
    assert [fault.path for fault in broken] == ["trials/0000000000000000/record.json"]


@pytest.mark.parametrize("depth", [900, 200_000])
def test_a_record_nested_without_end_is_broken(tmp_path, depth):
    store = open_store(tmp_path)
    store.write(f"trials/{PLACE}/record.json", b'{"sha256": "c", "a":' + b"[" * depth + b"]" * depth + b"}")
    with pytest.raises(BrokenRecord):
        store.trial_record(TRIAL)
    assert store.trial_states() == {PLACE: "broken"}


def test_finished_evaluations_are_told_from_shards(store):
    store.write_json(f"evaluations/{PLACE}/best_test/pgd-20.json", {"kind": "evaluation"})
    store.write_json(f"evaluations/{PLACE}/best_test/pgd-20/shard-0-99.json", {"kind": "shard"})
    assert [found["kind"] for found in store.evaluation_records(TRIAL)] == ["evaluation"]
    assert len(list(store.evaluation_records())) == 1


def test_broken_results_of_a_folder_are_found_and_reformatted_ones_are_not(tmp_path):
    store = open_store(tmp_path)
    good, cut, spaced = (f"evaluations/{PLACE}/last/{name}.json" for name in ("good", "cut", "spaced"))
    margins = f"diagnostics/{PLACE}/last-8_255-all.json"
    for path in (good, cut, spaced, margins):
        store.write_json(path, {"kind": "evaluation", "verdicts": "A" * 400})
    store.write(cut, store.read(cut)[:200])
    store.write(spaced, json.dumps(json.loads(store.read(spaced)), indent=1).encode())
    store.write(margins, b"")
    store.write(f"diagnostics/{PLACE}/last-8_255-all.npz", b"no record")
    assert store.broken_results() == [cut, margins]


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


def test_a_claim_has_one_holder_until_it_is_released(store):
    claim = store.claim("trials-x", 30)
    assert claim is not None and store.claim("trials-x", 30) is None and set(store.claims()) == {"trials-x"}
    with store.claim("trials-y", 30):
        assert set(store.claims()) == {"trials-x", "trials-y"}
    claim.release()
    assert store.claims() == {} and store.list("claims") == []
    assert (again := store.claim("trials-x", 30)) is not None
    again.release()


def test_a_heartbeat_keeps_a_claim_beyond_its_lease(store):
    with store.claim("x", 3.0):
        time.sleep(4.0)
        assert store.claim("x", 30) is None


def test_an_expired_claim_of_another_machine_is_taken_over_once(store):
    facts = {"host": "elsewhere", "pid": 1, "owner": "o", "expires": time.time() - 1}
    store.create("claims/x.1.json", json.dumps(facts).encode())
    with ThreadPoolExecutor(8) as pool:
        taken = [claim for claim in pool.map(lambda _: store.claim("x", 30), range(16)) if claim]
    assert len(taken) == 1
    taken[0].release()
    assert store.list("claims") == []


def test_a_live_claim_of_another_machine_is_respected(store):
    facts = {"host": "elsewhere", "pid": 1, "owner": "o", "expires": time.time() + 60}
    store.create("claims/x.3.json", json.dumps(facts).encode())
    assert store.claim("x", 30) is None


def test_a_claim_that_is_just_being_written_counts_as_held(store):
    store.create("claims/x.1.json", b"")
    assert store.claim("x", 30) is None


def test_claim_and_release_at_full_speed_never_have_two_holders(store):
    inside, most, taken = 0, 0, 0
    lock = threading.Lock()

    def work(_: int) -> None:
        nonlocal inside, most, taken
        for _ in range(6):
            claim = store.claim("x", 30)
            if claim is None:
                continue
            with lock:
                inside += 1
                taken += 1
                most = max(most, inside)
            time.sleep(0.002)
            with lock:
                inside -= 1
            claim.release()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert most == 1 and taken >= 1


HOLDER = """
import sys, time
from sweep.store.base import open_store
claim = open_store(sys.argv[1]).claim("x", 3600)
print("held" if claim else "none", flush=True)
time.sleep(60)
"""


def test_the_claim_of_a_killed_process_on_this_machine_is_free_at_once(tmp_path):
    store = open_store(tmp_path)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    assert store.claim("x", 30) is None
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (claim := store.claim("x", 30)) is not None
    claim.release()


WRITER = """
import os, sys
from sweep.store.base import open_store
store, number = open_store(sys.argv[1]), 0
print("ready", flush=True)
while True:
    number += 1
    store.write_json("x.json", {"number": number, "filler": "y" * 200_000})
"""


def test_a_writer_killed_at_any_moment_leaves_a_whole_record(tmp_path):
    store = open_store(tmp_path)
    for delay in (0.0, 0.003, 0.011, 0.02):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        writer.stdout.readline()
        while not store.exists("x.json"):
            time.sleep(0.001)
        time.sleep(delay)
        writer.kill()
        writer.wait()
        assert len(store.read_json("x.json")["filler"]) == 200_000
        assert store.list() == ["x.json"]


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


def test_a_missing_bucket_and_a_dead_service_are_named(endpoint):
    with pytest.raises(UserError, match="no bucket 'elsewhere'"):
        open_store(f"s3://elsewhere/x?endpoint_override={endpoint}")
    with pytest.raises(UserError, match="could not open the bucket"):
        open_store("s3://results/x?endpoint_override=http://127.0.0.1:9")


def test_a_folder_with_a_link_outside_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("x")
    store = open_store(tmp_path / "store")
    store.write("a", b"")
    Path(tmp_path / "store/link").symlink_to(tmp_path / "secret")
    assert store.list() == ["a"]
