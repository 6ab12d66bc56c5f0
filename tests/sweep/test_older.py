"""A store of an earlier numerics version is recognised, and nothing of it is taken for new."""

import json

import pytest
from stored import trial

from sweep import cli
from sweep.engine import run as engine
from sweep.engine.options import RunOptions
from sweep.store.numerics import NUMERICS_VERSION
from sweep.store.older import older_note
from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.trials import cells as planned


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


@pytest.mark.parametrize("as_json", [False, True])
def test_a_dry_run_says_why_it_lists_them_as_missing(tmp_path, capsys, as_json):
    study, store = Study.load("digits", methods=["at"]), open_store(tmp_path)
    (cell, *_) = planned.expand(study)
    words = ["run", "--dry-run", "--methods", "at", "--store", str(tmp_path), *(["--json"] if as_json else [])]

    def told():
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code == 0
        text = capsys.readouterr().out
        return json.loads(text)["older"] if as_json else text

    assert "of numerics version" not in (told() or "")
    store.write_record(trial(cell, trial="0" * 64, numerics=NUMERICS_VERSION - 1))
    said = f"holds 1 trials of numerics version {NUMERICS_VERSION - 1}; this version makes version {NUMERICS_VERSION}"
    assert f"{said} and trains anew" in told()


def test_a_broken_record_is_nobody_s_older_trial(tmp_path):
    store = open_store(tmp_path)
    store.write("trials/0123456789abcdef/record.json", b'{"kind": "trial"')
    assert older_note(store, store.trial_looks().values()) is None
