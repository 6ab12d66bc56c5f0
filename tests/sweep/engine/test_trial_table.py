"""The table of a run's trials, by Ray Tune and without it, holds what the records hold."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import robustsweep
from sweep.engine.trial_table import COLUMNS, table_of, trial_table
from sweep.errors import UserError
from sweep.store import layout
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord
from tests.sweep.test_engine import outcome
from tests.sweep.tiny_study import tiny

FAILING = """
from dataclasses import dataclass

from trainers.method import Method


@dataclass(frozen=True)
class Failing(Method):
    def loss(self, model, images, labels, attack):
        raise RuntimeError("the loss is broken")
"""
STUDY = {
    "methods": {"at": {}, "sovr": {}, "failing": {}},
    "search": {"sovr": {"candidates": 2, "seed": 1000}},
    "seeds": [0],
    "resources": {"retries": 1},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same study by Ray Tune and in this process: its frames and its store."""
    folder = tmp_path_factory.mktemp("runs")
    plugin = folder / "failing.py"
    plugin.write_text(FAILING)
    tiny(folder, plugins=(plugin,), **STUDY)
    found = {}
    for name in ("tune", "local"):
        options = {"store": folder / name, "plugins": [plugin], "data_dir": folder}
        found[name] = robustsweep.run(folder / "tiny.yaml", **options, local=name == "local"), folder / name
    return found


@pytest.fixture(params=["tune", "local"])
def run(request, runs):
    return runs[request.param]


@pytest.mark.timeout(300, func_only=True)
def test_every_training_has_the_accuracies_of_its_record(run):
    frames, folder = run
    store = open_store(folder)
    trainings = frames.trials[frames.trials["stage"].isin(["search", "train"]) & (frames.trials["state"] == "done")]
    assert len(trainings) == 5 and set(trainings["column"]) == {"at", "sovr", "sovr_searched"}
    for row in trainings.to_dict("records"):
        record = store.trial_record(row["trial"])
        assert {name: row[name] for name in record.metrics} == record.metrics
        assert row["robust_accuracy"] == record.metrics["best_validation_validation_pgd_accuracy"]
        assert (row["epochs"], row["seed"]) == (len(record.curve), record.config.seed)
        hyperparameters = {name: row[f"hyperparameter_{name}"] for name in record.config.hyperparameters}
        assert hyperparameters == record.config.hyperparameters


def test_every_attack_has_the_accuracy_of_its_record(run):
    frames, folder = run
    store = open_store(folder)
    attacks = frames.trials[frames.trials["stage"] == "attack"].set_index(["trial", "checkpoint", "attack"])
    records = list(store.records(EvaluationRecord, store.record_paths(EvaluationRecord)))
    assert len(attacks) == len(records) > 0 and set(attacks["state"]) == {"done"}
    for record in records:
        row = attacks.loc[(layout.short(record.trial), record.checkpoint, record.attack["name"])]
        assert (row["accuracy"], row["images"]) == (record.accuracy, record.images)
        assert (row["norm"], row["epsilon"]) == (record.attack["norm"], record.attack["epsilon"])
        assert row["title"].endswith(record.attack["name"])


def test_the_table_shows_what_the_evaluations_show(run):
    frames, _ = run
    shown = frames.evaluations[["trial", "checkpoint", "attack", "accuracy"]].dropna()
    merged = shown.merge(frames.trials, on=["trial", "checkpoint", "attack"], suffixes=("", "_of_trial"))
    assert len(merged) == len(shown) and merged["accuracy"].tolist() == merged["accuracy_of_trial"].tolist()


def test_an_attempt_that_failed_is_a_row_with_its_reason(run):
    frames, _ = run
    failed = frames.trials[frames.trials["column"] == "failing"]
    assert failed["attempt"].tolist() == [1, 2] and set(failed["state"]) == {"failed"}
    assert failed["reason"].str.contains("the loss is broken").all()


def test_a_local_run_has_the_outcome_and_the_table_of_one_by_ray(runs):
    (tune, tune_store), (local, local_store) = runs["tune"], runs["local"]
    assert outcome(local_store) == outcome(tune_store)
    assert list(tune.trials.columns)[: len(COLUMNS)] == list(COLUMNS) == list(local.trials.columns)[: len(COLUMNS)]
    keys = ["trial", "stage", "checkpoint", "attack", "attempt"]
    differing = {"title", "seconds", "wall_seconds", "host"}
    tables = [
        frames.trials[sorted(set(frames.trials.columns) - differing)].sort_values(keys, ignore_index=True)
        for frames in (tune, local)
    ]
    pd.testing.assert_frame_equal(*tables, check_dtype=False)


def test_where_nothing_was_run_the_table_is_empty_with_its_columns(runs):
    frames, folder = runs["local"]
    again = robustsweep.run(folder.parent / "tiny.yaml", store=folder, plugins=[folder.parent / "failing.py"])
    for trials in (again.trials, robustsweep.load(folder).trials):
        assert trials.empty and list(trials.columns) == list(COLUMNS)


def test_a_trial_that_reported_no_end_was_stopped():
    rows = [
        {
            "epoch": 3,
            "train_loss": 1.0,
            "config": {"title": "at seed 0", "stage": "train", "seed": 0, "trial": "ab" * 32},
        }
    ]
    assert table_of(rows)["state"].tolist() == ["stopped"]
    assert trial_table(pd.DataFrame()).empty


def test_a_local_run_starts_no_ray(tmp_path):
    tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0])
    code = (
        "import sys, robustsweep; "
        f"found = robustsweep.run({str(tmp_path / 'tiny.yaml')!r}, store={str(tmp_path / 'store')!r}, local=True); "
        "print(len(found.trials), 'ray' in sys.modules and sys.modules['ray'].is_initialized())"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["6", "False"]


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        ("--local --address auto", "--address auto"),
        ("--local --dashboard", "--dashboard"),
        ("--local --logger mlflow", "--logger mlflow"),
        ("--dashboard --address head:6379", "head:6379"),
    ],
)
def test_options_that_contradict_each_other_are_refused(words, way_out, capsys, monkeypatch, tmp_path):
    from sweep import cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sweep.engine.checks.check_loggers", lambda names: None)  # it need not be installed
    with pytest.raises(SystemExit) as caught:
        cli.main(["run", "--dry-run", *words.split()])
    message = capsys.readouterr().err
    assert caught.value.code == 2 and way_out in message and words.split()[0] in message


def test_a_local_run_in_a_cluster_is_refused_from_python_too(tmp_path):
    with pytest.raises(UserError, match="--address auto"):
        robustsweep.run("digits", store=tmp_path, local=True, address="auto")


def test_a_dashboard_without_its_packages_is_refused_with_the_way_to_get_them(capsys, monkeypatch, tmp_path):
    from sweep import cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sweep.engine.checks.DASHBOARD_PACKAGES", ("no_such_package",))
    with pytest.raises(SystemExit) as caught:
        cli.main(["run", "--dry-run", "--dashboard"])
    assert caught.value.code == 2 and "robustsweep[cluster]" in capsys.readouterr().err
