"""Data sets, their splits, and the order in which training sees them."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import urllib.error
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from trainers import assembly, data
from trainers.config import Augmentation, TrialConfig
from trainers.data.bundle import DataBundle
from trainers.data.order import TrainingImages
from trainers.data.torchvision_sets import torchvision_datasets
from trainers.wrappers.ddpm import Ddpm


def small_bundle(samples: int = 50, side: int = 4) -> DataBundle:
    images = torch.arange(samples, dtype=torch.uint8).view(-1, 1, 1, 1).expand(samples, 1, side, side).contiguous()
    labels = torch.arange(samples) % 10
    return DataBundle("digits", images, labels, images[:10], labels[:10])


def test_digits_are_real_uint8_images_with_a_fixed_stratified_split() -> None:
    bundle = data.load("digits")
    assert bundle.train_images.shape == (1437, 1, 8, 8) and bundle.test_images.shape == (360, 1, 8, 8)
    assert bundle.train_images.dtype == torch.uint8 and bundle.train_images.max() == 255
    assert bundle.test_labels.bincount().tolist() == [36] * 10
    assert torch.equal(bundle.test_images, data.load("digits").test_images)
    flat = {tuple(image) for image in bundle.train_images.flatten(1).tolist()}
    assert not flat & {tuple(image) for image in bundle.test_images.flatten(1).tolist()}


def test_facts_and_model_names_need_no_torch() -> None:
    code = (
        "import sys; from trainers import data, models; data.dataset_facts('cifar100'); models.model_names();"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", data.dataset_names())
def test_facts_are_consistent(name: str) -> None:
    facts = data.dataset_facts(name)
    assert (facts.mean is None) == (facts.std is None)
    if facts.mean is not None and facts.std is not None:
        assert len(facts.mean) == len(facts.std) == facts.shape[0]


def test_unknown_data_set_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'cifar11'.*cifar10"):
        data.load("cifar11")


def test_torchvision_is_importable_here_and_a_second_call_gives_the_same_module() -> None:
    assert torchvision_datasets() is torchvision_datasets()


@pytest.mark.parametrize("name", ["mnist", "cifar10", "cifar100", "svhn"])
def test_without_network_one_message_says_what_is_missing_where_and_the_way_out(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(data.DataMissing) as caught:
        data.load(name, tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message and "--data-dir" in message and "downloading failed" in message
    assert {"mnist": "MNIST/raw", "cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python", "svhn": ".mat"}[
        name
    ] in message


def test_without_permission_to_download_nothing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("went to the network"))
    with pytest.raises(data.DataMissing, match="switched off"):
        data.load("cifar10", tmp_path, download=False)


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_real_files_are_read_through_torchvision(name: str, shared: Path) -> None:
    bundle = data.load(name, shared / "data", download=False)
    facts = data.dataset_facts(name)
    assert bundle.train_images.shape == (facts.train_images, *facts.shape)
    assert bundle.test_images.shape == (facts.test_images, *facts.shape)
    assert bundle.train_labels.bincount().min() > 5000 - 1 and bundle.train_images.dtype == torch.uint8
    pixels = bundle.train_images[:2000].float() / 255
    if facts.mean is not None:
        assert torch.allclose(pixels.mean((0, 2, 3)), torch.tensor(facts.mean), atol=0.03)


def test_limits_take_the_first_images_and_refuse_more_than_there_are() -> None:
    limited = small_bundle().limited(20, 5)
    assert limited.train_images[:, 0, 0, 0].tolist() == list(range(20)) and len(limited.test_images) == 5
    with pytest.raises(ValueError, match="train_images = 51.*only 50"):
        small_bundle().limited(51, None)


@pytest.mark.parametrize(("side", "held"), [("start", range(0, 8)), ("end", range(42, 50))])
def test_validation_images_leave_the_training_set(side: str, held: range) -> None:
    bundle = small_bundle().held_out(8, side)  # type: ignore[arg-type]
    assert bundle.validation_images is not None
    assert bundle.validation_images[:, 0, 0, 0].tolist() == list(held)
    assert sorted(bundle.train_images[:, 0, 0, 0].tolist() + list(held)) == list(range(50))


def test_held_out_images_may_be_spread_evenly_over_each_class() -> None:
    bundle = data.load("digits")
    spread = bundle.held_out(180, "spread")
    assert spread.validation_images is not None and spread.validation_labels is not None
    assert len(spread.validation_images) == 180 and len(spread.train_images) == len(bundle.train_images) - 180
    for label in range(10):
        positions = torch.nonzero(bundle.train_labels == label).flatten()
        share = 180 * len(positions) / len(bundle.train_labels)
        held = (spread.validation_labels == label).sum().item()
        assert abs(held - share) <= 1
        # The kept ones lie between them: of each quarter of the class about a quarter is held out.
        images = {tuple(one.flatten().tolist()) for one in spread.validation_images}
        places = [n for n, at in enumerate(positions) if tuple(bundle.train_images[at].flatten().tolist()) in images]
        gaps = [second - first for first, second in zip(places, places[1:], strict=False)]
        assert max(gaps) - min(gaps) <= 1
    together = torch.cat([spread.train_images, spread.validation_images]).flatten(1)
    assert sorted(together.tolist()) == sorted(bundle.train_images.flatten(1).tolist())


def test_a_data_set_has_a_fingerprint_of_all_its_content() -> None:
    bundle = small_bundle()
    assert bundle.sha256 == small_bundle().sha256 and len(bundle.sha256) == 64
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        changed = getattr(bundle, name).clone()
        changed.view(-1)[-1] = (changed.view(-1)[-1] + 1) % 10
        assert replace(bundle, **{name: changed}).sha256 != bundle.sha256, name


def test_a_synthetic_file_is_named_by_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "extra.npz").write_bytes(b"some images")
    config = TrialConfig(dataset="digits", model="small_cnn", method="at+ddpm", ddpm=Ddpm(file="extra.npz"))
    found = assembly.data_sha256(small_bundle(), config.wrappers.values(), tmp_path)
    assert found == {"digits": small_bundle().sha256, "extra.npz": hashlib.sha256(b"some images").hexdigest()}
    (tmp_path / "extra.npz").write_bytes(b"other images, later")
    assert assembly.data_sha256(small_bundle(), config.wrappers.values(), tmp_path)["extra.npz"] != found["extra.npz"]


def test_holding_out_everything_is_refused() -> None:
    with pytest.raises(ValueError, match="selection.validation = 50"):
        small_bundle().held_out(50, "end")


def epoch_of(bundle: DataBundle, seed: int, epoch: int, batch_size: int = 16) -> list[tuple[torch.Tensor, ...]]:
    return list(TrainingImages(bundle, batch_size, Augmentation(crop="zero", padding=1, flip=True), seed).epoch(epoch))


def test_every_epoch_shows_each_sample_once_and_keeps_the_last_partial_batch() -> None:
    batches = epoch_of(small_bundle(), seed=0, epoch=0)
    assert [len(labels) for _, labels, _ in batches] == [16, 16, 16, 2]
    indices = torch.cat([indices for _, _, indices in batches])
    assert sorted(indices.tolist()) == list(range(50))
    plain = list(TrainingImages(small_bundle(), 16, Augmentation(), 0).epoch(0))
    for images, labels, positions in plain:
        assert torch.equal(images[:, 0, 0, 0], positions.float() / 255) and torch.equal(labels, positions % 10)


def test_order_and_augmentation_are_functions_of_seed_and_epoch_alone() -> None:
    torch.manual_seed(1)
    first = epoch_of(small_bundle(), seed=3, epoch=7)
    torch.manual_seed(2)
    again = epoch_of(small_bundle(), seed=3, epoch=7)
    assert all(
        torch.equal(a, b) for left, right in zip(first, again, strict=True) for a, b in zip(left, right, strict=True)
    )
    for seed, epoch in ((3, 8), (4, 7)):
        other = epoch_of(small_bundle(), seed=seed, epoch=epoch)
        assert not torch.equal(first[0][2], other[0][2])
