"""Data sets of a user's own: the same images by three ways, decoded once, checked, mapped from disk."""

import numpy as np
import pytest
import torch
from PIL import Image

from tests.own_files import CLASSES, bars, write_folder, write_user_files
from trainers import data
from trainers.data.bundle import DataBundle
from trainers.plugins import registry
from trainers.plugins.own import cache

DATASETS = ["folder:pets", "npz:bars.npz", "my_data.py:load"]


def forget_all():
    for name in registry.sources():
        registry.forget(name)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    yield write_user_files(tmp_path / "user")
    forget_all()


def test_the_three_ways_to_the_same_images_hold_the_same_images(home):
    found = [data.load(registry.load_dataset(text, home)) for text in DATASETS]
    assert found[1].sha256 == found[2].sha256 != found[0].sha256  # a folder's are put in a fixed random order

    def rows(bundle):
        return sorted(
            (*image.flatten().tolist(), int(label))
            for image, label in zip(bundle.train_images, bundle.train_labels, strict=True)
        )

    assert rows(found[0]) == rows(found[1])
    assert data.dataset_facts("folder:pets").class_names == CLASSES
    assert data.dataset_facts("my_data.py:load").class_names == ("low", "middle", "high")
    assert found[0].train_labels[:12].unique().tolist() == [0, 1, 2]


def test_facts_and_hash_are_those_of_the_images_in_memory(home):
    name = registry.load_dataset("npz:bars.npz", home)
    facts, bundle = data.dataset_facts(name), data.load(name)
    pixels = bars()[:60] / 255
    assert facts.mean == pytest.approx((pixels.mean(),), rel=1e-5)
    assert facts.std == pytest.approx((pixels.std(),), rel=1e-5)
    parts = (bundle.train_images, bundle.train_labels, bundle.test_images, bundle.test_labels)
    assert DataBundle(name, *(part.clone() for part in parts)).sha256 == bundle.sha256


def test_a_class_without_images_is_another_data_set_to_a_network(tmp_path):
    images, labels = np.zeros((4, 4, 4), np.uint8), np.arange(4) % 2
    parts = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
    found = []
    for names in (["a", "b"], ["a", "b", "c"]):
        np.savez(tmp_path / f"c{len(names)}.npz", **parts, class_names=np.array(names))
        name = registry.load_dataset(f"npz:c{len(names)}.npz", tmp_path)
        found.append((data.load(name).sha256, registry.sha256_of(registry.DATASETS, name)))
    assert found[0][0] == found[1][0] and found[0][1] != found[1][1]


def test_a_changed_file_of_an_own_loader_is_noticed(home):
    def sha256():
        forget_all()
        return registry.sha256_of(registry.DATASETS, registry.load_dataset("my_data.py:load", home))

    first = sha256()
    assert sha256() == first
    np.save(home / "bars.npy", 255 - bars())
    assert sha256() != first


def test_images_are_decoded_once_and_mapped(home, monkeypatch):
    text = "folder:pets"
    registry.load_dataset(text, home)
    forget_all()
    monkeypatch.setattr("trainers.plugins.own.folder._pixels", lambda *a, **k: pytest.fail("decoded again"))
    name = registry.load_dataset(text, home)
    first, second = data.load(name), data.load(name)
    first.train_images[0, 0, 0, 0] = 255 - first.train_images[0, 0, 0, 0]
    assert not torch.equal(first.train_images, second.train_images), "a write stays in its process"
    held = second.held_out(12, "end")
    assert held.train_images.data_ptr() == second.train_images.data_ptr(), "slices of mapped images are views"


def test_images_of_several_sizes_need_a_side_and_are_cropped_and_resized_by_the_rule(tmp_path):
    root = write_folder(tmp_path / "odd")
    wide = np.zeros((40, 80, 3), np.uint8)
    wide[:, 20:60] = (200, 100, 50)  # its centred square
    Image.fromarray(wide).save(root / "train/cat/wide.png")
    with pytest.raises(ValueError, match=r"the images have 2 sizes \(6x6, 80x40\); give the side .* folder:PATH@64"):
        registry.load_dataset("folder:odd", tmp_path)
    name = registry.load_dataset("folder:odd@8", tmp_path)
    bundle = data.load(name)
    assert name == "folder:odd@8" and data.dataset_facts(name).shape == (3, 8, 8)
    expected = torch.tensor([200, 100, 50], dtype=torch.uint8).view(3, 1, 1).expand(3, 8, 8)
    assert sum(torch.equal(image, expected) for image in bundle.train_images) == 1


@pytest.mark.parametrize("shape", [(30, 5, 7), (30, 5, 7, 3), (30, 3, 5, 7)])
def test_arrays_may_have_their_channels_first_last_or_none(tmp_path, shape):
    images = np.random.default_rng(1).random(shape).astype(np.float32)
    labels = np.arange(30) % 2
    np.savez_compressed(
        tmp_path / "a.npz", train_images=images, train_labels=labels, test_images=images[:4], test_labels=labels[:4]
    )
    bundle = data.load(registry.load_dataset("npz:a.npz", tmp_path))
    first = (
        images
        if len(shape) == 4 and shape[1] == 3
        else images[:, None]
        if len(shape) == 3
        else images.transpose(0, 3, 1, 2)
    )
    assert np.array_equal(bundle.train_images.numpy(), np.rint(first * 255).astype(np.uint8))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": np.full((20, 4, 4), 2.0)}, "are float64 from 2 to 2; images are uint8"),
        ({"train_images": np.zeros((20, 9, 9, 9), np.uint8)}, r"have shape \(20, 9, 9, 9\)"),
        ({"train_labels": np.arange(19) % 2}, "20 train_images, but 19 train_labels"),
        ({"train_labels": np.zeros(20)}, "must be one whole number for each image"),
        ({"test_images": np.zeros((20, 5, 5), np.uint8)}, r"train_images are \(1, 4, 4\), but test_images \(1, 5, 5\)"),
        ({"class_names": np.array(["only"])}, "labels go from 0 to 1"),
        ({"train_labels": np.array([None] * 20)}, "Python objects, which are never loaded"),
    ],
)  # fmt: skip
def test_arrays_that_are_no_data_set_are_refused_in_words(tmp_path, changes, message):
    images, labels = np.zeros((20, 4, 4), np.uint8), np.arange(20) % 2
    parts = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
    np.savez(tmp_path / "b.npz", **(parts | changes))
    with pytest.raises(ValueError, match=message):
        registry.load_dataset("npz:b.npz", tmp_path)


def test_a_sorted_data_set_is_not_held_out_at_its_end(tmp_path):
    labels = np.arange(100) // 25
    np.savez(
        tmp_path / "sorted.npz", train_images=np.zeros((100, 4, 4), np.uint8), train_labels=labels,
        test_images=np.zeros((4, 4, 4), np.uint8), test_labels=labels[:4],
    )  # fmt: skip
    bundle = data.load(registry.load_dataset("npz:sorted.npz", tmp_path))
    with pytest.raises(ValueError, match="2 of its 4 classes: it is sorted; set selection.validation_from: spread"):
        bundle.held_out(40, "end")
    assert bundle.held_out(40, "spread").validation_labels.bincount().tolist() == [10, 10, 10, 10]
