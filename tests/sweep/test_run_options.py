"""A dry run checks what a run checks, and hours of work without a terminal need a yes."""

import pytest

from sweep import cli
from sweep.engine import run as engine
from sweep.engine.options import RunOptions
from sweep.engine.run import run_study
from sweep.errors import UserError
from sweep.planning import estimate
from sweep.store.opening import open_store
from sweep.studies.model import Study
from tests.sweep.tiny_study import tiny


class NoTerminal:
    def isatty(self):
        return False


@pytest.fixture
def call(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        with pytest.raises(SystemExit) as caught:
            cli.main(list(words))
        captured = capsys.readouterr()
        return caught.value.code, captured.out, captured.err

    return run


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--budget", value) for value in ("5x", "nan", "0", "-5h", "inf")),
        ("--logger", "foo"),
        ("--logger", "tensorboard,absent"),
        *(("--address", value) for value in ("nonsense", "http://head:8265", "host:port")),
        ("--out", "/dev/null"),
        ("--out", "afile/below"),
        ("--data-dir", "/nonexistent"),
        ("--data-dir", "afile"),
        *(("--wait-for-nodes", value) for value in ("inf",)),
    ],
)
def test_a_dry_run_refuses_what_the_run_refuses(call, tmp_path, option, value):
    (tmp_path / "afile").touch()
    code, out, message = call("run", "--dry-run", option, value)
    assert code == 2 and out == "" and value.split(",")[-1] in message and message.startswith("error: ")
    assert call("run", "--yes", option, value) == (2, "", message)
    assert [path.name for path in tmp_path.iterdir()] == ["afile"]


def test_a_dry_run_names_a_logger_that_is_not_installed(call, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, message = call("run", "--dry-run", "--logger", "wandb")
    assert code == 2 and "robustsweep[wandb]" in message


@pytest.mark.parametrize("words", [("--address", "head:6379"), ("--data-dir", "data"), ("--out", "new/folder")])
def test_a_dry_run_takes_what_a_run_could_take(call, tmp_path, words):
    assert call("run", "--dry-run", *words)[0] in (0, None)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_data_are_downloaded_to_need_not_exist(call, tmp_path):
    words = ("run", "--study", "mnist_small", "--dry-run", "--data-dir")
    assert call(*words, str(tmp_path / "new"))[0] in (0, None)
    code, _, message = call(*words, str(tmp_path / "neither" / "new"))
    assert code == 2 and "neither" in message


def test_json_without_a_dry_run_is_refused(call):
    code, _, message = call("run", "--json")
    assert code == 2 and "--dry-run" in message


def test_many_device_hours_without_a_terminal_need_a_yes(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", NoTerminal())
    monkeypatch.setattr(estimate, "estimate", lambda *_, **__: {"device_hours": 12.5})
    study, store = Study.load("cifar10_rn18", methods=["at"]), open_store(tmp_path / "store")
    with pytest.raises(UserError, match="12.5 device-hours") as caught:
        run_study(study, store, RunOptions(out=None))
    assert "--yes" in str(caught.value) and "sweep.plan" in str(caught.value)
    started = []
    monkeypatch.setattr("sweep.engine.driver.compute", lambda *_: started.append(1) or pytest.skip.Exception)
    for allowed in (RunOptions(out=None, yes=True), RunOptions(out=None, budget="4h")):
        with pytest.raises(AttributeError):
            run_study(study, store, allowed)
    assert len(started) == 2


def test_a_small_study_starts_without_a_measurement(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", NoTerminal())
    monkeypatch.setattr(estimate, "estimate", lambda *_, **__: pytest.fail("measured"))
    store = open_store(tmp_path / "store")
    engine._confirm(tiny(tmp_path), store, "python -m sweep.run", RunOptions())
