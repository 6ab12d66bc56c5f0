"""What a disk or a name can do to a command: each ends with exit code 2 and one line, never with a traceback."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from stored import evaluation, write_trial

from sweep import cli
from sweep.store.manifests import write_manifest
from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.trials import cells as planned

ROOT = Path(__file__).parents[2]
LONG = "n" * 300
RUN = ("run", "--logger", "none", "--study")
# Where a command takes each kind of name; {} is what is wrong with it.
STORES: dict[str, tuple[str, ...]] = {
    "run": (*RUN, "digits", "--out", "out", "--store", "{}"),
    "plan": ("plan", "--store", "{}"),
    "status": ("status", "--store", "{}"),
    "retry": ("retry", "--store", "{}"),
    "gc": ("gc", "--store", "{}", "--yes"),
    "merge": ("merge", "{}", "--store", "target"),
    "merge into": ("merge", "store", "--store", "{}"),
    "decide": ("decide", "sovr > at", "--out", "out", "--store", "{}"),
    "verify-store": ("verify-store", "--store", "{}"),
    "report": ("report", "--no-figures", "--out", "out", "--store", "{}"),
    "export": ("export", "--out", "out", "--store", "{}"),
    "diff": ("diff", "--store", "{}"),
}
FILES: dict[str, tuple[str, ...]] = {
    "run": (*RUN, "{}", "--dry-run"),
    "run --plugin": (*RUN, "digits", "--dry-run", "--plugin", "{}"),
    "plan": ("plan", "--study", "{}"),
    "decide": ("decide", "sovr > at", "--study", "{}"),
    "submit": ("submit", "--slurm", "job.sbatch", "--study", "{}"),
    "evaluate": ("evaluate", "--dataset", "digits", "--model", "small_cnn", "--checkpoint", "{}"),
    "check": ("check", "mine", "--plugin", "{}"),
}
OUTS: dict[str, tuple[str, ...]] = {
    "run": (*RUN, "digits", "--store", "store", "--out", "{}"),
    "decide": ("decide", "trades > at", "--store", "store", "--out", "{}"),
    "report": ("report", "--no-figures", "--store", "store", "--out", "{}"),
    "export": ("export", "--store", "store", "--out", "{}"),
    "diff": ("diff", "--store", "store", "--out", "{}"),
    "submit": ("submit", "--slurm", "{}/job.sbatch"),
}
AS_NOBODY = """
import contextlib, io, json, os, sys
from sweep import cli

def called(words):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            cli.main(words)
        except SystemExit as end:
            return end.code, said.getvalue()

os.chdir(sys.argv[1])
calls = json.load(sys.stdin)
for wrong, _ in calls:
    called(wrong)  # so that everything is loaded while this process may still read it
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(json.dumps([called(closed) for _, closed in calls]))
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """A folder with a store in it that is complete but for one evaluation."""
    folder = tmp_path_factory.mktemp("mishaps")
    study, store = Study.load("digits", methods=("at", "trades"), seeds=[0]), open_store(folder / "store")
    cells = planned.expand(study)
    for cell in cells:
        write_trial(store, cell)
        store.write_record(evaluation(study, cell))
    write_manifest(store, planned.manifest(study, cells))
    (folder / "file").write_text("")
    (folder / "latin").write_bytes(b"title: caf\xe9\xff\n")
    return folder


def refused(code: object, errors: str) -> bool:
    lines = [line for line in errors.splitlines() if line]
    return code == 2 and "Traceback" not in errors and sum(line.lower().startswith("error: ") for line in lines) == 1


def call(words: tuple[str, ...], wrong: str, capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    with pytest.raises(SystemExit) as caught:
        cli.main([word.replace("{}", wrong) for word in words])
    return caught.value.code, capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["file", "file/below", LONG])
@pytest.mark.parametrize("command", STORES)
def test_a_store_that_cannot_be_one_is_refused(stored, monkeypatch, capsys, command, wrong):
    monkeypatch.chdir(stored)
    code, errors = call(STORES[command], wrong, capsys)
    assert refused(code, errors), (code, errors)


@pytest.mark.parametrize("wrong", ["store", f"{LONG}.yaml", "latin", "/dev/zero", "file/below"])
@pytest.mark.parametrize("command", FILES)
def test_a_file_that_cannot_be_read_is_refused(stored, monkeypatch, capsys, command, wrong):
    monkeypatch.chdir(stored)
    code, errors = call(FILES[command], wrong, capsys)
    assert refused(code, errors), (code, errors)


@pytest.mark.parametrize("wrong", ["file", "file/below", LONG])
@pytest.mark.parametrize("command", OUTS)
def test_a_place_that_cannot_be_written_to_is_refused(stored, monkeypatch, capsys, command, wrong):
    monkeypatch.chdir(stored)
    code, errors = call(OUTS[command], wrong, capsys)
    assert refused(code, errors), (code, errors)


def test_what_belongs_to_somebody_else_is_refused(stored):
    """As a user who is not root: a file that may not be read, and folders that may not be written to."""
    with tempfile.TemporaryDirectory(prefix="robustsweep-mishaps-") as made:
        folder = Path(made)
        shutil.copytree(stored, folder, dirs_exist_ok=True)
        folder.chmod(0o755)
        (folder / "secret").write_text("title: mine")
        (folder / "secret").chmod(0o000)
        (folder / "closed").mkdir(mode=0o555)
        asked = [(words, "latin", "secret") for name, words in FILES.items() if name != "evaluate"]
        asked += [(OUTS[name], "file", "closed/out") for name in ("run", "report", "export", "diff")]
        asked += [(OUTS["submit"], "file", "closed"), (STORES["merge into"], "file", "closed/store")]
        calls = [[[word.replace("{}", one) for word in words] for one in pair] for words, *pair in asked]
        ended = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, made],
            input=json.dumps(calls),
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert ended.returncode == 0, ended.stderr
        for (_, words), (code, errors) in zip(calls, json.loads(ended.stdout.splitlines()[-1]), strict=True):
            assert refused(code, errors), (words, code, errors)
