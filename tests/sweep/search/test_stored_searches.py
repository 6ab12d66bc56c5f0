"""A study's searches in its store: broken, begun elsewhere, taken up again."""

import pytest

from sweep.search.stored import open_search, settings_of, stored_search
from sweep.store import layout
from sweep.store.encoding import BrokenRecord
from sweep.store.opening import open_store
from sweep.trials.cells import chosen_values
from sweep.trials.identity import search_id
from sweep.work.tasks import CandidateTraining, Training
from sweep.work.work import Work
from tests import records
from tests.sweep.tiny_study import tiny


@pytest.mark.parametrize("way_out", ["deleted", "set aside", "nothing done"])
def test_a_broken_search_is_rebuilt_from_what_its_candidates_reached(tmp_path, way_out):
    """The same candidates are proposed again and found trained."""
    study, store = tiny(tmp_path, methods={"sovr": {}}, seeds=[0]), open_store(tmp_path / "store")

    def next_training() -> str:
        """Trains every candidate that is asked for, as a worker would, up to the first training of its choice."""
        work = Work(study, store)
        while (assigned := work.next_task()) is not None and assigned.task.label != "sovr_searched":
            trial = assigned.task.trial
            if not isinstance(assigned.task, CandidateTraining):
                continue  # of the study's own values
            asked.append(trial)
            accuracy = int(trial[:4], 16) / 0xFFFF
            curve = [{"validation_margin_accuracy": accuracy, "validation_clean_accuracy": 0.9}] * 3
            store.write_record(records.trial_record(trial, curve=curve))
            work.finished(assigned)
        work.close()
        assert assigned is not None and type(assigned.task) is Training
        return assigned.task.trial

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
    work = Work(study, store)
    assert work.next_task() is not None and not lock.is_symlink()
    work.close()
