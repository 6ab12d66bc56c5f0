"""A trained trial of the store under attack: by items, by the command, and its diagnostics."""

import io
import json
import shutil
import sys

import numpy as np
import pytest
from tests.sweep.tiny_study import tiny

from sweep import evaluate as command
from sweep.engine import run_study
from sweep.errors import UserError
from sweep.evaluation import items as work
from sweep.evaluation.asked import diagnoses_of
from sweep.evaluation.checkpoints import trial_parts
from sweep.evaluation.diagnosis import diagnose_trial, diagnostics_path
from sweep.store.base import FORMAT, open_store
from sweep.trials import cells as plan
from sweep.trials.identity import NUMERICS_VERSION, trial_hash
from trainers.config import Recipe, Selection, TrialConfig
from trainers.evaluate import evaluate_shard
from trainers.suites import parse
from trainers.train import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    store = open_store(tmp_path_factory.mktemp("store"))
    config = TrialConfig(
        dataset="digits", model="small_cnn", method="at", train_images=200, test_images=30,
        recipe=Recipe(epochs=2, batch_size=50, learning_rate=0.05), selection=Selection(steps=2),
    )  # fmt: skip
    trial = trial_hash(config)
    outcome = train(config, folder=store.local(f"trials/{trial[:16]}"))
    store.write_trial_record(
        {"kind": "trial", "format": FORMAT, "trial": trial, "config": config.model_dump(mode="json"),
         "numerics": NUMERICS_VERSION, **outcome}
    )  # fmt: skip
    return store, trial, config


def test_items_of_a_trial_are_computed_from_the_store_alone(trained):
    store, trial, config = trained
    attack = parse("pgd-10", epsilon="0.1")
    evaluation = work.of_trial(trial, config, "last", attack, shards=2, batch_size=15)
    assert evaluation.images == 30
    items = work.next_items(store, evaluation)
    assert [(item.first, item.last) for item in items] == [(0, 15), (15, 30)]
    for item in items:
        work.compute(store.uri, item, None)
    assert work.next_items(store, evaluation) == []
    (record,) = store.evaluation_records(trial)
    model, images, labels = trial_parts(store.uri, trial, "last", None, "cpu")
    expected = evaluate_shard(model, images, labels, attack).correct.numpy()
    assert np.array_equal(work.unpack(record["verdicts"], 30), expected)
    assert record["trial"] == trial and record["checkpoint"] == "last"


def test_the_command_takes_a_checkpoint_of_the_store(trained, monkeypatch, capsys):
    store, trial, _ = trained
    arguments = ["--checkpoint", f"{trial[:16]}/best_test", "--attacks", "clean", "--store", store.uri, "--json"]
    monkeypatch.setattr(sys, "argv", ["sweep evaluate", *arguments])
    assert command.main() == 0
    result = json.loads(capsys.readouterr().out)
    assert result["name"] == trial and result["checkpoint"] == "best_test"
    (entry,) = result["evaluations"].values()
    # The training loop and the evaluation agree about the same weights.
    record = store.trial_record(trial)
    epoch = record["checkpoints"]["best_test"]["epoch"]
    assert entry["accuracy"] == pytest.approx(record["curve"][epoch]["test_clean_accuracy"])


def test_absent_trials_and_checkpoints_are_named(trained):
    store, trial, _ = trained
    with pytest.raises(UserError, match="has no record"):
        trial_parts(store.uri, 64 * "0", "last", None, "cpu")
    with pytest.raises(UserError, match="no checkpoint 'best_validation'; stored: .*last"):
        trial_parts(store.uri, trial, "best_validation", None, "cpu")


@pytest.mark.parametrize("damage", [lambda data: data[:500], lambda data: data[:-4] + b"\0\0\1\1", lambda data: b""])
def test_a_damaged_checkpoint_is_named_with_the_way_out(trained, tmp_path, monkeypatch, capsys, damage):
    source, trial, _ = trained
    store = open_store(shutil.copytree(source.local("trials").parent, tmp_path / "copy"))
    path = f"trials/{trial[:16]}/last.safetensors"
    store.write(path, damage(store.read(path)))
    monkeypatch.setattr(sys, "argv", ["sweep evaluate", "--checkpoint", f"{trial}/last", "--store", store.uri])
    assert command.main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    expected = store.trial_record(trial)["checkpoints"]["last"]["sha256"]
    assert f"{path} is damaged" in line and expected[:16] in line and f"delete the folder trials/{trial[:16]}" in line


@pytest.mark.timeout(300)
def test_what_broke_in_a_finished_study_is_made_again_by_the_same_command(tmp_path, capsys):
    study = tiny(tmp_path, methods={"at": {}}, seeds=[0], search=None)
    store = open_store(tmp_path / "store")

    def run():
        return run_study(study, store, data_dir=tmp_path / "data", out=None, loggers=()), capsys.readouterr().err

    assert run()[0].complete
    path = store.evaluation_paths()[0]
    whole = store.read_json(path)
    store.write(path, store.read(path)[:200])
    summary, told = run()
    assert summary.complete and not summary.all_there and f"broken record {path}: deleted, to be computed again" in told
    assert store.read_json(path)["verdicts"] == whole["verdicts"]

    folder = store.local(f"trials/{whole['trial'][:16]}")
    weights = folder / f"{whole['checkpoint']}.safetensors"
    weights.write_bytes(weights.read_bytes()[:300])
    store.delete(path)
    summary, told = run()
    assert not summary.complete and f"{weights.name} is damaged" in told
    shutil.rmtree(folder)
    summary, told = run()
    assert summary.complete and summary.done["train"] == 1
    assert store.read_json(path)["verdicts"] == whole["verdicts"]
    assert run()[0].all_there


def test_diagnostics_are_stored_once_with_their_arrays_and_settings(trained):
    store, trial, _ = trained
    record = diagnose_trial(store.uri, trial, "last", None, epsilon="0.1", images=20)
    place = f"diagnostics/{trial[:16]}"
    with np.load(io.BytesIO(store.read(f"{place}/{record['arrays']}")), allow_pickle=False) as arrays:
        assert arrays["train_margin"].shape == (20,)
        assert record["summary"]["train_margin_mean"] == pytest.approx(arrays["train_margin"].mean(), rel=1e-5)
    assert (record["epsilon"], record["images"]) == ("0.1", 20)
    before = set(store.list(place))
    again = diagnose_trial(store.uri, trial, "last", None, epsilon="0.1", images=20)
    assert again == store.read_json(diagnostics_path(trial, "last", "0.1", 20)) and set(store.list(place)) == before


def test_diagnostics_with_other_settings_stand_beside_the_first(trained):
    store, trial, _ = trained
    first = diagnose_trial(store.uri, trial, "last", None, epsilon="0.1", images=20)
    for epsilon, images in (("0.1", 10), ("0.3", 20)):
        other = diagnose_trial(store.uri, trial, "last", None, epsilon=epsilon, images=images)
        assert (other["epsilon"], other["images"]) == (epsilon, images)
        assert other["summary"] != first["summary"] and other["arrays"] != first["arrays"]
    assert store.read_json(diagnostics_path(trial, "last", "0.1", 20))["summary"] == first["summary"]


def test_broken_diagnostics_are_computed_again(trained):
    store, trial, _ = trained
    first = diagnose_trial(store.uri, trial, "last", None, epsilon="0.1", images=20)
    path = diagnostics_path(trial, "last", "0.1", 20)
    store.write(path, store.read(path)[:200])
    assert store.broken_results() == [path]
    again = diagnose_trial(store.uri, trial, "last", None, epsilon="0.1", images=20)
    assert again["summary"] == first["summary"] and store.broken_results() == []


def test_a_study_asks_for_diagnostics_with_its_own_settings(tmp_path):
    evaluation = {"suite": "logit_scaling", "epsilon": "0.1", "images": 20, "diagnostics": True}

    def asked(**changes):
        study = tiny(tmp_path, methods={"at": {}}, search=None, evaluation={**evaluation, **changes})
        return diagnoses_of(study, plan.expand(study)[0])

    assert set(asked()) == {"best_validation", "last"} and asked() == asked(shards=2)
    places = [asked()["last"], asked(epsilon="8/255")["last"], asked(images=10)["last"], asked(images=None)["last"]]
    assert len(set(places)) == 4 and len({path.rpartition("/")[0] for path in places}) == 1
