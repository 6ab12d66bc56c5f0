"""Rows that were read before: the same frames, and never a row of another record."""

import os
import shutil

import pytest
from hand_made import QuickStore, add_evaluation, add_study, add_trial

from reports import write_reports
from reports.store.cache import RowCache
from reports.store.load import load
from sweep.store import layout
from sweep.store.records.trial import TrialRecord


@pytest.fixture
def store(tmp_path):
    return QuickStore(tmp_path / "store")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "out" / "rows"


def same(one, other) -> bool:
    frames = one.cells.equals(other.cells) and one.evaluations.equals(other.evaluations)
    return frames and one.problems == other.problems


def read_again(monkeypatch) -> list[str]:
    """The paths of what is read from now on, manifests aside."""
    paths = []
    read = QuickStore.read

    def noted(self, path):
        if not path.startswith("studies/"):
            paths.append(path)
        return read(self, path)

    monkeypatch.setattr(QuickStore, "read", noted)
    return paths


def test_the_frames_are_the_same_with_and_without_it_and_nothing_is_read_twice(store, folder, monkeypatch):
    trials = add_study(store, "one", {"at": [0.48, None], "sovr": [0.5, 0.4]}, statuses={("sovr", 1): "collapsed"})
    add_trial(store, trials["at", 0], metrics={"loss": 0.25}, log=("a", "b"))
    add_evaluation(store, trials["at", 0], "fgsm", 0.6, clean=None, warnings=("zero gradients",))
    plain, first = load(store), load(store, cache=folder)
    read = read_again(monkeypatch)
    later = load(store, cache=folder)
    assert same(plain, first) and same(plain, later) and not read
    shutil.rmtree(folder)
    assert same(plain, load(store, cache=folder)) and read


def test_a_changed_record_is_read_again_and_no_other(store, folder, monkeypatch):
    trials = add_study(store, "one", {"at": [0.48, 0.49, 0.5]})
    load(store, cache=folder)
    longer, later = (layout.trial_record(trials["at", seed]) for seed in (0, 1))
    facts = os.stat(store.root / longer)
    add_trial(store, trials["at", 0], device="another device")
    os.utime(store.root / longer, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    os.utime(store.root / later, (1, 1))
    read = read_again(monkeypatch)
    found = load(store, cache=folder)
    assert sorted(read) == sorted([longer, later])
    assert list(found.cells["device"]) == ["another device", "cpu", "cpu"]
    assert same(found, load(store))


def test_a_vanished_record_disappears_and_a_broken_one_stays_a_problem(store, folder):
    trials = add_study(store, "one", {"at": [0.48, 0.49]})
    load(store, cache=folder)
    store.delete(layout.trial_record(trials["at", 0]))
    store.write(layout.trial_record(trials["at", 1]), b"{")
    for _ in range(2):
        found = load(store, cache=folder)
        assert list(found.cells["status"]) == ["missing", "missing"] and len(found.problems) == 1
    for path in store.paths("evaluations"):
        store.delete(path)
    assert load(store, cache=folder).evaluations.empty


@pytest.mark.parametrize("damage", ["empty", "cut", "text"])
def test_a_damaged_file_is_ignored_and_replaced(store, folder, monkeypatch, damage):
    add_study(store, "one", {"at": [0.48]})
    load(store, cache=folder)
    for path in folder.iterdir():
        content = path.read_bytes()
        path.write_bytes({"empty": b"", "cut": content[: len(content) // 2], "text": b"PAR1 no PAR1"}[damage])
    assert same(load(store, cache=folder), load(store))
    read = read_again(monkeypatch)
    assert same(load(store, cache=folder), load(QuickStore(store.root))) and len(read) == 4  # by the one without


def test_no_flipped_bit_becomes_another_number(store, folder):
    add_study(store, "one", {"at": [0.48]})
    plain = load(store, cache=folder)
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for place in range(0, len(content), len(content) // 40):
            path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
            assert same(load(store, cache=folder), plain), (path.name, place)


def test_rows_of_another_store_are_not_taken(store, folder, tmp_path):
    add_study(store, "one", {"at": [0.48]})
    load(store, cache=folder)
    other = QuickStore(tmp_path / "other")
    shutil.copytree(store.root, other.root)  # times and sizes as in the first
    path = next(other.root.glob("trials/*/record.json"))
    facts = os.stat(path)
    record = next(other.records(TrialRecord, other.paths("trials")))
    other.write_record(record.model_copy(update={"device": "gpu"}))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert path.stat().st_size == facts.st_size
    assert list(load(other, cache=folder).cells["device"]) == ["gpu"]


def test_where_nothing_can_be_written_the_records_are_read(store, tmp_path):
    add_study(store, "one", {"at": [0.48]})
    (tmp_path / "file").write_text("")
    assert same(load(store, cache=tmp_path / "file" / "rows"), load(store))
    assert (tmp_path / "file").read_text() == ""


def test_a_full_disk_leaves_no_half_file(store, folder, monkeypatch):
    add_study(store, "one", {"at": [0.48]})

    def full(table, where, **_):
        where.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("reports.store.cache.pq.write_table", full)
    assert same(load(store, cache=folder), load(store))
    assert not list(folder.iterdir())


def test_without_a_folder_nothing_is_kept(store):
    add_study(store, "one", {"at": [0.48]})
    before = store.paths()
    assert RowCache(None).folder is None and same(load(store), load(store))
    assert store.paths() == before


def test_tables_are_the_same_from_kept_rows(store, tmp_path):
    add_study(store, "one", {"at": [0.48, 0.482], "sovr": [0.5, 0.51]})
    first = [path.read_bytes() for path in write_reports(store.uri, None, tmp_path / "out", figures=False)]
    assert (tmp_path / "out" / ".records").is_dir()
    assert first == [path.read_bytes() for path in write_reports(store.uri, None, tmp_path / "out", figures=False)]


def test_no_planted_link_is_followed_in_the_cache(store, folder, tmp_path):
    add_study(store, "one", {"at": [0.48]})
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("mine")
    (folder / "trial.tmp").symlink_to(tmp_path / "secret")
    load(store, cache=folder)
    assert (tmp_path / "secret").read_text() == "mine" and not (folder / "trial.parquet").is_symlink()
