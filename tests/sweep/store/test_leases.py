"""A lease has one holder at a time, whatever happens to its holder or lies in its way."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sweep.store import holders, layout, leases
from sweep.store.drivers import HeldLeases
from sweep.store.folder import FolderStore
from sweep.store.holders import held
from sweep.store.leases import take
from sweep.store.opening import open_store


def holder(expires: float, **changes) -> bytes:
    return json.dumps({"host": "elsewhere", "pid": 1, "owner": "o", "expires": expires, **changes}).encode()


def test_a_lease_has_one_holder_until_it_is_released(store):
    lease = take(store, "trials-x", 30)
    assert lease is not None and take(store, "trials-x", 30) is None and set(held(store)) == {"trials-x"}
    assert held(store)["trials-x"].pid == os.getpid()
    with take(store, "trials-y", 30):
        assert set(held(store)) == {"trials-x", "trials-y"}
    lease.release()
    assert held(store) == {} and store.paths(layout.LEASES) == []
    assert (again := take(store, "trials-x", 30)) is not None
    again.release()


def test_a_heartbeat_keeps_a_lease_beyond_its_end(store):
    with take(store, "x", 3.0):
        time.sleep(4.0)
        assert take(store, "x", 30) is None


def test_an_expired_lease_of_another_machine_is_taken_over_once(store):
    store.create(layout.lease("x", 1), holder(time.time() - 1, seconds=0.3))
    assert take(store, "x", 30) is None  # seen for the first time: its holder may be alive, with another clock
    time.sleep(0.4)
    with ThreadPoolExecutor(8) as pool:
        taken = [lease for lease in pool.map(lambda _: take(store, "x", 30), range(16)) if lease]
    assert len(taken) == 1
    taken[0].release()
    assert store.paths(layout.LEASES) == []


def test_a_live_lease_of_another_machine_is_respected(store):
    """Whoever took it over left the generations before its own, which keep others away."""
    store.create(layout.lease("x", 1), holder(0.0))
    store.create(layout.lease("x", 2), holder(time.time() + 60, owner="another"))
    assert take(store, "x", 30) is None


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_clock_that_is_hours_off_neither_frees_a_live_lease_nor_keeps_a_dead_one(tmp_path, hours):
    """The holder renews by its own clock, which is hours behind ours or ahead of it."""
    store, theirs = open_store(tmp_path), time.time() + 3600 * hours
    store.create(layout.lease("x", 1), holder(theirs, seconds=0.5))
    for renewal in range(1, 5):
        assert take(store, "x", 30) is None
        time.sleep(0.3)
        store.write(layout.lease("x", 1), holder(theirs + renewal, seconds=0.5))
    assert take(store, "x", 30) is None  # alive 1.2 s after the first look
    time.sleep(0.6)
    with take(store, "x", 30) as lease:
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
    assert not lease.lost  # nobody could have taken it
    if taken:
        open_store(tmp_path).create(layout.lease("x", 2), holder(time.time() + 60))
    store.away = False
    time.sleep(0.5)
    assert lease.lost is taken
    lease.release()
    assert (layout.lease("x", 2) in store.paths(layout.LEASES)) is taken  # what another holds is left to it


def test_names_that_another_has_are_asked_about_by_one_listing(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    mine, others = HeldLeases(store), HeldLeases(store)
    names = [f"trials-{number}" for number in range(20)]
    assert all(others.take(name) for name in names) and not any(mine.take(name) for name in names)
    listings, entries = [], FolderStore.entries
    monkeypatch.setattr(FolderStore, "entries", lambda *words: listings.append(words) or entries(*words))
    assert not mine.look(0.0) and len(listings) == 1 and not any(mine.take(name) for name in names)
    assert not mine.look(60.0) and len(listings) == 1  # it is new enough
    monkeypatch.undo()
    others.release_all()
    assert mine.look(0.0) and mine.take(names[0])
    mine.release_all()
    assert store.paths(layout.LEASES) == []


class Counting(FolderStore):
    """Notes what is asked of it."""

    def __init__(self, root):
        super().__init__(root)
        self.asked = []

    def write(self, path, data):
        self.asked.append(("write", path))
        super().write(path, data)

    def create(self, path, data):
        self.asked.append(("create", path))
        return super().create(path, data)

    def delete(self, path):
        self.asked.append(("delete", path))
        super().delete(path)

    def read(self, path):
        self.asked.append(("read", path))
        return super().read(path)

    def entries(self, prefix=""):
        self.asked.append(("list", prefix))
        return super().entries(prefix)


def test_a_driver_keeps_all_its_leases_by_one_file_and_asks_twice_for_each(tmp_path):
    store = Counting(tmp_path)
    mine, others = HeldLeases(store, 0.9), HeldLeases(open_store(tmp_path))
    names = [f"trials-{number}" for number in range(20)]
    assert all(mine.take(name) for name in names)
    assert not others.take(names[0]) and not others.take(names[1])
    time.sleep(2.0)
    assert not others.look(0.0) and not others.take(names[0]) and set(held(store)) == set(names)
    mine.release_all()
    of_leases = [kind for kind, path in store.asked if "trials-" in path]
    assert of_leases.count("create") == of_leases.count("delete") == 20 and "write" not in of_leases
    assert others.look(0.0) and others.take(names[0])
    others.release_all()


def dead_driver(store, *names, seconds):
    """As another machine left it."""
    driver = layout.driver_lease("abc")
    store.write(layout.lease(driver, 1), holder(time.time() + 60, seconds=seconds))
    for number, name in enumerate(names):
        store.write(layout.lease(name, 1), holder(1.0, owner=str(number), driver=driver, seconds=seconds))


def test_the_leases_of_a_dead_driver_are_all_free_when_it_has_been_silent_for_long_enough(tmp_path):
    store = open_store(tmp_path)
    dead_driver(store, "x", "y", "z", seconds=0.4)
    mine, third = HeldLeases(store), HeldLeases(store)
    assert not mine.take("x") and set(held(store)) == {"x", "y", "z"}
    time.sleep(0.5)
    assert mine.look(0.0) and mine.take("x") and mine.take("y") and mine.take("z")  # two were never looked at before
    assert not any(third.take(name) for name in "xyz")
    mine.release_all()
    assert not {holders.parts(path)[0] for path in store.paths(layout.LEASES)} & {*"xyz"}
    assert third.look(0.0) and third.take("x")
    third.release_all()


def test_what_is_less_urgent_is_left_by_its_file_alone_until_there_is_nothing_else_to_do(tmp_path):
    store = Counting(tmp_path)
    dead_driver(store, "urgent", "later", seconds=0.4)
    mine = HeldLeases(store)
    mine.expect({"urgent", "free"}, less_urgent={"later", "free later"})
    assert [mine.is_refused(name) for name in ("urgent", "later", "free", "free later")] == [True, True, False, False]
    assert not any(kind == "read" and "later" in path for kind, path in store.asked) and not mine.take("later")
    assert not mine.look(0.0, at_all=True) and mine.is_refused("later")  # read now, and not silent for long enough
    store.asked.clear()
    assert not mine.look(0.0) and not [path for kind, path in store.asked if kind == "read"]  # nothing has changed
    time.sleep(0.5)
    assert mine.look(0.0) and mine.take("later") and mine.take("urgent")
    mine.release_all()


def test_a_lease_whose_drivers_file_was_lost_runs_out_by_itself(tmp_path):
    store = open_store(tmp_path)
    dead_driver(store, "x", seconds=0.4)
    store.delete(layout.lease(layout.driver_lease("abc"), 1))
    mine = HeldLeases(store)
    assert not mine.take("x")
    time.sleep(0.5)
    assert mine.look(0.0) and mine.take("x")
    mine.release_all()


@pytest.mark.parametrize("taken", [(), ("x",)])
def test_a_driver_that_was_silent_loses_what_another_took_and_nothing_else(tmp_path, taken):
    store = Absent(tmp_path)
    mine, other = HeldLeases(store, 0.6), HeldLeases(open_store(tmp_path))
    assert mine.take("x") and mine.take("y")
    monkeypatched = holders.process.host
    holders.process.host = lambda: "another machine"  # whose processes cannot be looked at
    try:
        assert not other.take("x")
        store.away = True
        time.sleep(1.0)
        assert mine.lost() == []  # nobody has taken anything
        if taken:
            assert other.look(0.0) and other.take("x")
    finally:
        holders.process.host = monkeypatched
    store.away = False
    time.sleep(0.5)
    assert mine.lost() == list(taken)
    mine.release_all()
    assert set(held(store)) == set(taken)
    third = HeldLeases(store)
    assert third.take("y") and third.take("x") is not bool(taken)
    third.release_all()
    other.release_all()
    assert held(store) == {}


def dead_lease(store, name: str, generation: int = 1) -> None:
    """As left by a process of this machine that was killed."""
    here = {"host": holders.process.host(), "pid": os.getpid(), "started": "another process"}
    store.create(layout.lease(name, generation), holder(time.time() + 60, **here))


def test_what_dead_processes_left_is_deleted_and_what_was_taken_over_meanwhile_keeps_a_third_away(store):
    dead_lease(store, "x")
    dead_lease(store, "y")
    store.write(layout.lease("z", 1), holder(0.0))  # given back
    dead_lease(store, "w", 2)  # its process was killed while it let go: the first generation went first
    listed = [entry.path for entry in holders.abandoned(store, 0.0)]
    assert len(listed) == 4
    with take(store, "x", 30):  # between the listing and the deletion
        leases.delete_abandoned(store, listed)
        assert take(store, "x", 30) is None and set(held(store)) == {"x"}
    assert store.paths(layout.LEASES) == []


def test_a_lease_that_the_store_wrote_after_its_release_is_still_the_drivers_own(tmp_path):
    store = open_store(tmp_path)
    mine = HeldLeases(store)
    late = holder(time.time() + 60, owner="first try", driver=mine.sign.name)
    store.write(layout.lease("x", 1), late)
    assert not HeldLeases(store).take("x")
    assert mine.take("x")
    mine.release_all()
    assert "x" not in held(store)


def test_another_machines_sign_of_life_is_deleted_once_it_was_seen_to_be_silent(tmp_path):
    store = open_store(tmp_path)
    dead_driver(store, "x", seconds=0.4)
    assert holders.abandoned(store, 0.0) == []
    time.sleep(0.5)
    sign = layout.lease(layout.driver_lease("abc"), 1)
    assert [entry.path for entry in holders.abandoned(store, 0.0)] == [sign]
    leases.delete_abandoned(store, [sign])
    mine = HeldLeases(store)
    assert not mine.take("x")  # watched by itself from now on
    time.sleep(0.5)
    assert mine.look(0.0) and mine.take("x")
    mine.release_all()
    assert store.paths(layout.LEASES) == []


def test_a_lease_that_both_gave_up_is_free_when_its_driver_lets_it_go(tmp_path):
    store = open_store(tmp_path)
    mine, other = HeldLeases(store), HeldLeases(store)
    assert mine.take("x")
    mine._held["x"].lost = True  # it saw another's generation, and that one went because this driver was back
    mine.release("x")
    assert held(store) == {} and other.take("x") and mine.sign.holder.expires
    other.release_all()
    mine.release_all()


def test_drivers_know_of_each_other_as_long_as_they_give_signs_of_life(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    dead_driver(store, seconds=60)
    mine, other = HeldLeases(store), HeldLeases(store)
    assert other.take("x")
    names = sorted([mine.sign.name, other.sign.name])
    assert mine.drivers() == sorted([*names, layout.driver_lease("abc")])
    elapsed = holders.elapsed
    monkeypatch.setattr("sweep.store.drivers.elapsed", lambda: elapsed() + 610.0)
    os.utime(tmp_path / other.sign.path)
    assert mine.drivers() == names
    mine.release_all()
    other.release_all()


def test_a_lease_that_is_just_being_written_counts_as_held(store):
    store.create(layout.lease("x", 1), b"")
    assert take(store, "x", 30) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", holder(1e12, pid="abc"), holder(float("nan")), holder(float("inf")), b"\xff", b'{"owner": "o"}'],
)
def test_what_is_no_lease_keeps_others_away_for_a_moment_only(tmp_path, content):
    store = open_store(tmp_path)
    path = layout.lease("x", 1)
    store.write(path, content)
    assert take(store, "x", 30) is None
    long_ago = time.time() - holders.UNFILLED_SECONDS - 1
    os.utime(tmp_path / path, (long_ago, long_ago))
    assert held(store) == {}
    with take(store, "x", 30):
        assert set(held(store)) == {"x"} and take(store, "x", 30) is None


@pytest.mark.parametrize("obstacle", ["folder", "dangling link", "link to itself"])
def test_what_can_never_be_a_lease_is_passed_over(tmp_path, obstacle):
    store = open_store(tmp_path)
    place = tmp_path / layout.lease("x", 1)
    place.parent.mkdir()
    if obstacle == "folder":
        place.mkdir()
    else:
        place.symlink_to(place if obstacle == "link to itself" else tmp_path / "nowhere")
    assert held(store) == {}
    with take(store, "x", 30):
        assert take(store, "x", 30) is None
    assert take(store, "x", 30) is not None


class Denying(FolderStore):
    """Carries out what it reports as refused, as a remote store may when an answer is lost and asked for again."""

    def create(self, path, data):
        super().create(path, data)
        return False


def test_a_create_that_was_carried_out_but_reported_as_refused_gives_the_lease_to_its_owner(tmp_path):
    store = Denying(tmp_path)
    lease = take(store, "x", 30)
    assert lease is not None and take(store, "x", 30) is None and take(open_store(tmp_path), "x", 30) is None
    lease.release()
    assert store.paths(layout.LEASES) == []
    with open_store(tmp_path).local(layout.lease("x", 1)).open("wb") as file:
        file.write(holder(time.time() + 60))
    assert take(store, "x", 30) is None


def test_of_two_takers_one_gets_the_lease(store):
    barrier = threading.Barrier(2)

    def at_once(_: int):
        barrier.wait()
        return take(store, "x", 30)

    for _ in range(5):
        with ThreadPoolExecutor(2) as pool:
            taken = [lease for lease in pool.map(at_once, range(2)) if lease]
        assert len(taken) <= 1  # both yield when each sees the other's
        for lease in taken:
            lease.release()
        with take(store, "x", 30):
            assert take(store, "x", 30) is None


def test_taken_and_released_at_full_speed_it_never_has_two_holders(store):
    inside, most, taken = 0, 0, 0
    lock = threading.Lock()

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
            lease.release()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert most == 1 and taken >= 1


def test_a_process_that_holds_a_lease_holds_it_once(tmp_path):
    store = open_store(tmp_path)
    mine, others = HeldLeases(store), HeldLeases(store)
    assert mine.take("x") and mine.take("x") and not others.take("x")
    mine.release("x")
    mine.release("x")
    assert others.look(0.0) and others.take("x") and others.take("y") and not mine.take("y")
    mine.release_all()
    others.release_all()
    assert held(store) == {}


def test_whoever_reads_and_writes_alone_is_waited_for_but_not_for_ever(tmp_path):
    store = open_store(tmp_path)
    seen = []

    def second() -> None:
        with leases.alone(store, "x"):
            seen.append("second")

    with leases.alone(store, "x"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        seen.append("first")
        with leases.alone(store, "x", patience=0.1):
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
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    assert take(store, "x", 30) is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (lease := take(store, "x", 30)) is not None
    lease.release()


@pytest.mark.parametrize("content", [b"", b'{"owner":"somebody","host":"a machi'])
def test_a_lease_that_nobody_can_read_is_waited_for_and_then_removed(tmp_path, content):
    store, path = FolderStore(tmp_path), layout.lease("evaluations-1", 1)
    store.write(path, content)
    assert holders.abandoned(store, 0.0) == []
    long_ago = time.time() - holders.UNFILLED_SECONDS - 1
    os.utime(tmp_path / path, (long_ago, long_ago))
    assert [entry.path for entry in holders.abandoned(store, 0.0)] == [path]
    leases.delete_abandoned(store, [path])
    assert store.paths(layout.LEASES) == []
