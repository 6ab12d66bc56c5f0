"""Extra images from an .npz: mapped from disk, mixed by ratio, and checked before use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from trainers.config import Augmentation
from trainers.data import DataMissing
from trainers.data.bundle import DataBundle
from trainers.data.order import TrainingImages
from trainers.data.synthetic import SyntheticImages, open_synthetic

SHAPE = (3, 4, 4)


def arrays(count: int = 100) -> dict[str, np.ndarray]:
    image = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None, None], (count, 4, 4, 3)).copy()
    image[..., 2] = 250
    return {"image": image, "label": (np.arange(count) % 10).astype(np.uint8)}


def test_an_uncompressed_file_is_mapped_and_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "extra.npz", **arrays())
    extra = open_synthetic("extra.npz", tmp_path, SHAPE, 10)
    assert isinstance(extra.images, np.memmap) and Path(str(extra.images.filename)).name == "extra.npz"
    images, labels = extra.take(torch.tensor([7, 42, 7]))
    assert images.shape == (3, 3, 4, 4) and images[:, 0, 0, 0].tolist() == [7, 42, 7]
    assert (images[:, 2] == 250).all() and labels.tolist() == [7, 2, 7]


def test_a_compressed_file_is_unpacked_once_beside_it(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "extra.npz", **arrays())
    extra = open_synthetic("extra.npz", tmp_path, SHAPE, 10)
    unpacked = tmp_path / "extra.image.npy"
    written = unpacked.stat().st_mtime_ns
    assert isinstance(extra.images, np.memmap) and extra.take(torch.tensor([5]))[0][0, 0, 0, 0] == 5
    open_synthetic("extra.npz", tmp_path, SHAPE, 10)
    assert unpacked.stat().st_mtime_ns == written and not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": None}, "no array 'label'"),
        ({"image": np.zeros((100, 4, 4, 3), dtype=np.float32)}, "float32"),
        ({"image": np.zeros((100, 5, 4, 3), dtype=np.uint8)}, r"\(100, 5, 4, 3\)"),
        ({"label": np.arange(99) % 10}, "one whole number for each"),
        ({"label": np.arange(100)}, "from 0 to 99, not 0 to 9"),
        ({"label": np.array([{}] * 100, dtype=object)}, "Python objects"),
    ],
)
def test_a_file_of_the_wrong_kind_is_refused_with_the_reason(tmp_path: Path, change: dict, message: str) -> None:
    content = {name: value for name, value in {**arrays(), **change}.items() if value is not None}
    np.savez(tmp_path / "extra.npz", **content)
    with pytest.raises(DataMissing, match=message):
        open_synthetic("extra.npz", tmp_path, SHAPE, 10)


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="ddpm.file"):
        open_synthetic("absent.npz", tmp_path, SHAPE, 10)
    (tmp_path / "text.npz").write_text("not a zip")
    with pytest.raises(DataMissing, match="not an .npz"):
        open_synthetic("text.npz", tmp_path, SHAPE, 10)


def cifar_sized(synthetic: SyntheticImages) -> TrainingImages:
    images, labels = torch.zeros(50000, 3, 1, 1, dtype=torch.uint8), torch.zeros(50000, dtype=torch.int64)
    bundle = DataBundle("cifar10", images, labels, images[:1], labels[:1], synthetic=synthetic)
    return TrainingImages(bundle.held_out(1024, "start"), 1024, Augmentation(), 0)


def test_the_1m_setting_mixes_716_synthetic_and_308_real_images_in_49_batches() -> None:
    extra = SyntheticImages(np.full((40, 1, 1, 3), 255, dtype=np.uint8), np.full(40, 9), fraction=0.7)
    training = cifar_sized(extra)
    assert training.batches == 49
    batches = list(training.epoch(0))
    assert len(batches) == 49
    for images, labels, indices in batches:
        synthetic = indices < 0
        assert len(labels) == 1024 and int(synthetic.sum()) == 716
        assert (images[synthetic] == 1).all() and (images[~synthetic] == 0).all()
        assert (labels[synthetic] == 9).all() and (labels[~synthetic] == 0).all()
        assert 0 < int(synthetic[:512].sum()) < 512  # shuffled within the batch
    real = torch.cat([indices[indices >= 0] for _, _, indices in batches])
    assert len(real) == 49 * 308 == len(real.unique()) and real.max() < 48976
    other = torch.cat([indices[indices >= 0] for _, _, indices in training.epoch(1)])
    assert len(set(real.tolist()) & set(other.tolist())) < 0.5 * len(real)  # a fresh permutation
