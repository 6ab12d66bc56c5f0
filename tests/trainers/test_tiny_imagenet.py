"""Tiny-ImageNet's usual folder, in small, and what is said where it is absent or incomplete."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from trainers import data
from trainers.data.sets import tiny_imagenet
from trainers.plugins import registry
from trainers.plugins.own import cache

CLASSES = ("n01", "n02")


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Two classes, in the layout of the published archive; one image is grey, as some of the real ones are."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    root = tmp_path / "tiny-imagenet-200"
    (root / "val/images").mkdir(parents=True)
    lines = []
    for label, name in enumerate(CLASSES):
        (root / "train" / name / "images").mkdir(parents=True)
        for number in range(3):
            pixels = np.full((64, 64, 3), 100 * label + number, np.uint8)
            image = Image.fromarray(pixels[..., 0] if number == 2 else pixels)
            image.save(root / "train" / name / "images" / f"{name}_{number}.png")
        Image.fromarray(np.full((64, 64, 3), 100 * label + 9, np.uint8)).save(root / f"val/images/val_{1 - label}.png")
        lines.append(f"val_{1 - label}.png\t{name}\t0\t0\t62\t62")
    (root / "val/val_annotations.txt").write_text("\n".join(lines))
    source = registry.DATASETS.get("tiny_imagenet")
    facts = replace(source.facts, classes=2, train_images=6, test_images=2)
    small_source = replace(source, facts=facts)
    monkeypatch.setitem(registry.DATASETS.loaded, "tiny_imagenet", small_source)
    monkeypatch.setattr(tiny_imagenet, "tiny_imagenet", small_source)
    return tmp_path


def test_images_get_the_labels_of_their_folders_and_of_the_annotations(small):
    bundle = data.load("tiny_imagenet", small, download=False)
    assert bundle.train_images.shape == (6, 3, 64, 64) and bundle.test_images.shape == (2, 3, 64, 64)
    assert (bundle.train_images[:, 0, 0, 0] // 100).tolist() == bundle.train_labels.tolist()
    assert (bundle.test_images[:, 2, 5, 5] // 100).tolist() == bundle.test_labels.tolist()
    assert sorted(bundle.train_images[:, 1, 0, 0].tolist()) == [0, 1, 2, 100, 101, 102]


def test_validation_images_may_be_sorted_into_folders(small):
    root = small / "tiny-imagenet-200/val"
    for name, file in zip(CLASSES, ("val_1.png", "val_0.png"), strict=True):
        (root / name).mkdir()
        (root / "images" / file).rename(root / name / file)
    (root / "images").rmdir()
    bundle = data.load("tiny_imagenet", small, download=False)
    assert (bundle.test_images[:, 2, 5, 5] // 100).tolist() == bundle.test_labels.tolist()


def test_an_incomplete_folder_is_refused_with_its_counts(small):
    (small / "tiny-imagenet-200/train/n01/images/n01_0.png").unlink()
    with pytest.raises(data.DataMissing, match="holds 5 training and 2 validation images of 2 classes, not 6, 2 and 2"):
        data.load("tiny_imagenet", small)


def test_where_it_is_absent_the_message_says_what_where_and_how(tmp_path):
    with pytest.raises(data.DataMissing) as caught:
        data.load("tiny_imagenet", tmp_path)
    message = str(caught.value)
    assert f"looked for tiny-imagenet-200/{{train, val}} in {tmp_path}" in message
    assert "fetch http://cs231n.stanford.edu/tiny-imagenet-200.zip and unpack it" in message and "--data-dir" in message
