"""A trial's name is a function of all that can move its numbers."""

import pytest
from optuna.distributions import FloatDistribution

from search_spaces import sovr
from sweep.store.encoding import canonical_json
from sweep.studies.model import Study
from sweep.trials.identity import search_id, trial_hash, trial_hashes
from trainers.config import Recipe, TrialConfig


def config(**changes) -> TrialConfig:
    return TrialConfig(**{"dataset": "digits", "model": "small_cnn", "method": "sovr", **changes})


def test_a_trials_name_is_known_for_ever():
    # A change of this value orphans every stored trial: raise NUMERICS_VERSION on purpose, never by accident.
    fixed = TrialConfig(
        dataset="cifar10", model="preact_resnet18", method="sovr", hyperparameters={"M": 40, "lam": 0.4}
    )
    assert trial_hash(fixed) == "0ac067d8b9117f6fb780deb841453068da0bba24291d4a348d4605da00964281"


def test_rounding_errors_do_not_make_a_new_trial():
    one = config(hyperparameters={"lam": 0.1 + 0.2 + 0.3, "M": 40})
    other = config(hyperparameters={"M": 40.0, "lam": 0.6})
    assert trial_hash(one) == trial_hash(other)
    assert canonical_json({"a": 0.1 + 0.2, "b": float("inf")}) == '{"a":0.3,"b":"inf"}'


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"hyperparameters": {"lam": 0.5}},
        {"recipe": Recipe(learning_rate=0.05)},
        {"recipe": Recipe(attack={"epsilon": "0.0313725490196"})},
        {"train_images": 100},
        {"plugin": "ab"},
        {"method": "sovr+awp"},
        {"margins": True},
    ],
)
def test_whatever_can_move_a_number_moves_the_name(change):
    assert trial_hash(config(**change)) != trial_hash(config())


def test_hashing_many_seeds_at_once_is_hashing_each():
    many = trial_hashes(config(), [3, 4])
    assert many == [trial_hash(config(seed=3)), trial_hash(config(seed=4))]


def test_another_recipe_is_another_search():
    study, longer = Study.load("digits"), Study.load("digits", overrides=["train.epochs=99"])
    assert search_id(study, "sovr") != search_id(longer, "sovr")
    fewer = Study.load("digits", overrides=["search.sovr.candidates=3"])
    assert search_id(study, "sovr") != search_id(fewer, "sovr")


def test_another_space_is_another_search(monkeypatch):
    study = Study.load("digits")
    before = search_id(study, "sovr")
    assert search_id(Study.load("digits"), "sovr") == before
    finer = {**sovr.SPACES["paper"], "lam": FloatDistribution(0.2, 1.0, step=0.05)}
    monkeypatch.setitem(sovr.SPACES, "paper", finer)
    other = search_id(study, "sovr")
    monkeypatch.setitem(sovr.SPACES, "paper", {**finer, "lam": FloatDistribution(0.2, 0.9, step=0.05)})
    assert len({before, other, search_id(study, "sovr")}) == 3
    monkeypatch.undo()
    assert search_id(study, "sovr") == before
    monkeypatch.setitem(sovr.PAPER_VALUES, "default", {"M": 50, "lam": 0.4})
    assert search_id(study, "sovr") != before
