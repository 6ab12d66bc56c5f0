"""A store that does not answer is waited for; budgets are kept in it over drivers."""

import pytest

from sweep.store import layout, patient
from sweep.store.encoding import BrokenRecord, encode
from sweep.store.folder import FolderStore
from sweep.store.opening import open_store
from sweep.store.patient import PatientStore, StoreGone
from sweep.store.usage import Budget, budget_left, usages


class Failing(FolderStore):
    """Every call fails so many times."""

    left = 0

    def _place(self, path):
        if self.left:
            self.left -= 1
            raise OSError(5, "Input/output error")
        return super()._place(path)


@pytest.fixture
def clock(monkeypatch):
    """No test waits: sleeping moves the clock."""
    now = [0.0]
    monkeypatch.setattr(patient.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(patient.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def test_a_store_that_comes_back_has_lost_nothing(tmp_path, clock):
    said = []
    inner = Failing(tmp_path)
    store = PatientStore(inner, said.append)
    store.write("a/b", b"1")
    for call in (
        lambda: store.read("a/b"),
        lambda: store.exists("a/b"),
        lambda: store.paths("a"),
        lambda: store.create("a/c", b"2"),
        lambda: list(store.read_many(["a/b", "a/none"])),
        lambda: store.delete("a/c"),
    ):
        inner.left = 9
        call()
        assert inner.left == 0
    assert 60 < clock[0] < 6 * 300 and "does not answer" in said[0] and said[1] == "the store answers again"
    with pytest.raises(FileNotFoundError):  # that is an answer
        store.read("a/none")


def test_after_five_minutes_it_is_given_up_with_one_message(tmp_path, clock):
    inner = Failing(tmp_path)
    inner.left = 10**6
    with pytest.raises(StoreGone, match="has not answered for 5 minutes: .*Input/output error"):
        PatientStore(inner).read("a/b")
    assert 280 < clock[0] <= 300


def test_who_was_asked_to_stop_does_not_wait(tmp_path, clock):
    inner = Failing(tmp_path)
    inner.left = 10**6
    with pytest.raises(StoreGone):
        PatientStore(inner, stopping=lambda: True).read("a/b")
    assert clock[0] == 0


def test_a_budget_holds_over_drivers_at_once_and_one_after_the_other(tmp_path, capsys):
    store, busy = open_store(tmp_path), {"first": 0.0, "second": 0.0}
    first = Budget(store, "tiny", 1.0, lambda: busy["first"])
    second = Budget(store, "tiny", 1.0, lambda: busy["second"])
    busy.update(first=1800.0, second=1700.0)
    assert first.may_start() and second.may_start()
    first.write()
    second.write()
    busy["second"] = 1900.0
    assert not second.may_start() and first.may_start()  # the first one looks again within a minute
    second.write()
    first.write()
    assert not first.may_start()
    after = Budget(store, "tiny", 1.0, lambda: 0.0)  # a requeued job
    assert not after.may_start() and Budget(store, "tiny", 2.0, lambda: 0.0).may_start()
    assert Budget(store, "other", 1.0, lambda: 0.0).may_start()
    used, left = budget_left(usages(store, "tiny"))
    assert used == pytest.approx(3700 / 3600) and left == 0.0
    broken = encode({"driver": "a", "device_seconds": 12.0}).replace(b"12.0", b"92.0")
    for name, content in {"cut": b"{", "flipped": broken, "other": encode({"pid": 3})}.items():
        store.write(layout.usage("tiny", name), content)
    faults: list[BrokenRecord] = []
    assert len(usages(store, "tiny", faults.append)) == 2
    assert [fault.path for fault in faults] == [layout.usage("tiny", name) for name in ("cut", "flipped", "other")]
    store.write(layout.usage("tiny", "before"), b'{"driver": "b", "device_seconds": 3600.0}')
    assert len(usages(store, "tiny", faults.append)) == 3  # it is from before there were checksums
    assert not Budget(store, "tiny", 2.0, lambda: 0.0).may_start()
    assert "usage/tiny/flipped.json: its checksum" in capsys.readouterr().err
