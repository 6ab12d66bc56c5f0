"""The command line: quick help, plain listings, one message and exit code 2 for a user's mistake."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stored import evaluation, trial

from sweep import cli, studies
from sweep.engine.options import RunOptions
from sweep.errors import UserError
from sweep.store.encoding import BrokenRecord
from sweep.store.manifests import write_manifest
from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.trials import cells as planned
from tests.patience import patience

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1])}
ALONE = ("run", "plan", "status", "evaluate", "check", "submit", "explain", "new", "verify", "transfer")
SLOW = """
import time
from sweep import cli
from sweep.studies.options import StudyOptions
StudyOptions.load = lambda _: (print("in", flush=True), time.sleep(30))
cli.main(["run", "--dry-run"])
"""
LOADED = """
import runpy, sys
module, sys.argv = sys.argv[1], [sys.argv[1], "--help"]
try:
    runpy.run_module(module, run_name="__main__")
except SystemExit:
    print({"torch", "ray", "optuna", "pandas", "numpy", "yaml", "jinja2"} & set(sys.modules))
"""


def run(*arguments: str, module: str = "sweep", **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, **options)


def test_help_lists_studies_and_examples():
    found = run("run", "--help").stdout
    for name, title in studies.titles().items():
        assert f"{name} " in found and title in found
    assert "python -m sweep.run --study cifar10_rn18 --dry-run" in found


@pytest.mark.parametrize("module", ["sweep", *(f"sweep.{name}" for name in ALONE), "reports"])
def test_help_loads_nothing_heavy(module):
    found = subprocess.run([sys.executable, "-c", LOADED, module], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("Usage: sweep") and found.stdout.endswith("\nset()\n")


@pytest.mark.parametrize("module", ALONE)
def test_a_module_is_the_same_as_its_command(module):
    alone, command = run("--help", module=f"sweep.{module}"), run(module, "--help")
    assert alone.stdout == command.stdout and f"sweep {module}" in alone.stdout


def test_all_commands_are_listed():
    found = run("--help").stdout
    names = "run plan status retry gc merge evaluate check submit decide verify-store report diff explain new export"
    for name in names.split():
        assert f"  {name} " in found


def test_a_dry_run_lists_every_trial_with_no_data_and_writes_nothing(tmp_path):
    found = run("run", "--study", "cifar10_rn18", "--dry-run", cwd=tmp_path)
    assert found.returncode == 0 and found.stderr == ""
    lines = found.stdout.splitlines()
    rows = [line.split() for line in lines if line.split()[1:2] in (["0"], ["1"], ["2"])]
    assert len(rows) == 39
    assert rows[0][:3] == ["st", "0", "200"] and "missing" in rows[0] and "train" in rows[0]
    assert any(row[0] == "mma" and "50000" in row and "d_max=0.1255" in row for row in rows)
    assert any(row[0] == "sovr_searched" and "waiting" in row for row in rows)
    assert "39 trials: 33 missing, 6 waiting; 39 to run" in found.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_tells_what_is_stored(tmp_path):
    study = Study.load("digits", methods=["at", "st"])
    cells = planned.expand(study)
    store = open_store(tmp_path / "store")
    for cell, status in zip(cells, ("done", "failed", "collapsed"), strict=False):
        store.write_record(trial(cell, status))
    evaluated = evaluation(study, cells[0])
    store.write_record(evaluated)
    options = ["run", "--methods", "at,st", "--dry-run", "--json", "--store", str(tmp_path / "store")]
    facts = json.loads(run(*options).stdout)
    assert [(trial["state"], trial["would"]) for trial in facts["trials"]] == [
        ("done", "-"),
        ("failed", "-"),
        ("collapsed", "-"),
        *[("missing", "train")] * 3,
    ]
    assert facts["to_run"] == 3 and facts["evaluations_stored"] == 1
    store.write(evaluated.path, b"{")
    assert json.loads(run(*options).stdout)["evaluations_stored"] == 0
    again = json.loads(run(*options, "--retry-failed").stdout)
    assert again["to_run"] == 4 and again["trials"][1]["would"] == "train again"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "--study", "digit"], "did you mean 'digits'?"),
        (["run", "--study", "none.yaml"], "does not exist"),
        (["run", "--dry-run", "--set", "train.epochs=-2"], "train.epochs = -2"),
        (["run", "--dry-run", "--methods", "tradse"], "did you mean 'trades'?"),
        (["run", "--dry-run", "--seeds", "x"], "--seeds x"),
        (["run", "--dry-run", "--plugin", "none.py"], "none.py cannot be read"),
        (["run", "--dry-run", "--store", "ftp://x"], "only folders and s3://"),
        (["plan", "--study", "digit"], "did you mean 'digits'?"),
        (["status", "--study", "digits"], "there is no store at"),
        (["gc", "--store", "none"], "does not exist"),
        (["gc", "--keep", "nothing"], "--keep nothing"),
        (["merge", "none"], "does not exist"),
        (["merge", "none", "--leave-out", "weights,records"], "--leave-out records: must be one of: weights, logs"),
        (["retry", "--store", "none"], "does not exist"),
        (["status", "--store", "none"], "none"),
        (["status", "--json", "--store", "none"], "none"),
        (["verify", "--store", "none"], "none"),
        (["verify-store", "--store", "none"], "none"),
        (["transfer", "--store", "none"], "none"),
        (["diff", "--store", "none"], "none"),
        (["report", "--store", "none"], "none"),
        (["site", "none"], "none"),
    ],
)
def test_a_users_mistake_is_one_message_and_exit_code_2(tmp_path, arguments, expected):
    found = run(*arguments, cwd=tmp_path)
    assert found.returncode == 2 and found.stdout == ""
    assert found.stderr.startswith("error: ") and expected in found.stderr and "Traceback" not in found.stderr


@pytest.mark.parametrize("words", [("--store", "wrong"), ("--store", "right", "--store", "wrong")])
def test_a_misspelt_store_leaves_the_tables_that_are_there_alone(tmp_path, words):
    (tmp_path / "right").mkdir()
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/tables.csv").write_text("good")
    found = run("report", *words, "--out", "reports", cwd=tmp_path)
    assert found.returncode == 2 and len(found.stderr.splitlines()) == 1 and "wrong" in found.stderr
    assert [path.name for path in (tmp_path / "reports").iterdir()] == ["tables.csv"]
    assert (tmp_path / "reports/tables.csv").read_text() == "good"


@pytest.mark.parametrize("command", [["status"], ["run", "--dry-run"], ["run"], ["evaluate", "--checkpoint", "x"]])
def test_a_store_below_a_file_is_refused(tmp_path, command):
    (tmp_path / "afile").touch()
    found = run(*command, "--store", "afile/x", cwd=tmp_path)
    assert found.returncode == 2 and found.stdout == ""
    assert found.stderr.endswith("afile is a file; --store needs a folder or an s3:// address\n")


@pytest.mark.parametrize("command", [[], ["diff"], ["export"]])
@pytest.mark.parametrize("out", ["afile", "afile/below", "full"])
def test_reports_that_cannot_be_written_are_one_message(tmp_path, command, out):
    study = Study.load("digits", methods=["at"])
    write_manifest(open_store(tmp_path / "store"), planned.manifest(study, planned.expand(study)))
    (tmp_path / "afile").touch()
    for name in ("tables.md", "diff.md", "results.csv"):  # folders where the files should be
        (tmp_path / "full" / name).mkdir(parents=True)
    found = run(*command, "--store", "store", "--out", out, module="reports", cwd=tmp_path)
    assert found.returncode == 2 and len(found.stderr.splitlines()) == 1
    assert found.stderr.startswith("error: ") and out.partition("/")[0] in found.stderr


def test_an_unknown_option_or_command_is_exit_code_2(tmp_path):
    for arguments in (["run", "--stduy", "digits"], ["rnu"]):
        found = run(*arguments, cwd=tmp_path)
        assert found.returncode == 2 and "Traceback" not in found.stderr


def test_interruption_says_how_to_go_on(monkeypatch, capsys):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sweep.studies.options.StudyOptions.load", interrupted)
    with pytest.raises(SystemExit) as caught:
        cli.main(["run", "--dry-run"])
    assert caught.value.code == 130
    assert "the same command goes on" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_listing_ends_quietly(tmp_path, kind):
    pipe = subprocess.PIPE
    # A session that runs in the background ignores SIGINT and hands that down: take it back for the child.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen([sys.executable, "-c", SLOW], stdout=pipe, stderr=pipe, text=True, env=ENVIRONMENT)
    signal.signal(signal.SIGINT, before)
    process.stdout.readline()
    time.sleep(0.1)
    process.send_signal(kind)
    _, errors = process.communicate(timeout=patience(20))
    assert process.returncode == 130 and "Traceback" not in errors and errors.count("\n") <= 2


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    command = f"{sys.executable} -m sweep run --study cifar10_rn18 --seeds 0-999 --dry-run | head -1"
    piped = ["bash", "-c", f"set -o pipefail; {command}"]
    found = subprocess.run(piped, capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT)
    assert found.returncode == 0 and found.stdout.startswith("cifar10_rn18") and found.stderr == ""


def test_run_hands_its_options_to_the_engine(monkeypatch, tmp_path):
    seen = []

    class Outcome:
        complete = False

    def run_study(*arguments):
        seen.extend(arguments)
        return Outcome()

    monkeypatch.setattr("sweep.engine.run.run_study", run_study)
    monkeypatch.setattr("sweep.engine.checks.check_loggers", lambda names: None)  # neither need be installed
    (tmp_path / "d").mkdir()
    with pytest.raises(SystemExit) as caught:
        cli.main(
            f"run --methods at --seeds 5 --data-dir {tmp_path}/d --store {tmp_path}/s --address auto --yes "
            f"--retry-failed --budget 3h --out {tmp_path}/o --logger wandb,mlflow".split()
        )
    assert caught.value.code == 1  # something is left
    study, store, options = seen
    assert study.labels == ["at"] and study.seeds == (5,) and store.uri == f"{tmp_path}/s"
    assert options == RunOptions(
        address="auto",
        data_dir=f"{tmp_path}/d",
        yes=True,
        budget="3h",
        retry_failed=True,
        out=tmp_path / "o",
        loggers=("wandb", "mlflow"),
    )


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (UserError("this cannot work"), "this cannot work"),
        (BrokenRecord("x.json", "no checksum"), "broken record x.json: no checksum"),
        (PermissionError(13, "Permission denied", "/store"), "Permission denied: /store"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError(30, "Read-only file system", "/store"), "Read-only file system: /store"),
        (OSError(36, "File name too long", "/aaa"), "File name too long: /aaa"),
        (IsADirectoryError(21, "Is a directory", "/store"), "Is a directory: /store"),
        (ConnectionError("nobody answers"), "nobody answers"),
        (UserError("x" * 30_000), "x" * 19_993 + "\n… and 10,007 characters more"),
    ],
)
def test_errors_inside_a_command_reach_the_user_as_messages(monkeypatch, capsys, fault, expected):
    def refuse(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr("sweep.studies.options.StudyOptions.load", refuse)
    with pytest.raises(SystemExit) as caught:
        cli.main(["run"])
    assert caught.value.code == 2 and capsys.readouterr().err == f"error: {expected}\n"


def test_a_full_disk_is_told_with_the_file_that_did_not_fit(monkeypatch, tmp_path):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError) as caught:
        open_store(tmp_path).write("studies/digits.json", b"{}")
    assert caught.value.filename == f"{tmp_path}/studies/digits.json" and list(tmp_path.rglob("*.*")) == []
