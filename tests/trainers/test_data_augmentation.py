"""Crops, flips and rotations against torchvision's own transforms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from tests.trainers.small_trials import small_trial
from trainers.config import Augmentation
from trainers.data.augmentation import _rotated, augment, augmentation_draws
from trainers.data.cutmix import cut_mixed
from trainers.loop.train import train


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def distinct_image(side: int = 8) -> torch.Tensor:
    return torch.randint(1, 255, (3, side, side), generator=generator(9), dtype=torch.uint8)


def augmented(images: Tensor, augmentation: Augmentation, source: torch.Generator) -> Tensor:
    return augment(images, augmentation, augmentation_draws(augmentation, len(images), source))


@pytest.mark.parametrize(("crop", "mode"), [("reflect", "reflect"), ("zero", "constant")])
def test_crops_are_exactly_the_windows_of_the_padded_image_all_equally_often(crop: str, mode: str) -> None:
    image = distinct_image()
    padded = F.pad(image.float()[None], (2, 2, 2, 2), mode=mode)[0].to(torch.uint8)
    windows = {
        padded[:, row : row + 8, column : column + 8].numpy().tobytes(): (row, column)
        for row in range(5)
        for column in range(5)
    }
    batch = augmented(image.expand(2500, 3, 8, 8), Augmentation(crop=crop, padding=2), generator())
    found = [windows[moved.contiguous().numpy().tobytes()] for moved in batch]  # a KeyError is the failure
    counts = [found.count(window) for window in windows.values()]
    assert min(counts) > 60 and max(counts) < 145  # 100 expected


def test_half_of_the_images_are_flipped() -> None:
    image = distinct_image()
    batch = augmented(image.expand(1000, 3, 8, 8), Augmentation(flip=True), generator())
    flipped = sum(bool(torch.equal(moved, image.flip(2))) for moved in batch)
    kept = sum(bool(torch.equal(moved, image)) for moved in batch)
    assert flipped + kept == 1000 and 430 < flipped < 570


@pytest.mark.parametrize("degrees", [-15.0, -7.3, -0.4, 0.0, 2.1, 11.9, 15.0])
def test_rotation_is_the_one_of_torchvision_on_pillow_images(degrees: float) -> None:
    image = torch.randint(1, 255, (32, 32), generator=generator(3), dtype=torch.uint8)
    rows, columns = _rotated(torch.tensor([degrees], dtype=torch.float64), 32, 32)
    inside = (rows >= 0) & (rows < 32) & (columns >= 0) & (columns < 32)
    ours = image[rows.clamp(0, 31), columns.clamp(0, 31)][0] * inside[0]
    # RandomRotation calls Image.rotate with nearest neighbours and black outside.
    theirs = np.asarray(Image.fromarray(image.numpy()).rotate(degrees, Image.Resampling.NEAREST, fillcolor=0))
    differing = (ours.numpy() != theirs).mean()
    assert differing < 0.01  # Pillow's 16-bit fixed point rounds a few border cases differently


def test_rotation_stays_within_its_limit_and_fills_with_zero() -> None:
    images = torch.full((400, 1, 32, 32), 255, dtype=torch.uint8)
    turned = augmented(images, Augmentation(rotation=15.0), generator())
    corners = turned[:, 0, [0, 0, 31, 31], [0, 31, 0, 31]]
    assert (corners == 0).any(1).float().mean() > 0.7 and set(turned.unique().tolist()) == {0, 255}
    assert (turned[:, 0, 8:24, 8:24] == 255).all()


def test_crop_flip_and_rotation_equal_torchvisions_steps_one_after_the_other() -> None:
    image, count = distinct_image(32), 40
    together = augmented(
        image.expand(count, 3, 32, 32), Augmentation(crop="zero", padding=4, flip=True, rotation=15.0), generator(5)
    )
    draws = torch.rand(4, count, generator=generator(5))
    padded = F.pad(image, (4, 4, 4, 4)).permute(1, 2, 0).numpy()
    for moved, (down, right, flip, angle) in zip(together, draws.T.tolist(), strict=True):
        row, column = int(down * 9), int(right * 9)
        step = Image.fromarray(padded[row : row + 32, column : column + 32])
        if flip < 0.5:
            step = step.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        step = step.rotate((angle * 2 - 1) * 15, Image.Resampling.NEAREST)
        assert (moved.permute(1, 2, 0).numpy() != np.asarray(step)).mean() < 0.01


def test_no_augmentation_returns_the_images_untouched_and_draws_nothing() -> None:
    images, source = distinct_image()[None], generator()
    before = source.get_state()
    assert augmented(images, Augmentation(padding=4), source) is images
    assert torch.equal(before, source.get_state())


def test_cutmix_is_torchvisions_with_draws_of_the_training_alone():
    images, labels = torch.rand(6, 3, 8, 8), torch.arange(6) % 4
    torch.manual_seed(5)
    expected_state = torch.get_rng_state()
    first = cut_mixed(images, labels, 4, 1.0, torch.Generator().manual_seed(3))
    assert torch.equal(torch.get_rng_state(), expected_state), "the global generator is left alone"
    again = cut_mixed(images, labels, 4, 1.0, torch.Generator().manual_seed(3))
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    other = cut_mixed(images, labels, 4, 1.0, torch.Generator().manual_seed(4))
    assert not torch.equal(first[1], other[1])
    mixed, probabilities = first
    assert torch.allclose(probabilities.sum(1), torch.ones(6))
    from_other = (mixed == images.roll(1, 0)).all(1).float().mean((1, 2))  # the share of the box in each image
    own = probabilities[torch.arange(6), labels]
    assert torch.allclose(own, 1 - from_other, atol=1e-6)


@pytest.mark.parametrize("method", ["at", "st", "trades"])
def test_a_training_with_cutmix_sees_mixed_labels_and_repeats_itself(tmp_path, method):
    config = small_trial(method, recipe={"augmentation": {"cutmix": 1.0}, "epochs": 1})
    runs = [train(config, folder=tmp_path / name) for name in ("a", "b")]
    plain = train(small_trial(method, recipe={"epochs": 1}), folder=tmp_path / "c")
    losses = [run["curve"][0]["train_loss"] for run in (*runs, plain)]
    assert losses[0] == losses[1] != losses[2] and 0 <= runs[0]["curve"][0]["train_accuracy"] <= 1
