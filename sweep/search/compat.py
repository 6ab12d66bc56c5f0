"""Uses of Optuna beyond its documented interface, with the reason for each.

`CONTRIBUTING.md` lists it; `tests/sweep/search/test_optuna_compat.py` fails first when Optuna changes.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial


@contextlib.contextmanager
def values_outside_allowed() -> Iterator[None]:
    """Suppress Optuna's warning about enqueued values outside of its distributions, identified by its text.

    The values of the study and of the paper may lie outside of the grid that the paper states.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Fixed parameter")
        yield


def open_journal(path: Path) -> JournalStorage:
    """Open or create a journal file with the kind of lock that `break_lock` removes, and return its storage."""
    return JournalStorage(JournalFileBackend(str(path), lock_obj=JournalFileSymlinkLock(str(path))))


def break_lock(path: Path) -> None:
    """Remove the lock of a journal whose writer was killed. Optuna would wait 30 s for it.

    It is undocumented that `release` removes the lock of another process, and what it raises without a lock.
    """
    with contextlib.suppress(RuntimeError):
        JournalFileSymlinkLock(str(path)).release()


def write_study(
    storage: JournalStorage, name: str, directions: Sequence[StudyDirection], trials: Iterable[FrozenTrial]
) -> list[int]:
    """Write a study with trials that may be running, and return their Optuna identifiers.

    Storages are not part of Optuna's user interface, but `Study.add_trial` does not return the identifier that
    `settle_trial` needs.
    """
    study = storage.create_new_study(directions, name)
    return [storage.create_new_trial(study, template_trial=trial) for trial in trials]


def settle_trial(storage: JournalStorage, identifier: int, outcome: FrozenTrial) -> None:
    """Write the curve and the result of a trial that was running.

    `Study.tell` does not accept intermediate values, from which the dashboard draws the curve.
    """
    for step, value in outcome.intermediate_values.items():
        storage.set_trial_intermediate_value(identifier, step, value)
    storage.set_trial_state_values(identifier, outcome.state, outcome.values)
