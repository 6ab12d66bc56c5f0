"""A study's searches in its store: broken, begun elsewhere, taken up again."""

import pytest

from sweep.search.stored import open_search, settings_of, stored_search
from sweep.store import layout
from sweep.store.encoding import BrokenRecord
from sweep.store.opening import open_store
from sweep.trials.cells import chosen_values
from sweep.trials.identity import search_id
from sweep.work.pieces import Candidate, Training, trial_metrics
from sweep.work.queue import Queue
from tests import records
from tests.sweep.tiny_study import tiny


@pytest.mark.parametrize("way_out", ["deleted", "set aside", "nothing done"])
def test_a_broken_search_is_rebuilt_from_what_its_candidates_reached(tmp_path, way_out):
    """The same candidates are proposed again and found trained."""
    study, store = tiny(tmp_path, methods={"sovr": {}}, seeds=[0]), open_store(tmp_path / "store")

    def next_training() -> str:
        """Train every candidate that is proposed, as a worker would, up to the first training of the choice."""
        queue = Queue(study, store)
        while (item := queue.next()) is not None and item.piece.label != "sovr_searched":
            trial = item.piece.trial
            if not isinstance(item.piece, Candidate):
                continue  # of the study's own values
            stored = item.piece.stored(store)
            if stored is not None:
                queue.finished(item, stored)
                continue
            asked.append(trial)
            accuracy = int(trial[:4], 16) / 0xFFFF
            curve = [{"validation_margin_accuracy": accuracy, "validation_clean_accuracy": 0.9}] * 3
            record = records.trial_record(trial, curve=curve)
            store.write_record(record)
            queue.finished(item, trial_metrics(record))
        queue.close()
        assert item is not None and type(item.piece) is Training
        return item.piece.trial

    asked: list[str] = []
    first = next_training()
    assert len(asked) == 6
    path = layout.search_record(search_id(study, "sovr"))
    whole = store.search_record(search_id(study, "sovr"))
    store.write(path, store.read(path)[:200])
    with pytest.raises(BrokenRecord, match=f"{path}.*running the study again rebuilds it"):
        chosen_values(study, store)
    assert stored_search(store, search_id(study, "sovr")) is None
    if way_out == "nothing done":
        assert open_search(study, "sovr", store).candidates == []
        return
    store.delete(path) if way_out == "deleted" else store.set_aside(path)
    assert next_training() == first and len(asked) == 6
    assert store.search_record(search_id(study, "sovr")) == whole


def test_a_search_that_is_opened_again_has_its_candidates_and_failed_ones_when_asked(tmp_path):
    study, store = tiny(tmp_path), open_store(tmp_path / "store")
    search = open_search(study, "sovr", store)
    search.advance()
    for (candidate, run), state in zip(search.trainings(), ("done", "failed", "collapsed", "done"), strict=True):
        search.tell(candidate, run, state, [{"validation_margin_accuracy": 0.5}] * 3)
    store.write_record(search.record())
    assert open_search(study, "sovr", store).open() == []
    assert [one.index for one in open_search(study, "sovr", store, retry_failed=True).open()] == [1]
    assert settings_of(study, "sovr").id == search_id(study, "sovr")


def test_the_lock_of_a_killed_leader_is_not_waited_for(tmp_path, monkeypatch):
    study, store = tiny(tmp_path, methods={"sovr": {}}, seeds=[0]), open_store(tmp_path / "store")
    journal = store.local(layout.search_journal(search_id(study, "sovr")))
    journal.parent.mkdir(parents=True)
    journal.touch()
    lock = journal.with_name(f"{journal.name}.lock")
    lock.symlink_to(journal)
    monkeypatch.setattr("optuna.storages.journal._file.time.sleep", lambda _: pytest.fail("Optuna waits for the lock"))
    queue = Queue(study, store)
    assert queue.next() is not None and not lock.is_symlink()
    queue.close()
