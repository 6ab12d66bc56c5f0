"""A lease has one holder at a time, whatever happens to its holder or lies in its way."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from sweep.store import layout, lease_upkeep, leases, process
from sweep.store.folder import FolderStore
from sweep.store.lease_upkeep import abandoned, busy, delete_abandoned, give_back, held
from sweep.store.leases import LeaseLost, take
from sweep.store.manifests import alone
from sweep.store.opening import open_store
from tests.patience import patience

FIRST = layout.lease("x", 1)
THEIR_ID = "0" * 32


def holder(expires: float, **changes) -> bytes:
    """A lease file as a process of another machine writes it."""
    facts = {"id": THEIR_ID, "host": "elsewhere", "pid": 1, "expires": expires, **changes}
    return json.dumps(facts).encode()


def dead_lease(store, name: str, part: int | str = 1, **changes) -> None:
    """A lease as left by a process of this machine that was killed."""
    here = {"host": process.host(), "pid": os.getpid(), "started": "another process"}
    store.create(layout.lease(name, part), holder(time.time() + 60, **here, **changes))


@pytest.fixture
def clock(monkeypatch):
    """Moves the clock by which leases are watched; threads that renew them still wait in real time."""
    elapsed, ahead = leases.elapsed, [0.0]
    monkeypatch.setattr(leases, "elapsed", lambda: elapsed() + ahead[0])

    def later(seconds: float) -> None:
        ahead[0] += seconds

    return later


def test_a_lease_has_one_holder_until_it_is_released(store):
    lease = take(store, "trials-x", 30)
    assert lease is not None and take(store, "trials-x", 30) is None and set(held(store)) == {"trials-x"}
    assert held(store)["trials-x"].pid == os.getpid()
    with take(store, "trials-y", 30):
        assert set(held(store)) == set(busy(store)) == {"trials-x", "trials-y"}
    lease.release()
    assert held(store) == {} and store.paths(layout.LEASES) == []
    assert (again := take(store, "trials-x", 30)) is not None
    again.release()


def test_a_heartbeat_keeps_a_lease_beyond_its_end(store):
    with take(store, "x", 3.0):
        assert take(store, "x", 30) is None  # from here on it is watched
        time.sleep(4.0)
        assert take(store, "x", 30) is None


def test_an_expired_lease_of_another_machine_is_taken_over_once(store):
    store.create(FIRST, holder(time.time() - 1, seconds=0.3))
    assert take(store, "x", 30) is None  # seen for the first time: its holder may be alive, with another clock
    time.sleep(0.4)
    with ThreadPoolExecutor(8) as pool:
        taken = [lease for lease in pool.map(lambda _: take(store, "x", 30), range(16)) if lease]
    assert len(taken) == 1 and set(busy(store)) == {"x"}
    taken[0].release()
    assert store.paths(layout.LEASES) == []


def test_a_lease_that_was_taken_over_is_respected(store):
    """A takeover leaves the file of the holder before."""
    store.create(FIRST, holder(0.0))
    store.create(layout.lease("x", THEIR_ID), holder(time.time() + 60, id="1" * 32))
    assert take(store, "x", 30) is None


def test_a_lease_is_taken_over_as_often_as_its_holders_die(store):
    dead_lease(store, "x")
    for number in range(1, 4):
        assert (lease := take(store, "x", 30)) is not None and len(lease.paths) == number + 1
        assert take(store, "x", 30) is None
        lease._stop.set()  # as if it were killed: the process of its file ends
        dead_lease_again = json.loads(store.read(lease.paths[-1])) | {"started": "another process"}
        store.write(lease.paths[-1], json.dumps(dead_lease_again).encode())
    with take(store, "x", 30):
        assert len(store.paths(layout.LEASES)) == 5
    assert store.paths(layout.LEASES) == []


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_clock_that_is_hours_off_neither_frees_a_live_lease_nor_keeps_a_dead_one(tmp_path, hours, clock):
    """The holder renews by its own clock, which is hours behind ours or ahead of it."""
    store, theirs = open_store(tmp_path), time.time() + 3600 * hours
    store.create(FIRST, holder(theirs))
    for renewal in range(1, 5):
        assert take(store, "x") is None
        clock(40.0)
        store.write(FIRST, holder(theirs + renewal))
    assert take(store, "x") is None and set(busy(store)) == {"x"}  # alive 160 s after the first look
    clock(61.0)
    assert busy(store) == {}
    with take(store, "x") as lease:
        assert lease is not None


class Absent(FolderStore):
    """A store that does not answer while `away` is set."""

    away = False

    def write(self, path, data):
        if self.away:
            raise OSError(5, "Input/output error")
        super().write(path, data)


@pytest.mark.parametrize("taken", [False, True])
def test_a_lease_whose_renewals_failed_is_lost_only_if_another_has_taken_it(tmp_path, taken):
    store = Absent(tmp_path)
    lease = take(store, "x", 0.6)
    store.away = True
    time.sleep(1.0)
    lease.check()  # nobody could have taken it
    theirs = layout.lease("x", lease.holder.id)
    if taken:
        open_store(tmp_path).create(theirs, holder(time.time() + 60))
    store.away = False
    end = time.monotonic() + patience(5)
    while time.monotonic() < end and lease._thread.is_alive() and (taken or leases.elapsed() - lease._renewed > 0.6):
        time.sleep(0.05)
    if taken:
        with pytest.raises(LeaseLost, match="x"):
            lease.check()
    lease.release()
    assert set(store.paths(layout.LEASES)) == ({FIRST, theirs} if taken else set())  # what another holds is left to it


class Interrupted(FolderStore):
    """Something happens right before or right after a lease is taken over by this store."""

    def __init__(self, root, act, after):
        super().__init__(root)
        self.act, self.after = act, after

    def create(self, path, data):
        if path == FIRST:
            return super().create(path, data)
        if not self.after:
            self.act()
        created = super().create(path, data)
        if self.after:
            self.act()
        return created


def renewed(store):
    store.write(FIRST, holder(time.time() + 60, seconds=0.2))


def released(store):
    store.delete(FIRST)


def released_and_taken(store):
    store.delete(FIRST)
    store.create(FIRST, holder(time.time() + 60, id="2" * 32))


def released_by_another(store):
    """Another took it over, did its work and released it: nothing is left of it."""
    assert (lease := take(open_store(store.root), "x", 30)) is not None
    lease.release()


def taken_over(store):
    store.create(layout.lease("x", THEIR_ID), holder(time.time() + 60, id="2" * 32))


BEFORE = [(change, False) for change in (renewed, released, released_and_taken, released_by_another, taken_over)]
AFTER = [(change, True) for change in (renewed, released, released_and_taken)]


@pytest.mark.parametrize(("change", "after"), BEFORE + AFTER)
def test_whoever_takes_over_by_an_old_view_notices_and_yields(tmp_path, change, after, clock):
    plain = open_store(tmp_path)
    store = Interrupted(tmp_path, lambda: change(plain), after)
    plain.create(FIRST, holder(1.0))
    assert take(plain, "x") is None
    clock(61.0)
    assert take(store, "x") is None
    theirs = {renewed: [FIRST], released_and_taken: [FIRST], taken_over: [layout.lease("x", THEIR_ID), FIRST]}
    assert sorted(plain.paths(layout.LEASES)) == sorted(theirs.get(change, []))


def test_a_holder_that_slept_through_its_lease_gives_way_to_the_next_one(tmp_path, clock):
    store = open_store(tmp_path)
    mine = take(store, "x", 30.0)
    mine._stop.set()
    clock(40.0)
    other = leases.Lease(store, "x", [FIRST, layout.lease("x", mine.holder.id)], leases.holder_here(30.0))
    store.create(other.paths[-1], other.holder.encoded())
    mine._renew()
    assert mine.lost and take(store, "x") is None
    other.release()
    assert store.paths(layout.LEASES) == []
    mine.lost = False
    mine._renew()  # it sleeps again, until the lease is free, or has a new holder
    assert mine.lost and store.paths(layout.LEASES) == []
    with take(store, "x"):
        mine.lost = False
        mine._renew()
        assert mine.lost and take(store, "x") is None


def test_a_late_release_leaves_the_first_file_to_whoever_takes_over(tmp_path, clock):
    store = open_store(tmp_path)
    lease = take(store, "x", 60)
    clock(50.0)
    lease.release()
    assert store.paths(layout.LEASES) == [FIRST] and held(store) == busy(store) == {}
    with take(store, "x", 30):
        assert take(store, "x", 30) is None
    assert store.paths(layout.LEASES) == []


def test_what_dead_processes_left_is_deleted_unless_it_was_taken_over(store):
    dead_lease(store, "x")
    dead_lease(store, "y")
    store.write(layout.lease("z", 1), holder(0.0))  # given back
    dead_lease(store, "w", THEIR_ID)  # its process was killed while it let go: the first file went first
    listed = [entry.path for entry in abandoned(store, 0.0)]
    assert len(listed) == 4
    with take(store, "x", 30):  # between the listing and the deletion
        delete_abandoned(store, listed, 0.0)
        assert take(store, "x", 30) is None and set(held(store)) == {"x"}
    assert store.paths(layout.LEASES) == []


def test_leases_of_a_worker_that_was_ended_are_free_at_once(store):
    store.create(FIRST, holder(time.time() + 60, owner="trial-1"))
    store.create(layout.lease("y", 1), holder(time.time() + 60, owner="trial-2"))
    assert set(busy(store)) == {"x", "y"}
    give_back(store, {"trial-1"})
    assert set(busy(store)) == {"y"} and store.paths(layout.LEASES) == [layout.lease("y", 1)]
    assert take(store, "y") is None
    with take(store, "y", dead={"trial-2"}):
        assert take(store, "y") is None


def test_a_lease_that_is_just_being_written_counts_as_held(store):
    store.create(FIRST, b"")
    assert take(store, "x", 30) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"id": "o"}',
        holder(1e12, pid="abc"),
        holder(float("nan")),
        holder(float("inf")),
        holder(1e12, id="../../trials"),
    ],
)
def test_what_is_no_lease_keeps_others_away_for_a_moment_only(tmp_path, content, clock):
    store = open_store(tmp_path)
    store.write(FIRST, content)
    assert set(busy(store)) == {"x"} and take(store, "x", 30) is None
    assert set(held(store)) == {"x"} and abandoned(store, 0.0) == []
    long_ago = time.time() - leases.UNFILLED_SECONDS - 1
    os.utime(tmp_path / FIRST, (long_ago, long_ago))
    clock(leases.UNFILLED_SECONDS + 1)
    assert held(store) == busy(store) == {} and [entry.path for entry in abandoned(store, 0.0)] == [FIRST]
    with take(store, "x", 30):
        assert set(held(store)) == {"x"} and take(store, "x", 30) is None
    assert store.paths(layout.LEASES) == []


@pytest.mark.parametrize("content", [b"", b'{"id":"0123","host":"a machi'])
def test_a_lease_that_nobody_can_read_is_waited_for_and_then_removed(tmp_path, content):
    store, path = open_store(tmp_path), layout.lease("evaluations-1", 1)
    store.write(path, content)
    assert abandoned(store, 0.0) == []
    delete_abandoned(store, [path], 0.0)
    assert store.paths(layout.LEASES) == [path]
    long_ago = time.time() - leases.UNFILLED_SECONDS - 1
    os.utime(tmp_path / path, (long_ago, long_ago))
    delete_abandoned(store, [path], 0.0)
    assert store.paths(layout.LEASES) == []


@pytest.mark.parametrize("obstacle", ["folder", "dangling link", "link to itself"])
def test_what_can_never_be_a_lease_is_passed_over(tmp_path, obstacle):
    store, file = open_store(tmp_path), tmp_path / FIRST
    file.parent.mkdir()
    if obstacle == "folder":
        file.mkdir()
    else:
        file.symlink_to(file if obstacle == "link to itself" else tmp_path / "nowhere")
    assert held(store) == {}
    with take(store, "x", 30):
        assert take(store, "x", 30) is None
    lease = take(store, "x", 30)
    assert lease is not None
    lease.release()


class Denying(FolderStore):
    """Carries out what it reports as refused, as a remote store may when an answer is lost and asked for again."""

    def create(self, path, data):
        super().create(path, data)
        return False


@pytest.mark.parametrize("is_free", [True, False])
def test_a_creation_that_was_carried_out_but_reported_as_refused_counts(tmp_path, is_free):
    store = Denying(tmp_path)
    if not is_free:
        dead_lease(store, "x")
    lease = take(store, "x", 30)
    assert lease is not None and take(store, "x", 30) is None and take(open_store(tmp_path), "x", 30) is None
    lease.release()
    assert store.paths(layout.LEASES) == []
    open_store(tmp_path).create(FIRST, holder(time.time() + 60))
    assert take(store, "x", 30) is None


def test_of_two_takers_one_gets_the_lease(store):
    barrier = threading.Barrier(2)

    def at_once(_: int):
        barrier.wait()
        return take(store, "x", 30)

    for _ in range(5):
        dead_lease(store, "x", id=uuid.uuid4().hex)
        with ThreadPoolExecutor(2) as pool:
            taken = [lease for lease in pool.map(at_once, range(2)) if lease]
        assert len(taken) <= 1
        for lease in taken:
            lease.release()
        with take(store, "x", 30):
            assert take(store, "x", 30) is None


@pytest.mark.parametrize("dying", [False, True])
def test_taken_and_released_at_full_speed_it_never_has_two_holders(store, dying):
    """With `dying` some holders leave their lease as a killed process would, so that it has to be taken over."""
    inside, most, taken = 0, 0, 0
    lock, numbers = threading.Lock(), itertools.count(1)

    def work(_: int) -> None:
        nonlocal inside, most, taken
        for _ in range(6):
            lease = take(store, "x", 30)
            if lease is None:
                continue
            with lock:
                inside += 1
                taken += 1
                most = max(most, inside)
            time.sleep(0.002)
            with lock:
                inside -= 1
            if dying and next(numbers) % 2:
                lease._stop.set()
                lease._write(0.0)
            else:
                lease.release()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert most == 1 and taken >= 1


def test_whoever_reads_and_writes_alone_is_waited_for_but_not_for_ever(tmp_path):
    store = open_store(tmp_path)
    seen = []

    def second() -> None:
        with alone(store, "x"):
            seen.append("second")

    with alone(store, "x"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        seen.append("first")
        with alone(store, "x", patience=0.1):
            seen.append("impatient")
    thread.join()
    assert seen == ["first", "impatient", "second"] and held(store) == {}


HOLDER = """
import sys, time
from sweep.store.leases import take
from sweep.store.opening import open_store
lease = take(open_store(sys.argv[1]), "x", 3600)
print("held" if lease else "none", flush=True)
time.sleep(60)
"""


def test_the_lease_of_a_killed_process_on_this_machine_is_free_at_once(tmp_path):
    store = open_store(tmp_path)
    holding = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holding.stdout is not None and holding.stdout.readline() == "held\n"
    assert take(store, "x", 30) is None
    holding.send_signal(signal.SIGKILL)
    holding.wait()
    assert busy(store) == {} and (lease := take(store, "x", 30)) is not None
    lease.release()


SLEEPER = """
import sys, time
from sweep.store.leases import take
from sweep.store.opening import open_store
lease = take(open_store(sys.argv[1]), "x", 1.0)
print("held", flush=True)
while not lease.lost:
    time.sleep(0.05)
print("lost", flush=True)
"""


def test_a_process_that_was_stopped_notices_that_another_has_its_lease(tmp_path):
    store = open_store(tmp_path)
    sleeping = subprocess.Popen([sys.executable, "-c", SLEEPER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert sleeping.stdout is not None and sleeping.stdout.readline() == "held\n"
        sleeping.send_signal(signal.SIGSTOP)
        end, lease = time.monotonic() + patience(20), None
        while lease is None and time.monotonic() < end:
            lease = take(store, "x", 60)
            time.sleep(0.1)
        assert lease is not None
        sleeping.send_signal(signal.SIGCONT)
        assert sleeping.stdout.readline() == "lost\n" and take(store, "x", 60) is None
        lease.release()
        assert store.paths(layout.LEASES) == []
    finally:
        sleeping.kill()
        sleeping.wait()


class Stubborn(FolderStore):
    """A store from which nothing can be deleted."""

    def delete(self, path):
        raise OSError(30, "Read-only file system", path)


def test_a_lease_that_cannot_be_given_back_runs_out_and_is_no_failure(tmp_path, clock):
    take(Stubborn(tmp_path), "x").release()
    store = open_store(tmp_path)
    assert take(store, "x") is None
    clock(61.0)
    with take(store, "x") as lease:
        assert lease is not None


def test_names_of_leases_are_read_off_their_files():
    for part in (1, 12, THEIR_ID):
        assert lease_upkeep.lease_name(layout.lease("evaluations-a-pgd-0.1~clean-0", part)) == (
            "evaluations-a-pgd-0.1~clean-0"
        )
    for path in ("leases/x.json", "leases/x.yes.json", "leases/x/y.1.json", "trials/x.1.json"):
        assert lease_upkeep.lease_name(path) == ""
