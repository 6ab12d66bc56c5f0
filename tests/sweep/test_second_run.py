"""A run that finds everything stored says the same again, and loads nothing that only computing and drawing need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.store.manifests import write_manifest
from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.trials import cells as planned
from tests.sweep import stored

ROOT = Path(__file__).parents[2]
SETTINGS = ["evaluation.diagnostics=false"]
LOADED = """
import runpy, sys
sys.argv = ["sweep.run", *sys.argv[1:]]
try:
    runpy.run_module("sweep.run", run_name="__main__")
except SystemExit as ended:
    print(ended.code or 0, sorted({"ray", "pandas", "scipy", "matplotlib"} & set(sys.modules)))
"""


@pytest.fixture
def finished(tmp_path):
    store = open_store(tmp_path / "store")
    study = Study.load("digits", SETTINGS, ["at"], [0])
    cells = planned.expand(study)
    for cell in cells:
        stored.write_trial(store, cell)
        for number in range(len(planned.evaluation_attacks(study))):
            store.write_record(stored.evaluation(study, cell, attack=number, right=5 + number))
    write_manifest(store, planned.manifest(study, cells))
    return tmp_path


def run(folder: Path) -> subprocess.CompletedProcess:
    words = ["--study", "digits", "--methods", "at", "--seeds", "0", "--set", SETTINGS[0]]
    places = ["--store", str(folder / "store"), "--out", str(folder / "reports")]
    command = [sys.executable, "-c", LOADED, *words, *places]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True)


def test_the_second_run_shows_the_same_result_without_reading_the_records_again(finished):
    first, second = run(finished), run(finished)
    assert first.stdout.startswith("0 ") and "pandas" in first.stdout
    assert second.stdout == "0 []\n"
    assert second.stderr == first.stderr and "all was there" in second.stderr and "50.0" in second.stderr


def test_a_changed_record_changes_the_result_that_is_shown(finished):
    before = run(finished).stderr
    study = Study.load("digits", SETTINGS, ["at"], [0])
    (cell,) = planned.expand(study)
    open_store(finished / "store").write_record(stored.evaluation(study, cell, attack=0, right=3))
    assert "30.0" in run(finished).stderr and "30.0" not in before
