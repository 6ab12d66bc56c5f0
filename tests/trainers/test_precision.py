"""Precision, compilation and memory format of a network: on the CPU for agreement, on the meta device for strides."""

from __future__ import annotations

import copy
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainers.small_trials import small_trial
from trainers import composition, models
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.config import Recipe
from trainers.loop import precision
from trainers.loop.precision import evaluation_precision, laid_out, prepared, used_precision
from trainers.loop.reproducible import kernels, reproducible
from trainers.loop.short_training import digits
from trainers.loop.step import training_step
from trainers.loop.train import Training, train
from trainers.method import Batch

CPU, META = torch.device("cpu"), torch.device("meta")


def losses(method: str, steps: int, **recipe: Any) -> tuple[list[float], torch.nn.Module]:
    """Of so many steps on the same images, the model afterwards."""
    torch.manual_seed(0)
    model = prepared(models.build("small_cnn", 10, shape=(1, 8, 8)), CPU, Recipe(**recipe))
    built, data = composition.build(method), digits()
    images, labels = data.train_images[:64].float() / 255, data.train_labels[:64]
    batch = Batch(images, labels, torch.arange(64), built.new_state(64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    found = []
    with reproducible(CPU, Recipe(**recipe)):
        for step in range(steps):
            attack = ProjectedAscent(0.1, 0.05, 3, built.start, built.mode, torch.Generator().manual_seed(step))
            found.append(training_step(model, optimizer, built, batch, attack).loss.item())
    return found, model


@pytest.mark.parametrize("method", ["at", "trades", "sovr"])
def test_bfloat16_losses_are_within_two_percent_and_all_that_is_kept_is_float32(method: str) -> None:
    expected, _ = losses(method, 10)
    found, model = losses(method, 10, precision="bf16")
    assert found == pytest.approx(expected, rel=0.02) and found != expected
    assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float32, torch.int64}
    assert model(torch.rand(2, 1, 8, 8)).dtype == torch.float32


def test_bfloat16_covers_copies_of_the_model_and_their_own_weights() -> None:
    _, model = losses("at", 1, precision="bf16")
    twin, images = copy.deepcopy(model).eval(), torch.rand(4, 1, 8, 8)
    model.eval()
    assert torch.equal(twin(images), model(images))
    with torch.no_grad():
        twin.fc2.bias.add_(1.0)
    assert torch.allclose(twin(images), model(images) + 1.0, atol=0.05) and not torch.equal(twin(images), model(images))


def test_tf32_and_ieee_are_the_same_numbers_on_a_cpu() -> None:
    assert losses("at", 2)[0] == losses("at", 2, precision="ieee")[0] == losses("at", 2, precision="tf32")[0]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_compiled_network_gives_the_same_numbers(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend == "inductor" and not os.environ.get("ROBUSTSWEEP_COMPILE"):
        pytest.skip("compiles C++ for 40 seconds; ask for it by ROBUSTSWEEP_COMPILE=1")
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    precision._compiled.cache_clear()
    expected, plain = losses("at", 3)
    found, compiled = losses("at", 3, compile=True)
    assert found == pytest.approx(expected, rel=1e-5)
    for name, tensor in plain.state_dict().items():
        assert torch.allclose(tensor, compiled.state_dict()[name], atol=1e-5), name
    precision._compiled.cache_clear()


def test_switches_at_their_defaults_are_the_same_trial_and_stand_nowhere() -> None:
    plain = Recipe()
    assert Recipe(compile=False, deterministic=False, channels_last=True) == plain
    assert not {"precision", "compile", "deterministic", "channels_last"} & set(plain.model_dump())
    asked = Recipe(precision="bf16", compile=True, deterministic=True, channels_last=False)
    assert Recipe.model_validate_json(asked.model_dump_json()) == asked
    with pytest.raises(ValueError, match="precision"):
        Recipe(precision="fp16")


@pytest.mark.parametrize("crop", ["none", "reflect", "zero"])
@pytest.mark.parametrize("last", [None, False])
def test_off_the_cpu_images_have_the_format_of_the_weights_on_every_augmentation_path(
    crop: str, last: bool | None, tmp_path: Path
) -> None:
    recipe = {"augmentation": {"crop": crop, "padding": 1}, "channels_last": last}
    training = Training(small_trial(recipe=recipe, test_images=32), tmp_path, None, META, digits())
    images, _, _ = next(training.images.epoch(0))
    weights = training.model.conv1.weight
    images = laid_out(images.expand(-1, 3, -1, -1).contiguous(), training.model)  # of one channel, both formats are one
    assert weights.is_contiguous(memory_format=torch.channels_last) == (last is None)
    assert images.is_contiguous(memory_format=torch.channels_last) == (last is None)


def test_kernels_follow_the_precision_and_are_set_back() -> None:
    convolutions, products = torch.backends.cudnn.conv, torch.backends.cuda.matmul
    before = convolutions.fp32_precision, products.fp32_precision, torch.backends.cudnn.benchmark
    for asked, expected in (("ieee", "ieee"), ("tf32", "tf32"), ("bf16", "tf32"), (None, None)):
        with kernels(asked, searched=True):
            assert torch.backends.cudnn.benchmark
            assert expected is None or convolutions.fp32_precision == products.fp32_precision == expected
        assert (convolutions.fp32_precision, products.fp32_precision, torch.backends.cudnn.benchmark) == before
    with reproducible(META, Recipe(deterministic=True)):
        assert torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.benchmark
    assert not composition.method_of("mma").fixed_shapes and composition.method_of("at").fixed_shapes


def test_evaluations_are_never_below_tf32() -> None:
    assert [evaluation_precision(one) for one in (None, "ieee", "tf32", "bf16")] == [None, "ieee", "tf32", "tf32"]
    assert [used_precision(one, "cpu") for one in (None, "ieee", "tf32", "bf16")] == ["ieee", "ieee", "ieee", "bf16"]


def test_a_training_names_every_device_that_took_part(tmp_path: Path) -> None:
    class Interrupted(Exception):
        pass

    def stop(row: dict[str, Any]) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        train(small_trial(), folder=tmp_path, device_name="first", on_epoch=stop)
    with pytest.raises(Interrupted):
        train(small_trial(), folder=tmp_path, device_name="second", on_epoch=stop)
    assert train(small_trial(), folder=tmp_path, device_name="first")["devices"] == ["first", "second"]
