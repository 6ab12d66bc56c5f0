"""Corrupted test sets: the right images of the right file, and words for files that are absent or others."""

import numpy as np
import pytest
import torch

from trainers.attacks import parse
from trainers.attacks.corruption import ALL, CORRUPTIONS
from trainers.attacks.scoring import suites
from trainers.dataset import DataMissing

LABELS = torch.arange(4) % 10


@pytest.fixture
def folder(tmp_path):
    """Four images per severity, every pixel of which tells corruption and severity."""
    place = tmp_path / "CIFAR-10-C"
    place.mkdir()
    for number, name in enumerate(CORRUPTIONS):
        severities = np.arange(5).repeat(4)[:, None, None, None]
        np.save(place / f"{name}.npy", np.broadcast_to(10 * number + severities, (20, 32, 32, 3)).astype(np.uint8))
    np.save(place / "labels.npy", np.tile(LABELS.numpy(), 5))
    return tmp_path


def images_of(name, folder, dataset="cifar10", labels=LABELS):
    return parse(name).images_of(torch.zeros(len(labels), 3, 32, 32, dtype=torch.uint8), labels, dataset, str(folder))


def test_the_name_says_which_images_are_taken(folder):
    assert len(ALL) == 75 == len(suites.attacks(["corruptions"]))
    for name, value in (("gaussian_noise-1", 0), ("fog-3", 92), ("jpeg_compression-5", 144)):
        found = images_of(f"corruption-{name}", folder)
        assert found.shape == (4, 3, 32, 32) and found.unique().tolist() == [value]
    assert len(images_of("corruption-fog-3", folder, labels=LABELS[:2])) == 2
    assert parse("corruption-fog-3", norm="l2", epsilon="0.5").id == parse("corruption-fog-3").id
    with pytest.raises(ValueError, match="unknown attack 'corruption-rain-3'"):
        parse("corruption-rain-3")


def test_absent_or_other_files_are_named_with_the_way_out(folder):
    with pytest.raises(ValueError, match="not those of cifar10's test set"):
        images_of("corruption-fog-3", folder, labels=LABELS.flip(0))
    with pytest.raises(ValueError, match="there for cifar10 and cifar100, not for digits"):
        images_of("corruption-fog-3", folder, dataset="digits")
    (folder / "CIFAR-10-C" / "fog.npy").unlink()
    with pytest.raises(DataMissing, match=r"1 of 16 files are not in .*CIFAR-10-C: fog.npy. Unpack .*zenodo"):
        images_of("corruption-snow-1", folder)
    with pytest.raises(DataMissing, match="CIFAR-100-C is not complete: 16 of 16 files"):
        images_of("corruption-snow-1", folder, dataset="cifar100")
