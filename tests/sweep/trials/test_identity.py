"""A trial's name is a function of all that can move its numbers."""

import pytest
from optuna.distributions import FloatDistribution

from search_spaces import sovr
from sweep.evaluation import subject
from sweep.evaluation.subject import EvaluateOptions, find_subject
from sweep.store.encoding import canonical_json
from sweep.store.folder import FolderStore
from sweep.studies.model import Study
from sweep.trials import identity
from sweep.trials.identity import search_id, trial_hash, trial_hashes
from trainers.config import Recipe, Selection, TrialConfig
from trainers.values import check_amount


def config(**changes) -> TrialConfig:
    return TrialConfig(**{"dataset": "digits", "model": "small_cnn", "method": "sovr", **changes})


def test_a_trials_name_is_known_for_ever():
    # A change of this value orphans every stored trial: raise NUMERICS_VERSION on purpose, never by accident.
    fixed = TrialConfig(
        dataset="cifar10", model="preact_resnet18", method="sovr", hyperparameters={"M": 40, "lam": 0.4}
    )
    assert trial_hash(fixed) == "3cdaccc6253403a3ed993e7dc8a39393d9ccb6d160c1b8dae2139ef110624548"


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
        {"recipe": Recipe(attack={"epsilon": "0.031372549"})},
        {"recipe": Recipe(attack={"epsilon": "0.0313725490199"})},
        {"train_images": 100},
        {"plugin": "ab"},
        {"method": "sovr+awp"},
        {"recipe": Recipe(attack={"start": "none"})},
        {"recipe": Recipe(attack={"mode": "eval"})},
        {"selection": Selection(from_epoch=1)},
    ],
)
def test_whatever_can_move_a_number_moves_the_name(change):
    assert trial_hash(config(**change)) != trial_hash(config())


@pytest.mark.parametrize(
    ("method", "one", "other"),
    [
        ("sovr", {"epsilon": "1/5"}, {"epsilon": "0.20"}),
        ("sovr", {"epsilon": 0.2}, {"epsilon": "51/255"}),
        ("sovr", {"epsilon": "4/85"}, {"epsilon": "12/255"}),
        ("sovr", {"epsilon": "8/255"}, {"epsilon": "0.03137254901960784"}),
        ("sovr", {"epsilon": "8/255"}, {"epsilon": 8 / 255}),
        ("sovr", {"norm": "l2", "epsilon": "128/255"}, {"norm": "l2", "epsilon": 128 / 255}),
        ("sovr", {"step_size": "2/255"}, {"step_size": 2 / 255}),
        ("sovr", {}, {"start": "uniform", "mode": "train"}),
        ("trades+awp", {}, {"start": "gauss", "mode": "eval"}),
    ],
)
def test_one_setting_in_two_spellings_is_one_trial(method, one, other):
    first, second = (
        config(method=method, recipe=Recipe(attack=attack), selection=Selection(epsilon=attack.get("epsilon", "8/255")))
        for attack in (one, other)
    )
    assert trial_hash(first) == trial_hash(second)
    assert trial_hash(config(method="at", recipe=first.recipe)) != trial_hash(config(method="trades"))


@pytest.mark.parametrize("amount", ["0.2", "0.05", "0.08", "0.3", "0.031", "0.0314", "0.502", "0.5", "12", "0.03137"])
def test_a_decimal_of_one_s_own_is_no_fraction(amount):
    assert check_amount(amount) == check_amount(float(amount)) == amount


def test_every_255th_is_one_radius_as_a_fraction_and_as_the_decimal_that_is_printed_of_it():
    for count in range(1, 511):
        wanted = check_amount(f"{count}/255")
        assert wanted == check_amount(count / 255) == check_amount(repr(count / 255)) == check_amount(wanted)
        assert f"{count / 255:.10g}" in (wanted, check_amount(f"{count / 255:.10g}"))  # a shorter decimal stays


def test_recording_margins_is_no_setting_any_more():
    assert trial_hash(config(margins=True)) == trial_hash(config(margins=False)) == trial_hash(config())


def test_the_numerics_version_is_part_of_every_name(monkeypatch, tmp_path):
    study = Study.load("digits")
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(b"weights")
    options = EvaluateOptions(str(weights), model="small_cnn", dataset="digits")

    def names():
        outside = find_subject(FolderStore(tmp_path / "store"), options).name
        return trial_hash(config()), search_id(study, "sovr"), outside

    before = names()
    for module in (identity, subject):
        monkeypatch.setattr(module, "NUMERICS_VERSION", identity.NUMERICS_VERSION + 1)
    assert all(one != other for one, other in zip(before, names(), strict=True))


def test_a_search_s_override_is_part_of_its_name_in_one_spelling():
    plain, same, other = (
        search_id(Study.load("digits", overrides=overrides), "sovr")
        for overrides in ([], ["search.sovr.selection.epsilon=1/5"], ["search.sovr.selection.epsilon=1/10"])
    )
    assert plain == same != other


def test_a_list_of_one_objective_is_the_search_of_that_one():
    def name(objective):
        return search_id(Study.load("digits", overrides=[f"search.sovr.objective={objective}"]), "sovr")

    assert name("margin") == name("[margin]") == search_id(Study.load("digits"), "sovr")
    assert len({name("margin"), name("pgd"), name("[margin,pgd]"), name("[pgd,margin]")}) == 4


def test_hashing_many_seeds_at_once_is_hashing_each():
    many = trial_hashes(config(), [3, 4])
    assert many == [trial_hash(config(seed=3)), trial_hash(config(seed=4))]


def test_another_recipe_is_another_search():
    study, longer = Study.load("digits"), Study.load("digits", overrides=["train.epochs=99"])
    assert search_id(study, "sovr") != search_id(longer, "sovr")
    fewer = Study.load("digits", overrides=["search.sovr.candidates=2"])
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
