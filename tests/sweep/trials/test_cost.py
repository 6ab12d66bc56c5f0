"""What a training costs: more of anything costs more, so that the longest can start first."""

import pytest

from sweep.errors import UserError
from sweep.trials.cost import budget_hours, epochs, training_cost, training_seconds
from tests.sweep.tiny_study import tiny
from trainers.attacks import parse
from trainers.config import TrialConfig

SPEED = {"step": 0.01, "pass": 0.001}


@pytest.fixture
def config(tmp_path) -> TrialConfig:
    return tiny(tmp_path).config("at")


def recipe(config: TrialConfig, **changes) -> TrialConfig:
    return config.model_copy(update={"recipe": config.recipe.model_copy(update=changes)})


def longer(config: TrialConfig) -> dict[str, TrialConfig]:
    attack = config.recipe.attack.model_copy(update={"steps": 9})
    return {
        "epochs": recipe(config, epochs=50),
        "steps": recipe(config, steps=1000),
        "images": config.model_copy(update={"train_images": 1000}),
        "steps of the attack": recipe(config, attack=attack),
        "method": config.model_copy(update={"method": "mma"}),
    }


@pytest.mark.parametrize("more", ["epochs", "steps", "images", "steps of the attack", "method"])
def test_more_of_anything_costs_more(config, more):
    assert training_cost(longer(config)[more]) > training_cost(config)
    if more in ("epochs", "steps", "images"):
        assert training_seconds(longer(config)[more], SPEED) > training_seconds(config, SPEED)


def test_without_an_attack_a_training_costs_less(config):
    assert training_cost(config.model_copy(update={"method": "st"})) < training_cost(config)


def test_a_training_takes_longer_the_more_it_is_evaluated_and_the_slower_the_device(config):
    seldom = config.model_copy(update={"selection": config.selection.model_copy(update={"every": 3})})
    assert training_seconds(seldom, SPEED) < training_seconds(config, SPEED)
    twice = {name: 2 * seconds for name, seconds in SPEED.items()}
    assert training_seconds(config, twice) == pytest.approx(2 * training_seconds(config, SPEED))


def test_attacks_cost_by_their_steps_and_the_strong_ones_most():
    costs = [parse(name).cost for name in ("clean", "fgsm", "pgd-20", "pgd-100")]
    assert costs == sorted(set(costs))
    assert min(parse("autoattack").cost, parse("spsa").cost) > costs[-1]


def test_steps_are_epochs_too(config):
    # 120 training images in 4 batches
    assert epochs(config) == 3 and epochs(recipe(config, steps=8)) == 2 and epochs(recipe(config, steps=9)) == 3


def test_budgets_are_read_in_hours_minutes_and_days():
    assert budget_hours("500h") == 500 and budget_hours("30min") == 0.5 and budget_hours("2d") == 48
    assert budget_hours("1.5") == 1.5 and budget_hours(None) is None
    for wrong in ("soon", "-1h", "h", "0", "0min", "nan", "inf", "5x"):
        with pytest.raises(UserError, match="--budget"):
            budget_hours(wrong)
