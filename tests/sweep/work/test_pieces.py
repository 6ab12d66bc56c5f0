"""A piece of work is a complete, plain Tune config with a title for people, and is made from that config again."""

import json
from dataclasses import replace

import pytest

from sweep.evaluation.asked import Diagnosis, Evaluation
from sweep.store import layout
from sweep.store.opening import open_store
from sweep.work.pieces import (
    STAGES,
    Attack,
    Candidate,
    DiagnosisPiece,
    Training,
    evaluation_metrics,
    piece_from,
    plain,
    trial_metrics,
)
from tests import records
from trainers.attack import AttackSettings
from trainers.attacks import parse
from trainers.config import Recipe
from trainers.plugins import registry

TRIAL = records.TRIAL
# As a study would have it: wrappers, values of a method, parts of the recipe and a schedule of its own.
CONFIG = records.trial_config(
    method="sovr",
    hyperparameters={"M": 40, "lam": 0.4},
    seed=2,
    train_images=100,
    recipe=Recipe(epochs=5, schedule={"kind": "piecewise", "at": [2, 4], "factors": [0.1, 0.01]}),
    selection={"protocol": "heldout", "validation": 20},
)


def attack(name="pgd-20", checkpoint="best_validation", **changes) -> Attack:
    settings = AttackSettings(images=(0, 40), classes=10, shape=(1, 8, 8))
    return Attack("sovr", CONFIG, TRIAL, Evaluation(TRIAL, checkpoint, parse(name, settings), 40), **changes)


def candidate(**changes) -> Candidate:
    facts = {"search": records.SEARCH, "index": 3, "cut_offs": {}, "metric": "validation_margin_accuracy", **changes}
    return Candidate("sovr", CONFIG, TRIAL, **facts)


PIECES = {
    "training": Training("sovr", CONFIG, TRIAL),
    "training with wrappers": Training(
        "at+awp+seat", records.trial_config(wrappers={"awp": {"gamma": 0.01}, "seat": {}}), TRIAL
    ),
    "training by steps": Training("mma", CONFIG.model_copy(update={"recipe": Recipe(steps=700)}), TRIAL),
    "candidate": candidate(),
    "candidate with cut-offs": candidate(cut_offs={2: 0.25, 4: 1 / 3}),
    "attack": attack(),
    "part of an attack": attack("autoattack", part=2, parts=4),
    "attack at another radius": attack("autoattack@l2:128/255"),
    "corruption": attack("corruption-fog-3"),
    "attack without counterexamples": replace(
        attack(), evaluation=replace(attack().evaluation, shards=3, batch_size=7, counterexamples=False)
    ),
    "diagnosis": DiagnosisPiece("sovr", CONFIG, TRIAL, Diagnosis(TRIAL, "last", "8/255")),
    "diagnosis of some images": DiagnosisPiece("sovr", CONFIG, TRIAL, Diagnosis(TRIAL, "epoch-3", "0.5", 30, "l2")),
}


@pytest.mark.parametrize("kind", PIECES)
def test_a_config_is_plain_json_and_becomes_the_same_piece_again(kind):
    piece = PIECES[kind]
    config = piece.tune_config("tiny")
    again = piece_from(json.loads(plain(config)))
    assert again == piece and type(again) is type(piece) and piece_from(config) == piece
    assert (again.name, again.title, again.lease, again.cost) == (piece.name, piece.title, piece.lease, piece.cost)
    assert again.tune_config("tiny") == config


@pytest.mark.parametrize("kind", PIECES)
def test_a_config_says_what_a_reader_looks_for_first(kind):
    piece = PIECES[kind]
    config = piece.tune_config("tiny")
    assert list(config)[:2] == ["title", "study"] and config["title"] == piece.title
    assert config["stage"] == piece.stage and config["stage"] in STAGES
    assert (config["study"], config["column"], config["trial"]) == ("tiny", piece.label, TRIAL)
    assert config["method"] == piece.config.method and config["seed"] == piece.config.seed
    assert config["hyperparameters"] == piece.config.hyperparameters
    assert (config["dataset"], config["model"]) == ("digits", "small_cnn")
    assert config["settings"] == piece.config.model_dump(mode="json", exclude_none=True)


def test_an_attack_of_a_plug_in_becomes_the_same_piece_again(tmp_path):
    file = tmp_path / "noise.py"
    file.write_text(
        "from trainers.attack import EvaluationAttack\n\n"
        "class Noise(EvaluationAttack):\n"
        "    kind: str = 'noise'\n"
        "    draws: int = 3\n"
    )
    registry.load_plugin(file)
    piece = attack("noise")
    assert piece.evaluation.attack.plugin
    assert piece_from(json.loads(plain(piece.tune_config("tiny")))) == piece


def test_a_stage_that_nobody_knows_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="'bake' is none of search, train, attack, diagnose"):
        piece_from({**PIECES["training"].tune_config("tiny"), "stage": "bake"})


def test_a_config_with_more_than_plain_values_is_refused():
    with pytest.raises(TypeError):
        plain({"setting": object()})


@pytest.mark.parametrize(
    ("piece", "title"),
    [
        (PIECES["training"], "sovr seed 2"),
        (PIECES["candidate"], "sovr candidate 3 seed 2"),
        (attack("autoattack"), "sovr seed 2 · autoattack"),
        (attack("autoattack", part=2, parts=4), "sovr seed 2 · autoattack 2/4"),
        (attack("clean"), "sovr seed 2 · clean"),
        (attack("pgd-20", "last"), "sovr seed 2 last · pgd-20"),
        (attack("autoattack*2"), "sovr seed 2 · autoattack linf 16/255"),
        (attack("autoattack@l2:128/255"), "sovr seed 2 · autoattack l2 128/255"),
        (PIECES["diagnosis"], "sovr seed 2 · diagnosis last"),
    ],
)
def test_a_title_names_column_seed_and_what_is_done(piece, title):
    assert piece.title == title


def test_pieces_that_are_done_apart_have_names_apart():
    pieces = [attack("clean"), attack(), attack(checkpoint="last"), attack("pgd-50"), attack("autoattack*2")]
    pieces += [attack("autoattack@l2:0.5"), attack(part=2, parts=2), PIECES["training"]]
    pieces += [PIECES["candidate"], PIECES["diagnosis"], PIECES["diagnosis of some images"]]
    assert len({piece.name for piece in pieces}) == len(pieces)


def test_the_same_training_of_two_searches_is_two_pieces_under_one_lease():
    one, other = candidate(search="sovr-a"), candidate(search="sovr-b")
    assert one.name != other.name and one.lease == other.lease == PIECES["training"].lease == layout.trial_lease(TRIAL)


def test_parts_of_an_attack_share_its_lease_and_its_cost():
    whole, parts = attack("autoattack"), [attack("autoattack", part=part, parts=4) for part in (1, 2, 3, 4)]
    assert len({part.name for part in parts}) == 4 and {part.lease for part in parts} == {whole.lease}
    assert sum(part.cost for part in parts) == pytest.approx(whole.cost)


def test_a_retry_repeats_the_piece_and_nothing_else():
    command = "python -m sweep.run --study tiny --methods at,sovr --seeds 0,1,2"
    for piece in (PIECES["training"], PIECES["attack"], PIECES["diagnosis"]):
        again = piece.retry_command(command)
        assert again.endswith("--methods sovr --seeds 2 --retry-failed") and "at,sovr" not in again
    # The seed of a candidate belongs to the search: no seed of the tables could name it.
    assert PIECES["candidate"].retry_command(command).endswith("--seeds 0,1,2 --methods sovr --retry-failed")


def test_what_is_stored_is_not_done_again(tmp_path):
    store = open_store(tmp_path)
    training, pruned, attacked, diagnosed = (
        PIECES[kind] for kind in ("training", "candidate", "attack", "diagnosis of some images")
    )
    assert all(piece.stored(store) is None for piece in PIECES.values())
    store.write_record(records.candidate_record(TRIAL, curve=({}, {})))
    assert pruned.stored(store) == {"state": "pruned", "epochs": 2} and training.stored(store) is None
    store.write_record(records.trial_record(config=CONFIG))
    assert training.stored(store)["state"] == "done"
    evaluation = attacked.evaluation
    store.write_record(records.evaluation_record(attack=evaluation.attack, checkpoint=evaluation.checkpoint))
    assert attacked.stored(store) == {"state": "done", "accuracy": 0.5, "images": 20}
    wanted = diagnosed.diagnosis
    arrays = wanted.record.replace(".json", ".npz")
    store.write(arrays, b"")
    facts = {name: getattr(wanted, name) for name in ("checkpoint", "epsilon", "images", "norm")}
    store.write_record(records.diagnostics_record(**facts, arrays=arrays.rpartition("/")[2]))
    assert diagnosed.stored(store)["margin_mean"] == 0.1


def test_a_failed_training_is_stored_until_it_is_asked_for_again(tmp_path):
    store, piece = open_store(tmp_path), PIECES["training"]
    store.write_record(piece.failed_record("no memory", ["last line"], "python -m sweep.run --methods at"))
    record = store.trial_record(TRIAL)
    assert (record.status, record.reason, record.log) == ("failed", "no memory", ("last line",))
    assert record.command == "python -m sweep.run --methods sovr --seeds 2 --retry-failed" and record.versions
    assert piece.stored(store)["state"] == "failed" and piece.stored(store, retry_failed=True) is None


def test_attacks_and_diagnoses_that_fail_leave_no_record():
    """The trial itself is fine: the next run simply tries them again."""
    for kind in ("attack", "diagnosis"):
        assert PIECES[kind].failed_record("no memory", [], "") is None


def test_the_metrics_of_a_training_are_what_its_tables_show():
    accuracies = {"best_validation_validation_pgd_accuracy": 0.4, "best_validation_validation_clean_accuracy": 0.8}
    record = records.trial_record(config=CONFIG, metrics=accuracies, wall_seconds=7.5)
    metrics = trial_metrics(record)
    assert metrics == {
        **{"state": "done", "epochs": 3, "wall_seconds": 7.5},
        **accuracies,
        **{"robust_accuracy": 0.4, "clean_accuracy": 0.8},
    }
    both = {**accuracies, "best_validation_test_pgd_accuracy": 0.3}
    assert trial_metrics(records.trial_record(config=CONFIG, metrics=both))["robust_accuracy"] == 0.3
    assert "robust_accuracy" not in trial_metrics(records.trial_record(config=CONFIG, status="collapsed"))


def test_the_metrics_of_an_attack_are_those_of_its_record():
    assert evaluation_metrics(records.evaluation_record(accuracy=0.25)) == {
        "state": "done",
        "accuracy": 0.25,
        "images": 20,
    }
