"""A trained trial of the store under attack: by items, by the command, and its diagnostics."""

import io
import json
import sys

import numpy as np
import pytest

from sweep import evaluate as command
from sweep import evaluation as work
from sweep.checkpoints import trial_parts
from sweep.diagnosis import diagnose_trial, is_diagnosed
from sweep.errors import UserError
from sweep.identity import NUMERICS_VERSION, trial_hash
from sweep.store import FORMAT, open_store
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


def test_diagnostics_are_stored_once_with_their_arrays(trained):
    store, trial, _ = trained
    assert not is_diagnosed(store, trial, "last")
    record = diagnose_trial(store.uri, trial, "last", None, epsilon=0.1, images=20)
    assert is_diagnosed(store, trial, "last")
    with np.load(io.BytesIO(store.read(f"diagnostics/{trial[:16]}/last.npz")), allow_pickle=False) as arrays:
        assert arrays["train_margin"].shape == (20,)
        assert record["summary"]["train_margin_mean"] == pytest.approx(arrays["train_margin"].mean(), rel=1e-5)
    assert diagnose_trial(store.uri, trial, "last", None) == store.read_json(f"diagnostics/{trial[:16]}/last.json")
