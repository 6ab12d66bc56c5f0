"""Architectures: parameter counts, order of operations, initialisation, standardisation."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from trainers import models

CIFAR = (3, 32, 32)


@pytest.mark.parametrize(
    ("name", "classes", "parameters", "convolutions", "batchnorms"),
    [
        ("preact_resnet18", 10, 11_172_170, 20, 17),
        ("preact_resnet18", 100, 11_218_340, 20, 17),
        ("wrn_34_10", 10, 46_160_474, 34, 31),
        ("wrn_28_10_silu", 10, 36_479_194, 28, 25),
        ("wrn_70_16_silu", 10, 266_796_506, 70, 67),
        ("resnet18_64", 200, 11_271_432, 20, 20),
    ],
)
def test_sizes_are_those_of_the_official_definitions(
    name: str, classes: int, parameters: int, convolutions: int, batchnorms: int
) -> None:
    with torch.device("meta"):  # sizes need no numbers
        model = models.build(name, classes, shape=CIFAR)
    assert sum(p.numel() for p in model.parameters()) == parameters
    modules = list(model.modules())
    assert sum(isinstance(m, nn.Conv2d) for m in modules) == convolutions
    assert sum(isinstance(m, nn.BatchNorm2d) for m in modules) == batchnorms


def test_21_tensors_of_a_preact_resnet18_are_perturbed_by_awp() -> None:
    with torch.device("meta"):
        model = models.build("preact_resnet18", 10, shape=CIFAR)
    assert sum(name.endswith("weight") and p.dim() > 1 for name, p in model.named_parameters()) == 21


def test_a_projecting_shortcut_takes_the_activated_input_and_an_identity_the_raw_one() -> None:
    model = models.build("preact_resnet18", 10, shape=CIFAR).eval()
    block = model.get_submodule("layer2.0")
    assert isinstance(block.shortcut, nn.Sequential)
    features = torch.randn(2, 64, 8, 8)
    activated = torch.relu(block.bn1(features))
    inner = block.conv2(torch.relu(block.bn2(block.conv1(activated))))
    assert torch.allclose(block(features), inner + block.shortcut(activated), atol=1e-6)

    plain = model.get_submodule("layer2.1")
    features = torch.randn(2, 128, 8, 8)
    inner = plain.conv2(torch.relu(plain.bn2(plain.conv1(torch.relu(plain.bn1(features))))))
    assert plain.shortcut is None and torch.allclose(plain(features), inner + features, atol=1e-6)


def test_the_stem_has_no_batchnorm_and_the_head_has_one() -> None:
    model = models.build("preact_resnet18", 10, shape=CIFAR).eval()
    seen: dict[str, torch.Tensor] = {}
    model.get_submodule("layer1").register_forward_pre_hook(lambda _, given: seen.update(stem=given[0].clone()))
    model.get_submodule("layer4").register_forward_hook(lambda _, __, out: seen.update(body=out.clone()))
    images = torch.rand(2, *CIFAR)
    logits = model(images)
    assert torch.allclose(seen["stem"], model.get_submodule("conv1")(images), atol=1e-6)
    pooled = torch.relu(model.get_submodule("bn")(seen["body"])).mean((2, 3))
    assert torch.allclose(logits, model.get_submodule("linear")(pooled), atol=1e-5)


def test_wide_blocks_run_in_pre_activation_order() -> None:
    with torch.device("meta"):
        model = models.build("wrn_34_10", 10, shape=CIFAR)
    assert [len(model.get_submodule(f"block{i}.layer")) for i in (1, 2, 3)] == [5, 5, 5]  # type: ignore[arg-type]
    from trainers.models.wrn_34_10 import WideBlock

    block = WideBlock(4, 8, 2).eval()
    features = torch.randn(2, 4, 8, 8)
    activated = torch.relu(block.bn1(features))
    inner = block.conv2(torch.relu(block.bn2(block.conv1(activated))))
    assert block.convShortcut is not None
    assert torch.allclose(block(features), inner + block.convShortcut(activated), atol=1e-6)


def test_silu_blocks_pad_a_strided_convolution_on_the_right_and_below_only() -> None:
    from trainers.models.wrn_28_10_silu import SiluBlock

    block = SiluBlock(1, 2, 2).eval()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.fill_(1.0)
        block.shortcut.weight.zero_()  # type: ignore[union-attr]
        features = torch.zeros(1, 1, 4, 4)
        windows = block.conv_0(nn.functional.pad(torch.ones(1, 1, 4, 4), (0, 1, 0, 1)))
        assert windows[0, 0].tolist() == [[9.0, 6.0], [6.0, 4.0]]  # the first window lies wholly inside
        activated = nn.functional.silu(block.batchnorm_0(features))
        expected = block.conv_1(
            nn.functional.silu(block.batchnorm_1(block.conv_0(nn.functional.pad(activated, (0, 1, 0, 1)))))
        )
        assert torch.allclose(block(features), expected)


def test_every_batchnorm_of_the_silu_network_is_named_so_and_forgets_slowly() -> None:
    with torch.device("meta"):
        model = models.build("wrn_28_10_silu", 10, shape=CIFAR)
    for name, module in model.named_modules():
        assert isinstance(module, nn.BatchNorm2d) == ("batchnorm" in name)
        if isinstance(module, nn.BatchNorm2d):
            assert module.momentum == 0.01


def test_wide_networks_start_with_fan_out_normal_weights() -> None:
    torch.manual_seed(0)
    model = models.build("wrn_28_10_silu", 10, shape=CIFAR)
    weight = model.get_parameter("layer.1.block.2.conv_1.weight")
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (9 * 320)), rel=0.01)
    assert model.get_parameter("logits.bias").abs().max() == 0
    assert model.get_parameter("logits.weight").abs().max() <= 1 / math.sqrt(640)  # torch's default


def test_preact_resnet_keeps_torchs_default_initialisation() -> None:
    torch.manual_seed(0)
    weight = models.build("preact_resnet18", 10, shape=CIFAR).get_parameter("layer4.1.conv2.weight")
    bound = 1 / math.sqrt(512 * 9)
    assert 0.99 * bound < weight.abs().max() <= bound


@pytest.mark.parametrize(("shape", "parameters"), [((3, 32, 32), 164_938), ((1, 28, 28), 0), ((3, 36, 28), 0)])
def test_the_squares_network_takes_sides_that_4_divides(shape, parameters) -> None:
    model = models.build("squares_cnn", 10, shape=shape)
    assert model(torch.rand(3, *shape)).shape == (3, 10)
    assert parameters in (0, sum(p.numel() for p in model.parameters()))
    with pytest.raises(ValueError, match="takes images with sides divisible by 4, not 30x30"):
        models.build("squares_cnn", 10, shape=(3, 30, 30))


@pytest.mark.parametrize("name", ["preact_resnet18", "small_cnn"])
def test_standardisation_is_inside_and_stored_with_the_weights(name: str) -> None:
    shape, mean, std = (
        ((3, 32, 32), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)) if name != "small_cnn" else ((1, 28, 28), (0.1,), (0.3,))
    )
    standardised = models.build(name, 10, shape=shape, mean=mean, std=std).eval()
    plain = models.build(name, 10, shape=shape).eval()
    plain.load_state_dict({k: v for k, v in standardised.state_dict().items() if k not in ("mean", "std")})
    images = torch.rand(2, *shape)
    by_hand = (images - torch.tensor(mean).view(1, -1, 1, 1)) / torch.tensor(std).view(1, -1, 1, 1)
    assert torch.allclose(standardised(images), plain(by_hand), atol=1e-5)
    assert {"mean", "std"} <= standardised.state_dict().keys()
    assert sum(p.numel() for p in standardised.parameters()) == sum(p.numel() for p in plain.parameters())


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)])
def test_the_small_network_takes_every_size_of_image(shape: tuple[int, int, int]) -> None:
    assert models.build("small_cnn", 7, shape=shape)(torch.rand(3, *shape)).shape == (3, 7)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 6, 10)])
@pytest.mark.parametrize("training", [True, False])
def test_the_small_network_as_a_matrix_product_is_the_same_function(
    shape: tuple[int, int, int], training: bool
) -> None:
    statistics = {"mean": (0.4,) * shape[0], "std": (0.3,) * shape[0]}
    plain, dense = (models.build(name, 7, shape=shape, **statistics) for name in ("small_cnn", "small_cnn_dense"))
    dense.load_state_dict(plain.state_dict())
    found = []
    for model in (plain.double(), dense.double()):
        images = torch.rand(9, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        logits = model.train(training)(images)
        logits.square().sum().backward()
        found.append([logits, images.grad, *(p.grad for p in model.parameters()), *model.state_dict().values()])
    for one, other in zip(*found, strict=True):
        assert one.shape == other.shape and torch.allclose(one, other, rtol=1e-9, atol=1e-9)


def test_unsuitable_requests_name_the_way_out() -> None:
    with pytest.raises(ValueError, match="at most 16x16, not 28x28; use small_cnn"):
        models.build("small_cnn_dense", 10, shape=(1, 28, 28))
    with pytest.raises(ValueError, match="unknown model 'resnet'.*preact_resnet18"):
        models.build("resnet", 10, shape=CIFAR)
    with pytest.raises(ValueError, match="at least 8x8, not 4x4; use small_cnn"):
        models.build("preact_resnet18", 10, shape=(1, 4, 4))
    with pytest.raises(ValueError, match="sides divisible by 4, not 30x32"):
        models.build("wrn_28_10_silu", 10, shape=(3, 30, 32))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("preact_resnet18", (1, 8, 8)),
        ("preact_resnet18", (1, 28, 28)),
        ("preact_resnet18", (3, 64, 48)),
        ("wrn_34_10", (3, 15, 21)),
        ("wrn_28_10_silu", (1, 28, 28)),
        ("wrn_70_16_silu", (3, 64, 64)),
        ("resnet18_64", (3, 64, 64)),
        ("resnet18_64", (1, 17, 40)),
    ],
)
def test_networks_take_images_of_other_sizes(name: str, shape: tuple[int, int, int]) -> None:
    with torch.device("meta"):
        assert models.build(name, 7, shape=shape)(torch.rand(2, *shape)).shape == (2, 7)


def test_the_head_averages_all_features_as_the_official_pooling_of_32x32_images_does() -> None:
    torch.manual_seed(0)
    model = models.build("preact_resnet18", 10, shape=CIFAR).eval()
    seen: list[torch.Tensor] = []
    model.get_submodule("linear").register_forward_pre_hook(lambda _, given: seen.append(given[0].clone()))
    model.get_submodule("bn").register_forward_hook(lambda _, __, out: seen.append(out.clone()))
    for size in (32, 64):
        seen.clear()
        model(torch.rand(2, 3, size, size))
        features = torch.relu(seen[0])
        expected = nn.functional.avg_pool2d(features, 4).flatten(1) if size == 32 else features.mean((2, 3))
        assert torch.equal(seen[1], expected) if size == 32 else torch.allclose(seen[1], expected, atol=1e-6)
