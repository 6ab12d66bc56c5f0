"""The training loop: what it selects, records, refuses and gives up on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_trials import every_kind_of_trial, small_trial

from trainers import assembly, data
from trainers.config import InnerAttack, Recipe, Schedule, Selection
from trainers.loop.checkpoint import load_resume
from trainers.loop.train import Training, train
from trainers.measures import measurement
from trainers.wrappers.ddpm import Ddpm
from trainers.wrappers.seat import Seat


def test_adversarial_training_makes_a_network_robust(tmp_path: Path) -> None:
    recipe = Recipe(
        epochs=6,
        batch_size=64,
        learning_rate=0.05,
        schedule=Schedule(at=(4, 5)),
        attack=InnerAttack(epsilon="0.15", step_size="0.05", steps=5),
    )
    selection = Selection(epsilon="0.15", step_size="0.05", steps=10)
    robust, standard = (
        train(
            small_trial(name, train_images=400, test_images=None, selection=selection).model_copy(
                update={"recipe": recipe}
            ),
            folder=tmp_path / name,
        )
        for name in ("at", "st")
    )
    assert robust["curve"][-1]["test_pgd_accuracy"] > standard["curve"][-1]["test_pgd_accuracy"] + 0.2
    assert standard["curve"][-1]["test_clean_accuracy"] > 0.9
    assert robust["curve"][-1]["train_loss"] < robust["curve"][0]["train_loss"]


def test_the_outcome_has_one_row_per_epoch_and_the_checkpoints_asked_for(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    config = every_kind_of_trial(tmp_path)["at"]
    outcome = train(config, folder=tmp_path / "trial", on_epoch=seen.append)
    assert outcome["status"] == "done" and outcome["reason"] is None and outcome["steps"] == 3 * 2
    assert seen == outcome["curve"] and [row["epoch"] for row in seen] == [0, 1, 2]
    assert set(outcome["checkpoints"]) == {"last", "best_test", "best_validation", "epoch-2"}
    for row in seen:
        for key in ("train_loss", "train_accuracy", "train_margin", "learning_rate", "seconds"):
            assert isinstance(row[key], float), key
        for key in ("test_clean", "test_pgd", "validation_clean", "validation_pgd"):
            assert 0 <= row[f"{key}_accuracy"] <= 1
    for name, facts in outcome["checkpoints"].items():
        assert (tmp_path / "trial" / f"{name}.safetensors").stat().st_size == facts["bytes"]


def scripted(monkeypatch: pytest.MonkeyPatch, name: str, values: list[float]) -> None:
    script: Iterator[float] = iter(values)
    monkeypatch.setattr(measurement, name, lambda *_, **__: next(script))


@pytest.mark.parametrize(("ties", "expected"), [("first", 1), ("last", 3)])
def test_the_best_epoch_is_the_first_maximum_or_the_last_where_asked(
    ties: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, "pgd_accuracy", [0.2, 0.5, 0.4, 0.5, 0.1])
    selection = Selection(ties=ties)  # type: ignore[arg-type]
    outcome = train(small_trial(recipe={"epochs": 5}, selection=selection), folder=tmp_path)
    assert outcome["checkpoints"]["best_test"]["epoch"] == expected
    assert outcome["checkpoints"]["last"]["epoch"] == 4


def test_validation_selects_its_own_epoch_and_never_sees_the_test_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, "pgd_accuracy", [0.9, 0.1, 0.2, 0.6, 0.3, 0.4])  # test and validation in turn
    both = train(small_trial(selection=Selection(validation=16)), folder=tmp_path / "both")
    chosen = {name: facts["epoch"] for name, facts in both["checkpoints"].items()}
    assert chosen == {"best_test": 0, "best_validation": 1, "last": 2}


def test_the_protocol_heldout_never_touches_the_test_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def measured(model: Any, images: torch.Tensor, *_: Any, **__: Any) -> float:
        seen.append(len(images))
        return 0.5

    monkeypatch.setattr(measurement, "pgd_accuracy", measured)
    monkeypatch.setattr(measurement, "accuracy", measured)
    trial = small_trial(selection=Selection(protocol="heldout", validation=16))
    outcome = train(trial, folder=tmp_path)
    assert seen == [16] * 6 and set(outcome["checkpoints"]) == {"best_validation", "last"}
    assert all(row["test_pgd_accuracy"] is row["test_clean_accuracy"] is None for row in outcome["curve"])


def test_standard_training_is_selected_by_clean_accuracy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, "pgd_accuracy", [0.1, 0.2, 0.3])
    scripted(monkeypatch, "accuracy", [0.5, 0.9, 0.8])
    outcome = train(small_trial("st"), folder=tmp_path)
    assert outcome["checkpoints"]["best_test"]["epoch"] == 1


def test_evaluations_may_be_rarer_than_epochs_but_the_last_epoch_has_one(tmp_path: Path) -> None:
    outcome = train(small_trial(recipe={"epochs": 5}, selection=Selection(every=2, steps=1)), folder=tmp_path)
    evaluated = [row["epoch"] for row in outcome["curve"] if row["test_pgd_accuracy"] is not None]
    assert evaluated == [1, 3, 4]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"from_epoch": 3}, [3, 4]),
        ({"from_epoch": 2, "every": 2}, [3, 4]),
        ({"from_epoch": 99}, [4]),
        ({}, [*range(5)]),
    ],
)
def test_selection_may_begin_late_but_the_last_epoch_is_always_measured(
    settings: dict[str, int], expected: list[int], tmp_path: Path
) -> None:
    outcome = train(small_trial(recipe={"epochs": 5}, selection=Selection(steps=1, **settings)), folder=tmp_path)
    assert [row["epoch"] for row in outcome["curve"] if row["test_pgd_accuracy"] is not None] == expected
    assert outcome["checkpoints"]["best_test"]["epoch"] in expected


def test_a_diverging_training_is_recorded_as_collapsed_with_its_reason(tmp_path: Path) -> None:
    outcome = train(small_trial(recipe={"learning_rate": 1e30}), folder=tmp_path)
    assert outcome["status"] == "collapsed" and "loss is" in outcome["reason"] and "epoch 0" in outcome["reason"]
    assert outcome["steps"] == 1 and outcome["reason"].endswith("at step 1")


def test_chance_accuracy_late_in_training_is_a_collapse_and_early_on_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, "accuracy", [0.1] * 40)
    stuck = train(small_trial(recipe={"epochs": 30}, train_images=32), folder=tmp_path / "stuck")
    assert stuck["status"] == "collapsed" and "chance" in stuck["reason"] and len(stuck["curve"]) == 15
    again = train(small_trial(recipe={"epochs": 30}, train_images=32), folder=tmp_path / "stuck")
    assert again["status"] == "collapsed" and len(again["curve"]) == 15
    scripted(monkeypatch, "accuracy", [0.1] * 14 + [0.9] * 16)
    late = train(small_trial(recipe={"epochs": 30}, train_images=32), folder=tmp_path / "late")
    assert late["status"] == "done"


@pytest.mark.parametrize(
    ("settings", "epochs"), [({"every": 4}, 15), ({"from_epoch": 18}, 28), ({"from_epoch": 25}, 30)]
)
def test_chance_must_last_for_ten_epochs_however_few_of_them_are_measured(
    settings: dict[str, int], epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, "accuracy", [0.1] * 40)
    trial = small_trial(recipe={"epochs": 30}, train_images=32, selection=Selection(steps=1, **settings))
    stuck = train(trial, folder=tmp_path)
    assert len(stuck["curve"]) == epochs and (stuck["status"] == "collapsed") == (epochs < 30)


def test_a_collapse_is_judged_on_held_out_images_where_there_are_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = small_trial(recipe={"epochs": 20}, train_images=48, selection=Selection(validation=16))
    scripted(monkeypatch, "accuracy", [0.0, 0.9] * 20)  # test and validation in turn
    assert train(trial, folder=tmp_path / "good")["status"] == "done"
    scripted(monkeypatch, "accuracy", [0.9, 0.0] * 20)
    stuck = train(trial, folder=tmp_path / "stuck")
    assert stuck["status"] == "collapsed" and "validation accuracy" in stuck["reason"]


def test_training_noise_is_drawn_by_key_and_not_from_torch_s_generators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a generator of a device was asked")

    cpu = torch.device("cpu")
    names = ("at", "trades", "mma")
    trainings = [Training(small_trial(name), tmp_path, None, cpu, None) for name in names]
    monkeypatch.setattr(torch.Tensor, "uniform_", refuse)
    monkeypatch.setattr(torch.Tensor, "normal_", refuse)
    for training in trainings:
        training.run_epoch()


def test_a_number_of_steps_may_end_within_an_epoch(tmp_path: Path) -> None:
    outcome = train(small_trial("mma", recipe={"steps": 4}), folder=tmp_path)  # 80 images are 3 batches
    assert outcome["steps"] == 4 and len(outcome["curve"]) == 2


def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_ones(tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float64)  # what an earlier trial in this process may have left behind
    try:
        first = train(small_trial(), folder=tmp_path / "first")
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    again = train(small_trial(), folder=tmp_path / "again")
    other = train(small_trial(seed=1), folder=tmp_path / "other")
    assert first["checkpoints"] == again["checkpoints"] != other["checkpoints"]
    assert not torch.are_deterministic_algorithms_enabled()


def test_stored_weights_give_back_the_evaluated_model(tmp_path: Path) -> None:
    config = small_trial(recipe={"epochs": 2})
    outcome = train(config, folder=tmp_path)
    model = assembly.build_model(config).eval()
    model.load_state_dict(load_file(tmp_path / "last.safetensors"))
    bundle = data.load("digits").limited(None, 40)
    right = (model(bundle.test_images.float() / 255).argmax(1) == bundle.test_labels).float().mean().item()
    assert right == pytest.approx(outcome["curve"][-1]["test_clean_accuracy"])


def test_with_averaging_the_averaged_model_is_evaluated_and_kept(tmp_path: Path) -> None:
    train(small_trial("at+seat", seat=Seat()), folder=tmp_path)
    state = load_resume(tmp_path / "resume.pt")
    assert state is not None
    kept = load_file(tmp_path / "last.safetensors")
    assert all(torch.equal(kept[name], state["wrappers"]["seat"][name]) for name in kept)
    assert not torch.equal(kept["conv1.weight"], state["model"]["conv1.weight"])


def test_the_first_step_of_the_ddpm_setting_sets_the_running_statistics_to_the_first_batch(tmp_path: Path) -> None:
    every_kind_of_trial(tmp_path)  # writes the synthetic images
    settings = {"steps": 1, "log_clean_forward": False, "attack": InnerAttack(steps=0, mode="eval", start="none")}
    config = small_trial("st+ddpm", ddpm=Ddpm(file="extra.npz"), recipe=settings)
    training = Training(config, tmp_path / "trial", tmp_path, torch.device("cpu"), None)
    training.folder.mkdir()
    inputs: list[torch.Tensor] = []
    bn = training.model.get_submodule("bn1")
    bn.register_forward_pre_hook(lambda _, given: inputs.append(given[0].detach().clone()))
    training.run_epoch()
    assert torch.allclose(bn.running_mean, inputs[0].mean((0, 2, 3)), atol=1e-6)
    assert bn.momentum == 0.1


@pytest.mark.parametrize("decay_batchnorm", [True, False])
def test_weight_decay_spares_batchnorm_where_asked(decay_batchnorm: bool) -> None:
    config = small_trial(recipe={"decay_batchnorm": decay_batchnorm, "weight_decay": 0.1})
    model = assembly.build_model(config)
    groups = assembly.build_optimizer(model, config).param_groups
    decays = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    expected = 0.1 if decay_batchnorm else 0.0
    for name, parameter in model.named_parameters():
        assert decays[id(parameter)] == (expected if name.startswith("bn") else 0.1)
    assert len(decays) == len(list(model.parameters()))


def test_the_one_cycle_schedule_moves_rate_and_momentum_each_epoch(tmp_path: Path) -> None:
    config = every_kind_of_trial(tmp_path)["at+ddpm"]
    training = Training(config, tmp_path / "trial", tmp_path, torch.device("cpu"), None)
    training.folder.mkdir()
    seen = []
    while not training.finished:
        training.run_epoch()
        group = training.optimizer.param_groups[0]
        seen.append((group["lr"], group["momentum"]))
    assert len({rate for rate, _ in seen}) == 3 and seen[-1][1] == pytest.approx(0.95)


def test_a_method_keeps_its_own_start_and_mode_unless_the_study_sets_them() -> None:
    from trainers import composition

    trades = composition.build("trades")
    attack = assembly.build_attack(small_trial("trades"), trades)
    assert (attack.start, attack.mode) == ("gauss", "eval")
    asked = InnerAttack(start="uniform", mode="train_untracked")
    attack = assembly.build_attack(small_trial("trades", recipe={"attack": asked}), trades)
    assert (attack.start, attack.mode) == ("uniform", "train_untracked")


def test_a_real_image_trial_runs_on_the_papers_network(shared: Path, tmp_path: Path) -> None:
    recipe = Recipe(
        epochs=1, batch_size=16, attack=InnerAttack(steps=1), augmentation={"crop": "reflect", "flip": True}
    )
    config = small_trial(
        dataset="cifar10", model="preact_resnet18", train_images=32, test_images=16, selection=Selection(steps=1)
    ).model_copy(update={"recipe": recipe})
    outcome = train(config, folder=tmp_path, data_dir=shared / "data")
    assert outcome["status"] == "done" and outcome["steps"] == 2


def test_a_wrappers_name_and_its_settings_go_together(tmp_path: Path) -> None:
    for config in (small_trial("at+seat"), small_trial("at", seat=Seat())):
        with pytest.raises(ValueError, match=r"\+seat in the name"):
            train(config, folder=tmp_path)
