"""A store of an earlier numerics version is recognised, and nothing of it is taken for new."""

from stored import trial

from sweep import engine
from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.trials import cells as planned
from sweep.trials.numerics import NUMERICS_VERSION
from sweep.trials.older import older_note
from sweep.work.options import RunOptions


def test_a_run_says_in_one_line_what_it_does_not_use(tmp_path, monkeypatch, capsys):
    study, store = Study.load("digits", methods=["at"]), open_store(tmp_path)
    cells = planned.expand(study)
    store.write_record(trial(cells[0]))
    assert older_note(store, store.trial_looks().values()) is None
    for number, cell in enumerate(cells[1:]):
        store.write_record(trial(cell, numerics=number + 1))
    monkeypatch.setattr(engine, "is_complete", lambda *_: True)
    engine.run_study(study, store, RunOptions(out=None, progress=False))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"store {store.uri} holds 2 trials of numerics version 1, 2; this version makes version ")
    assert f"version {NUMERICS_VERSION} and trains anew" in line and "python -m sweep.gc --store" in line


def test_a_broken_record_is_nobody_s_older_trial(tmp_path):
    store = open_store(tmp_path)
    store.write("trials/0123456789abcdef/record.json", b'{"kind": "trial"')
    assert older_note(store, store.trial_looks().values()) is None
