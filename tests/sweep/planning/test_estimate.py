"""The estimate adds up what is missing, at a measured speed."""

import pytest

from sweep.evaluation.asked import evaluations_of
from sweep.planning import estimate as estimates
from sweep.planning.estimate import counted, describe, describe_counted, estimate
from sweep.planning.speed import measure
from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.trials.cells import expand
from tests import records
from tests.sweep.tiny_study import TINY, tiny


@pytest.fixture
def measured(monkeypatch):
    """A machine of known speed: ten milliseconds a step, one a pass."""

    def answer(study, configs, address):
        return {estimates._key(config): {"step": 0.01, "pass": 0.001} for config in configs}, 2, "a machine"

    monkeypatch.setattr(estimates, "_measure_all", answer)


def hours(study, store):
    return estimate(study, expand(study), store)


def test_hours_grow_with_epochs_seeds_and_images(tmp_path, measured):
    store = open_store(tmp_path / "store")
    only = {"methods": {"at": {}}, "search": None, "seeds": [0]}
    base = hours(tiny(tmp_path, **only), store)
    assert base["device_hours"] == sum(base["methods"]["at"][stage] for stage in ("search", "train", "evaluate"))
    assert base["disk_bytes"] > 0 and base["methods"]["at"]["trials"] == 1
    double = hours(tiny(tmp_path, **{**only, "train": {**TINY["train"], "epochs": 6}}), store)
    assert double["methods"]["at"]["train"] == pytest.approx(2 * base["methods"]["at"]["train"])
    assert double["methods"]["at"]["evaluate"] == base["methods"]["at"]["evaluate"]
    wider = hours(tiny(tmp_path, **{**only, "evaluation": {**TINY["evaluation"], "images": 40}}), store)
    assert wider["methods"]["at"]["evaluate"] == pytest.approx(2 * base["methods"]["at"]["evaluate"])
    assert wider["methods"]["at"]["train"] == base["methods"]["at"]["train"]
    seeds = hours(tiny(tmp_path, **{**only, "seeds": [0, 1, 2]}), store)
    assert seeds["device_hours"] == pytest.approx(3 * base["device_hours"])


def test_a_training_by_hand(tmp_path, measured):
    found = hours(tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0]), open_store(tmp_path / "store"))
    # 120 training images in 4 batches, 3 epochs; after each 40 held-out images, one step and one forward.
    training = 3 * 4 * 0.01 + 3 * 40 * 0.001 * 1.4
    assert found["methods"]["at"]["train"] == pytest.approx(training / 3600)


def test_searches_cost_their_candidates_and_stored_work_costs_nothing(tmp_path, measured):
    study, store = tiny(tmp_path), open_store(tmp_path / "store")
    found = estimate(study, expand(study), store, budget="1h")
    assert found["methods"]["sovr"]["search"] > 0 and found["methods"]["sovr"]["trials"] == 6 + 2 + 2
    assert found["within_budget"]
    for cell in expand(study):
        if cell.trial and cell.label == "at":
            store.write_record(records.trial_record(cell.trial, status="collapsed"))
    later = hours(study, store)
    assert "at" not in later["methods"] and later["device_hours"] < found["device_hours"]


def test_when_only_evaluations_are_left_no_training_is_waited_for(tmp_path, measured):
    study, store = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0]), open_store(tmp_path / "store")
    for cell in expand(study):
        store.write_record(records.trial_record(cell.trial))
    found = hours(study, store)
    assert found["methods"]["at"]["train"] == 0
    assert found["wall_hours"] == pytest.approx(found["methods"]["at"]["evaluate"] / 2)


def test_a_column_that_waits_for_its_search_has_its_own_evaluations(tmp_path, measured):
    found = hours(tiny(tmp_path), open_store(tmp_path / "store"))["methods"]
    assert found["sovr"]["evaluate"] == pytest.approx(2 * found["at"]["evaluate"])


def test_the_wall_time_holds_the_chain_of_search_training_and_evaluation(tmp_path, measured):
    study, store = tiny(tmp_path), open_store(tmp_path / "store")
    found = hours(study, store)
    training = (3 * 4 * 0.01 + 3 * 40 * 0.001 * 1.4) / 3600  # as above; the search's own epochs are the study's
    search = study.search_config("sovr", {})
    assert search.recipe.epochs == 3 and search.selection.steps == 1
    # Six candidates come in two generations, then a training, then the longest attack on its one piece of images.
    attack = max(one.cost for cell in expand(study)[:1] for one in evaluations_of(study, cell)) * 0.001 / 3600
    assert found["chain_hours"] == pytest.approx(2 * training + training + attack)
    low, high = found["wall_hours_range"]
    assert low <= found["wall_hours"] <= high and found["wall_hours"] >= found["chain_hours"]
    low, high = found["device_hours_range"]
    assert low < found["device_hours"] < high  # the search may be pruned more or less


def test_without_a_measurement_passes_and_operations_are_counted(tmp_path):
    study, store = (
        tiny(tmp_path, methods={"st": {}, "at": {}, "trades": {}}, search=None),
        open_store(tmp_path / "store"),
    )
    found = counted(study, expand(study), store)
    rows = found["methods"]
    # One attack step: a forward and a backward to the pixels, beside the three of an update and the logging forward.
    assert rows["st"]["forwards"] == pytest.approx(4, abs=0.1) and rows["at"]["forwards"] == pytest.approx(6, abs=0.1)
    assert rows["st"]["train"] < rows["at"]["train"] < rows["trades"]["train"]
    assert found["petaflop"] > 0 and "counted, not measured" in describe_counted(found)


def test_memory_is_that_of_the_activations_held_at_once(tmp_path):
    study = Study.load("cifar10_ddpm")
    found = counted(study, expand(study), open_store(tmp_path / "store"))["memory"]
    plain, two = (found[f"wrn_28_10_silu {name}+ddpm"] for name in ("at", "trades"))
    assert two["activations"] == pytest.approx(2 * plain["activations"], rel=0.02)  # clean and attacked, both kept
    assert plain["activations"] / 1024**3 == pytest.approx(27.6, abs=0.1)  # of 1024 images, as a real forward keeps
    assert (plain["gpu"], two["gpu"]) == (40, 80)


def test_a_budget_that_is_too_small_is_said(tmp_path, measured):
    study = tiny(tmp_path)
    found = estimate(study, expand(study), open_store(tmp_path / "store"), budget="0.00001h")
    assert not found["within_budget"] and "does not suffice" in describe(found)
    assert "device-hours" in describe(found) and "of disk" in describe(found)


def test_the_micro_benchmark_measures_real_steps(tmp_path):
    study = tiny(tmp_path)
    adversarial, standard = study.config("at"), study.config("at").model_copy(update={"method": "st"})
    heavy = adversarial.recipe.model_copy(update={"attack": adversarial.recipe.attack.model_copy(update={"steps": 20})})
    texts = [standard.model_dump_json(), adversarial.model_copy(update={"recipe": heavy}).model_dump_json()]
    plain, attacked = measure(texts, 1, {})["speeds"]
    assert 0 < plain["step"] < attacked["step"]  # twenty attack steps cannot be cheaper than none
    assert plain["pass"] > 0 and attacked["pass"] > 0


def test_a_study_of_one_epoch_can_be_measured_too(tmp_path):
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0], train={**TINY["train"], "epochs": 1})
    (speed,) = measure([study.config("at").model_dump_json()], 1.0, {})["speeds"]
    assert speed["step"] > 0 and speed["pass"] > 0


def test_a_method_that_needs_files_is_measured_without_them(tmp_path):
    config = tiny(tmp_path, methods={"at+awp+ddpm": {}}, search=None).config("at+awp+ddpm")
    assert measure([config.model_dump_json()], 1, {})["speeds"][0]["step"] > 0
