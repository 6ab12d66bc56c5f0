"""The estimate adds up what is missing at a measured speed; the order of work needs only its shape."""

import pytest
from tiny_study import TINY, tiny

from sweep.store.base import open_store
from sweep.trials import cells as plan
from sweep.trials import cost

FAST = {"step": 0.01, "pass": 0.001}


@pytest.fixture
def measured(monkeypatch):
    """A machine of known speed: ten milliseconds a step, one a pass."""

    def answer(study, configs, address):
        return {cost._key(config): dict(FAST) for config in configs}, 2, "a machine"

    monkeypatch.setattr(cost, "_measure_all", answer)


def test_hours_add_up_by_hand(tmp_path, measured):
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0])
    found = cost.estimate(study, plan.expand(study), open_store(tmp_path / "store"))
    # 120 training images in 4 batches, 3 epochs; after each 40 test and 40 held-out images, one step and one forward.
    training = 3 * 4 * 0.01 + 3 * (40 + 40) * 0.001 * 1.4
    assert found["methods"]["at"]["train"] == pytest.approx(training / 3600)
    attacks = plan.evaluation_attacks(study)
    evaluating = sum(20 * 0.001 * a.cost for a in attacks)
    assert found["methods"]["at"]["evaluate"] == pytest.approx(evaluating / 3600)
    assert found["device_hours"] == pytest.approx((training + evaluating) / 3600)
    assert found["disk_bytes"] > 0


def test_searches_cost_their_candidates_and_stored_work_costs_nothing(tmp_path, measured):
    study, store = tiny(tmp_path), open_store(tmp_path / "store")
    found = cost.estimate(study, plan.expand(study), store, budget="1h")
    assert found["methods"]["sovr"]["search"] > 0 and found["methods"]["sovr"]["trials"] == 6 + 2
    assert found["within_budget"]
    for cell in plan.expand(study):
        if cell.trial and cell.label == "at":
            store.write_trial_record({"trial": cell.trial, "status": "collapsed"})
    later = cost.estimate(study, plan.expand(study), store)
    assert "at" not in later["methods"] and later["device_hours"] < found["device_hours"]


def test_when_only_evaluations_are_left_no_training_is_waited_for(tmp_path, measured):
    study, store = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0]), open_store(tmp_path / "store")
    for cell in plan.expand(study):
        store.write_trial_record({"trial": cell.trial, "status": "done"})
    found = cost.estimate(study, plan.expand(study), store)
    assert found["methods"]["at"]["train"] == 0
    assert found["wall_hours"] == pytest.approx(found["methods"]["at"]["evaluate"] / 2)


def test_a_column_that_waits_for_its_search_has_its_own_evaluations(tmp_path, measured):
    study, store = tiny(tmp_path), open_store(tmp_path / "store")
    found = cost.estimate(study, plan.expand(study), store)["methods"]
    assert found["sovr"]["evaluate"] == pytest.approx(found["at"]["evaluate"])


def test_a_budget_that_is_too_small_is_said(tmp_path, measured):
    study = tiny(tmp_path)
    found = cost.estimate(study, plan.expand(study), open_store(tmp_path / "store"), budget="0.00001h")
    assert not found["within_budget"] and "does not suffice" in cost.describe(found)
    assert "device-hours" in cost.describe(found) and "of disk" in cost.describe(found)


def test_the_micro_benchmark_measures_real_steps(tmp_path):
    study = tiny(tmp_path)
    adversarial, standard = study.config("at"), study.config("at").model_copy(update={"method": "st"})
    heavy = adversarial.recipe.model_copy(update={"attack": adversarial.recipe.attack.model_copy(update={"steps": 20})})
    texts = [standard.model_dump_json(), adversarial.model_copy(update={"recipe": heavy}).model_dump_json()]
    found = cost.measure(texts, 1, {})
    plain, attacked = (speed["step"] for speed in found["speeds"])
    assert 0 < plain < attacked  # twenty attack steps cannot be cheaper than none
    assert all(speed["pass"] > 0 for speed in found["speeds"])


def test_the_longest_training_comes_first(tmp_path):
    study = tiny(tmp_path)
    config = study.config("at")
    longer = config.model_copy(update={"recipe": config.recipe.model_copy(update={"epochs": 50})})
    standard = config.model_copy(update={"method": "st"})
    assert cost.relative_cost(longer) > cost.relative_cost(config) > cost.relative_cost(standard)


def test_a_study_of_one_epoch_can_be_measured_too(tmp_path):
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0], train={**TINY["train"], "epochs": 1})
    (speed,) = cost.measure([study.config("at").model_dump_json()], 1.0, {})["speeds"]
    assert speed["step"] > 0 and speed["pass"] > 0


def test_a_method_that_needs_files_is_measured_without_them(tmp_path):
    config = tiny(tmp_path, methods={"at+awp+ddpm": {}}, search=None).config("at+awp+ddpm")
    assert cost.measure([config.model_dump_json()], 1, {})["speeds"][0]["step"] > 0
