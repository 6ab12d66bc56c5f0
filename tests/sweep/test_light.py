"""Planning, status and a run with nothing to compute load neither torch nor ray, and answer as real classes would."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from stored import evaluation, write_trial

from sweep import studies
from sweep.store.manifests import write_manifest
from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.trials import cells as planned

ROOT = Path(__file__).parents[2]
COMMAND = """
import runpy, sys
module, sys.argv = sys.argv[1], [sys.argv[1].replace(".", "/"), *sys.argv[2:]]
try:
    runpy.run_module(module, run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
assert not {"torch", "ray"} & set(sys.modules), "it loaded torch or ray"
"""
EVERYTHING = """
import json, sys
from sweep import studies
from sweep.studies.model import Study
from sweep.trials import cells
found = {}
for name in studies.titles():
    study = Study.load(name)
    found[name] = cells.manifest(study, cells.expand(study)).model_dump(mode="json")
print(json.dumps([found, "torch" in sys.modules]))
"""
ONE_ATTACK = ("search={}", "evaluation.suite=null", "evaluation.attacks=[clean]", "evaluation.diagnostics=false")
DEFAULTS = """
from trainers import composition
print(composition.resolved_hyperparameters("sovr")["M"])
"""


def python(text: str, *words: str, cache: Path, root: Path = ROOT) -> str:
    environment = {**os.environ, "PYTHONPATH": str(root), "ROBUSTSWEEP_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", text, *words],
        cwd=cache.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """What all shipped studies are, told by the real classes; they are remembered in the folder beside it."""
    cache = tmp_path_factory.mktemp("light") / "cache"
    found, torch = json.loads(python(EVERYTHING, cache=cache))
    assert torch and found.keys() == studies.titles().keys()
    return cache, found


def test_what_is_remembered_tells_the_same_of_every_shipped_study(everything):
    cache, found = everything
    again, torch = json.loads(python(EVERYTHING, cache=cache))
    assert again == found and not torch


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data.replace(b"40", b"41", 1),
        lambda data: data.partition(b"\n")[2],
        lambda data: re.sub(rb'"M", "int", 40', b'"M", "int", 41', data),
    ],
)
def test_a_damaged_file_is_not_believed_and_made_anew(everything, tmp_path, spoil):
    cache = tmp_path / "cache"
    shutil.copytree(everything[0], cache)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(spoil(whole))
    assert file.read_bytes() != whole
    assert python(DEFAULTS, cache=cache) == "40\n"
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_changes_nothing(tmp_path):
    (tmp_path / "file").touch()
    assert python(DEFAULTS, cache=tmp_path / "file") == "40\n"


def test_a_changed_method_is_noticed(tmp_path):
    for package in ("trainers", "search_spaces"):
        shutil.copytree(ROOT / package, tmp_path / "copy" / package, ignore=shutil.ignore_patterns("__pycache__"))
    cache, file = tmp_path / "cache", tmp_path / "copy/trainers/methods/sovr.py"
    assert python(DEFAULTS, cache=cache, root=tmp_path / "copy") == "40\n"
    file.write_text(file.read_text().replace("hyperparameter(40,", "hyperparameter(41,"))
    assert python(DEFAULTS, cache=cache, root=tmp_path / "copy") == "41\n"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A store in which nothing is left to compute."""
    store = open_store(tmp_path_factory.mktemp("finished") / "store")
    study = Study.load("digits", methods=["at", "st"], overrides=ONE_ATTACK)
    cells = planned.expand(study)
    for cell in cells:
        write_trial(store, cell)
        store.write_record(evaluation(study, cell))
    write_manifest(store, planned.manifest(study, cells))
    return store


@pytest.mark.parametrize("words", [["--dry-run"], ["--logger", "none"]], ids=["dry run", "finished run"])
def test_a_run_that_computes_nothing_loads_no_torch(everything, finished, words, tmp_path):
    words = [*words, "--methods", "at,st", "--store", finished.uri, "--out", str(tmp_path)]
    words += [word for setting in ONE_ATTACK for word in ("--set", setting)]
    python(COMMAND, "sweep.run", *words, cache=everything[0])


def test_a_status_loads_no_torch(everything, finished):
    assert "6 trials: 6 done" in python(COMMAND, "sweep.status", "--store", finished.uri, cache=everything[0])
