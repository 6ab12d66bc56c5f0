"""What `sweep/search/compat.py` relies on is there in Optuna, and behaves as it is used."""

import subprocess
import sys
import warnings

import optuna
import pytest
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileSymlinkLock
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial

from sweep.search.compat import break_lock, open_journal, settle_trial, values_outside_allowed, write_study

SPACE = {"lam": FloatDistribution(0.0, 1.0)}
MAXIMIZE = [StudyDirection.MAXIMIZE]
KILLED = """
import os, sys
from optuna.storages.journal import JournalFileSymlinkLock
JournalFileSymlinkLock(sys.argv[1]).acquire()
os._exit(1)
"""


def trial(state, lam, value=None, curve=None):
    return create_trial(
        state=state, value=value, params={"lam": lam}, distributions=SPACE, intermediate_values=curve or {}
    )


def read(path):
    """Return the trials of a journal as optuna-dashboard finds them."""
    return optuna.load_study(study_name=None, storage=open_journal(path)).get_trials()


def test_a_study_is_written_with_running_trials_that_are_settled_later(tmp_path):
    journal = tmp_path / "journal.log"
    trials = [
        trial(TrialState.RUNNING, 0.1),
        trial(TrialState.COMPLETE, 0.2, 0.7, {1: 0.5}),
        trial(TrialState.RUNNING, 0.3),
    ]
    identifiers = write_study(open_journal(journal), "sovr", MAXIMIZE, trials)
    assert len(set(identifiers)) == 3
    storage = open_journal(journal)  # as after the file was renamed
    settle_trial(storage, identifiers[2], trial(TrialState.COMPLETE, 0.3, 0.9, {1: 0.6, 3: 0.8}))
    settle_trial(storage, identifiers[0], trial(TrialState.FAIL, 0.1))
    assert [(one.state.name, one.params["lam"], one.values, one.intermediate_values) for one in read(journal)] == [
        ("FAIL", 0.1, None, {}),
        ("COMPLETE", 0.2, [0.7], {1: 0.5}),
        ("COMPLETE", 0.3, [0.9], {1: 0.6, 3: 0.8}),
    ]
    assert optuna.load_study(study_name="sovr", storage=storage).best_trial.number == 2


def test_studies_are_made_and_filled_by_documented_functions_alike(tmp_path):
    """A search asks Optuna by these, and writes its journal by its storage."""
    trials = [trial(TrialState.COMPLETE, 0.2, 0.7, {1: 0.5}), trial(TrialState.RUNNING, 0.3)]
    write_study(open_journal(tmp_path / "written.log"), "sovr", MAXIMIZE, trials)
    study = optuna.create_study(storage=open_journal(tmp_path / "added.log"), study_name="sovr", directions=MAXIMIZE)
    study.add_trials(trials)
    assert read(tmp_path / "written.log") == read(tmp_path / "added.log")


def test_the_lock_of_a_killed_process_lies_beside_the_journal_and_is_broken(tmp_path, monkeypatch):
    journal = tmp_path / "journal.log"
    open_journal(journal)
    subprocess.run([sys.executable, "-c", KILLED, str(journal)], check=False, timeout=60)
    # `sweep gc` knows the locks by this name too.
    assert [file.name for file in tmp_path.glob("journal.log.lock*")] == ["journal.log.lock"]
    break_lock(journal)
    break_lock(journal)  # without one, nothing happens
    assert [file.name for file in tmp_path.iterdir()] == ["journal.log"]
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("Optuna waits for a lock"))
    write_study(open_journal(journal), "sovr", MAXIMIZE, [])


def test_a_journal_is_locked_while_it_is_written(tmp_path, monkeypatch):
    """optuna-dashboard, which may write notes, takes the same lock by default."""
    journal, locks = tmp_path / "journal.log", []
    acquire = JournalFileSymlinkLock.acquire

    def noted(lock):
        result = acquire(lock)
        locks.extend(file.name for file in tmp_path.glob("*.lock"))
        return result

    monkeypatch.setattr(JournalFileSymlinkLock, "acquire", noted)
    write_study(open_journal(journal), "sovr", MAXIMIZE, [])
    assert set(locks) == {"journal.log.lock"}


@pytest.mark.parametrize("space", [FloatDistribution(0.2, 1.0, step=0.2), IntDistribution(20, 100, step=20)])
def test_a_value_outside_is_proposed_with_one_warning_that_is_known_by_its_text(space):
    study = optuna.create_study()
    for _ in range(2):
        study.enqueue_trial({"x": 5})
    with pytest.warns(UserWarning, match="Fixed parameter"):
        assert study.ask({"x": space}).params == {"x": 5}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with values_outside_allowed():
            assert study.ask({"x": space}).params == {"x": 5}
