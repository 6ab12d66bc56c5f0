"""A store is data: code that its manifests name is run by no command unless the user names it too."""

import pytest

import robustsweep
from sweep import cli
from sweep.errors import UserError
from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.trials.cells import expand, manifest
from tests.own_files import write_study, write_user_files
from trainers.plugins import registry
from trainers.plugins.own import cache

STORE = ["--store", "downloaded"]
COMMANDS = {
    "run": ["--study", "mine", "--dry-run", *STORE],
    "plan": ["--study", "mine", *STORE],
    "submit": ["--study", "mine", "--slurm", "mine.sbatch", "--store", "/downloaded"],
    "decide": ["at < st", "--study", "mine", *STORE],
    "status": ["--study", "mine", *STORE],
    "report": ["--out", "tables", *STORE],
    "explain": ["mine/at/clean", *STORE],
    "diff": STORE,
    "site": ["downloaded", "--out", "site"],
    "verify": STORE,
    "gc": ["--dry-run", *STORE],
    "retry": STORE,
    "transfer": ["--study", "mine", *STORE],
    "export": ["--study", "mine", "--out", "exported", *STORE],
    "evaluate": ["--checkpoint", f"{'0' * 16}/last", *STORE],
    "merge": ["downloaded", "--store", "merged"],
}
CODE = {"model": "downloaded/net.py:build", "dataset": "downloaded/data.py:load"}


@pytest.fixture
def downloaded(tmp_path, monkeypatch):
    """What writes the manifest of a store from elsewhere, and the trace that the files leave which it may name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    home = write_user_files(tmp_path / "downloaded")
    study = Study.load(write_study(home, dataset="my_data.py:load"))
    record = manifest(study, expand(study))
    for name in registry.sources():
        registry.forget(name)
    trace = "from pathlib import Path\nPath('executed').touch()\n"
    (home / "net.py").write_text(trace + (home / "my_net.py").read_text())
    (home / "data.py").write_text(trace + (home / "my_data.py").read_text())
    (home / "mine.yaml").unlink()
    store = open_store(home)

    def write(**names: str) -> None:
        written = {**record.study, "dataset": "digits", "model": "small_cnn", **names}
        store.write_record(record.model_copy(update={"study": written, "command": None}))

    return write, tmp_path / "executed"


def call(capsys, *words):
    with pytest.raises(SystemExit) as caught:
        cli.main(list(words))
    captured = capsys.readouterr()
    return caught.value.code, captured.out + captured.err


@pytest.mark.parametrize("key", CODE)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_code_that_only_a_store_names(downloaded, capsys, command, key):
    write, executed = downloaded
    write(**{key: CODE[key]})
    code, text = call(capsys, command, *COMMANDS[command])
    assert not executed.exists() and "Traceback" not in text, text
    if command in ("run", "plan"):
        assert code == 2 and CODE[key] in text and f"--set {key}={CODE[key]}" in text and "--study" in text


@pytest.mark.parametrize("command", ["run", "plan"])
def test_code_that_the_command_line_names_too_is_run(downloaded, capsys, command):
    write, executed = downloaded
    write(model=CODE["model"])
    code, text = call(capsys, command, "--set", f"model={CODE['model']}", *COMMANDS[command])
    assert code == 0 and executed.exists(), text


def test_the_python_interface_runs_no_code_that_only_a_store_names(downloaded):
    write, executed = downloaded
    write(**CODE)
    with pytest.raises(UserError, match="net.py") as caught:
        robustsweep.run("mine", store="downloaded", settings={"seeds": [0]})
    assert CODE["dataset"] in str(caught.value) and not executed.exists()
    robustsweep.load("downloaded")
    assert not executed.exists()


def test_images_that_only_a_store_names_are_data_and_are_used(downloaded, capsys, tmp_path):
    write, executed = downloaded
    write(dataset=f"npz:{tmp_path}/downloaded/bars.npz")
    code, text = call(capsys, *["run", *COMMANDS["run"]])
    assert code == 0 and not executed.exists(), text
