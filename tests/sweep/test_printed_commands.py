"""Whatever commands, tables, figures and the page tell a user to type can be typed, and means what was run."""

import html
import re
import runpy
import shlex
import sys

import pytest
from stored import evaluation, search, write_trial
from typer.testing import CliRunner

from reports import write_reports
from sweep import commands
from sweep.application import app
from sweep.cli import main  # noqa: F401 - all commands are loaded
from sweep.deciding import Rules, ask
from sweep.store.manifests import write_manifest
from sweep.store.opening import open_store
from sweep.studies.options import StudyOptions
from sweep.trials import cells as planned

STUDY = """
title: Mine
dataset: digits
model: small_cnn
seeds: [0, 1]
train: {epochs: 4, attack: {epsilon: 0.1, step_size: 0.05, steps: 1}}
selection: {protocol: heldout, validation: 100, epsilon: 0.1, step_size: 0.05, steps: 1}
methods: {at: {}, twice: {}, st: {}, trades: {}}
search: {trades: {candidates: 2}}
evaluation: {attacks: [clean, pgd-50], epsilon: 0.1, images: 10}
"""
PLUGIN = """
from dataclasses import dataclass
from torch.nn.functional import cross_entropy
from trainers.method import Method

@dataclass(frozen=True)
class Twice(Method):
    def loss(self, model, images, labels, attack):
        return 2 * cross_entropy(model(images), labels)
"""
GIVEN = "--study mine --set train.epochs=7 --plugin twice.py --data-dir 'my data' --logger none --budget 3h --yes"


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """All that is printed about a store apart, of a study whose seed 1 of st failed, by place."""
    folder = tmp_path_factory.mktemp("told")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "mine.yaml").write_text(STUDY)
        (folder / "mine").mkdir()  # a folder of the study's name hides nothing
        (folder / "my data").mkdir()
        (folder / "twice.py").write_text(PLUGIN)
        store = open_store("runs/a b")
        study = StudyOptions("mine", ["train.epochs=7"], None, None, ["twice.py"]).load()
        store.write_record(search(study, "trades", ["done"], status="done", chosen={"beta": 3.0}))
        cells = planned.stored_cells(study, store)
        for cell in cells:
            failed = (cell.label, cell.seed) == ("st", 1)
            write_trial(
                store, cell, "failed" if failed else "done", command=f"python -m sweep.run {GIVEN} --store 'runs/a b'"
            )
            for attack in () if failed else (0, 1):
                right = {"at": 5, "twice": 6, "st": 2, "trades": 4, "trades_searched": 7}[cell.label] + cell.seed
                store.write_record(evaluation(study, cell, attack=attack, right=right))
        write_manifest(store, planned.manifest(study, cells, f"python -m sweep.run {GIVEN}"))
        write_reports(store.uri, None, folder / "out")
        found = {name: (folder / "out" / name).read_text() for name in ("tables.md", "report.html")}
        for words in (["status"], ["retry"], ["diff"], ["new", "other.yaml", "--plugin", "twice.py"]):
            place = [] if words[0] == "new" else ["--store", "runs/a b"]
            said = CliRunner().invoke(app, [*words, *place])
            assert said.exit_code == 0, said.output
            found[words[0]] = said.output
        yield found


def printed(text: str) -> set[str]:
    found = re.findall(r"python -m [a-z_.]+[^`<\n]*", html.unescape(text))
    return {one.strip() for one in found if "NAME" not in one}


def test_what_is_printed_runs_the_study_as_it_was_run(told):
    runs = {one for place, text in told.items() if place != "new" for one in printed(text) if "sweep.run" in one}
    assert len(runs) >= 4 and all(re.search(r"sweep\.run .*--study mine\b", one) for one in runs)
    for command in runs:
        words = shlex.split(command)[3:]
        assert [words[words.index(name) + 1] for name in ("--data-dir", "--store")] == ["my data", "runs/a b"], command
        shown = CliRunner().invoke(app, ["run", *words, "--dry-run"])
        assert shown.exit_code == 0, (command, shown.output)
        lines = [line.split() for line in shown.output.splitlines()[2:] if line.startswith(("at ", "twice "))]
        assert all(line[4] == "done" for line in lines if line[1] in "01"), (command, shown.output)


def test_every_place_says_something_to_type_and_all_of_it_is_known(told):
    for place in ("tables.md", "report.html", "status", "retry", "new"):
        assert printed(told[place]), place
    for command in {one for text in told.values() for one in printed(text)}:
        _, _, module, *words = shlex.split(command)
        name = {"reports": "report"}.get(module, module.removeprefix("sweep."))
        assert CliRunner().invoke(app, [name, *words, "--help"]).exit_code == 0, command


def test_a_searched_column_can_be_decided_as_it_is_advised(told):
    advised = {one for one in printed(told["tables.md"]) if "sweep.decide" in one and "trades_searched" in one}
    command = next(one for one in advised if "'trades_searched > at'" in one)
    found = CliRunner().invoke(app, ["decide", *shlex.split(command)[3:], "--max-seeds", "2", "--out", "decided"])
    assert found.exit_code == 0 and "trades_searched > at (PGD-50): " in found.output, found.output
    for one in advised:
        claim = shlex.split(one)[-3]
        assert ask(StudyOptions("mine"), claim, None, Rules(max_seeds=3)).study.seeds == (0, 1, 2)


def test_the_default_store_needs_no_mention_and_one_below_the_folder_is_named_shortly(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert commands.store_words(str(tmp_path / "store")) == []
    assert commands.store_words(str(tmp_path / "runs" / "a")) == ["--store", "runs/a"]
    assert commands.store_words("/elsewhere/store") == ["--store", "/elsewhere/store"]
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert commands.store_words("/elsewhere/store") == ["--store", "/elsewhere/store"]
    assert commands.store_words("s3://bucket/x?region=a&b=c") == ["--store", "s3://bucket/x?region=a&b=c"]


def test_advice_keeps_what_makes_the_study_and_drops_what_concerns_one_run():
    made_by = "python -m sweep.run --set a=1 --methods at --seeds=0 --retry-failed --store there --set 'b=[1, 2]' -y"
    assert commands.run("digits", made_by, "/s", "--seeds", "0-4") == (
        "python -m sweep.run --study digits --set a=1 --set 'b=[1, 2]' --seeds 0-4 --store /s"
    )
    assert commands.run("digits", None, "/s") == "python -m sweep.run --study digits --store /s"
    assert commands.narrowed(made_by, "--methods", "st").endswith("--set 'b=[1, 2]' -y --methods st")
    job = "python -m sweep.submit --address http://head:8265 --seeds 0 --study mine.yaml --store /shared/s"
    assert commands.run("mine", job, "/shared/s", "--retry-failed") == (
        "python -m sweep.submit --address http://head:8265 --study mine.yaml --retry-failed --store /shared/s"
    )
    assert commands.decide("digits", made_by, "/s", "sovr > at") == (
        "python -m sweep.decide --study digits --set a=1 --set 'b=[1, 2]' 'sovr > at' --store /s"
    )
    assert commands.decide("mine", job, "/shared/s", "sovr > at") == (
        "python -m sweep.decide --study mine.yaml 'sovr > at' --store /shared/s"
    )
    planned_by = "python -m sweep.plan --set a=1 --methods at --seeds=0 --store there --set 'b=[1, 2]'"
    assert commands.plan(made_by) == planned_by


def test_a_recorded_command_with_an_open_quote_counts_as_not_recorded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(STUDY.replace("twice: {}, ", ""))
    store, study = open_store("store"), StudyOptions("mine").load()
    write_manifest(store, planned.manifest(study, planned.stored_cells(study, store), "python -m sweep.run --x 'y"))
    write_reports(store.uri, None, tmp_path / "out")
    said = CliRunner().invoke(app, ["status"])
    assert said.exit_code == 0, said.output
    for text in (said.output, (tmp_path / "out/report.html").read_text()):
        assert any(command.startswith("python -m sweep.run --study mine") for command in printed(text))
    assert commands.narrowed("python -m sweep.run --x 'y", "--yes") == "python -m sweep.run --yes"


@pytest.mark.parametrize("name", ["run", "plan", "status", "retry", "gc", "merge", "new", "submit", "verify_store"])
def test_each_command_is_a_module_too(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"sweep/{name}.py", "--help"])
    monkeypatch.delitem(sys.modules, f"sweep.{name}")
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"sweep.{name}", run_name="__main__")
    assert ended.value.code == 0 and f"sweep {name.replace('_', '-')}" in capsys.readouterr().out
