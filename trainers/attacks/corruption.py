"""corruption-NAME-SEVERITY: a test set corrupted by Hendrycks & Dietterich (2019), CIFAR-10-C or CIFAR-100-C."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from trainers.attack import FORWARD, AttackSettings, EvaluationAttack, Verdicts
from trainers.dataset import DataMissing
from trainers.values import Amount

if TYPE_CHECKING:
    from torch import Tensor, nn

CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
SEVERITIES = (1, 2, 3, 4, 5)
ALL = tuple(f"corruption-{name}-{severity}" for name in CORRUPTIONS for severity in SEVERITIES)
# For each data set: the folder's usual name, and its download address.
FOLDERS = {
    "cifar10": ("CIFAR-10-C", "https://zenodo.org/records/2535967"),
    "cifar100": ("CIFAR-100-C", "https://zenodo.org/records/3555552"),
}


class Corruption(EvaluationAttack):
    """A corrupted test set. It does not depend on the model: all models see the same images.

    Its verdicts say nothing about clean images.
    """

    examples = ("corruption-fog-3",)

    kind: str = "corruption"
    epsilon: Amount = "0"
    corruption: str
    severity: int

    @classmethod
    def from_name(cls, name: str, settings: AttackSettings) -> Corruption | None:
        match = re.fullmatch(r"corruption-(\w+)-([1-5])", name)
        if match is None or match[1] not in CORRUPTIONS:
            return None
        return cls(name=name, corruption=match[1], severity=int(match[2]), images=settings.images)

    @property
    def cost(self) -> float:
        return FORWARD

    @property
    def display(self) -> str:
        return f"{self.corruption.replace('_', ' ').capitalize()}, severity {self.severity}"

    def images_of(self, images: Tensor, labels: Tensor, dataset: str, data_dir: str | None) -> Tensor:
        """Return the corrupted version of every test image. The file stays on disk and is read on use."""
        import numpy as np
        import torch

        if dataset not in FOLDERS:
            raise ValueError(f"corruptions are there for {' and '.join(FOLDERS)}, not for {dataset}; leave them out")
        folder = Path(data_dir or "data") / FOLDERS[dataset][0]
        _check_files(dataset, folder)
        stored = np.load(folder / f"{self.corruption}.npy", mmap_mode="c", allow_pickle=False)
        expected = np.load(folder / "labels.npy", allow_pickle=False)
        count = len(stored) // len(SEVERITIES)
        part = slice((self.severity - 1) * count, self.severity * count)
        corrupted = torch.from_numpy(stored[part]).permute(0, 3, 1, 2)
        same = len(images) <= count and np.array_equal(expected[part][: len(labels)], labels.cpu().numpy())
        if not same or corrupted.shape[1:] != images.shape[1:]:
            raise ValueError(
                f"{folder / self.corruption}.npy holds {count} images per severity that are not those of {dataset}'s "
                f"test set in their order; get the folder again from {FOLDERS[dataset][1]}"
            )
        return corrupted[: len(images)]

    def verdicts(
        self, model: nn.Module, images: Tensor, labels: Tensor, phase: str, *, indices: Tensor, checks: bool
    ) -> Verdicts:
        from trainers.attacks.perturbation.projected_ascent import correct_predictions

        return Verdicts(correct_predictions(model, images, labels))


def _check_files(dataset: str, folder: Path) -> None:
    absent = [f"{name}.npy" for name in ("labels", *CORRUPTIONS) if not (folder / f"{name}.npy").is_file()]
    if absent:
        name, address = FOLDERS[dataset]
        raise DataMissing(
            f"{name} is not complete: {len(absent)} of {len(CORRUPTIONS) + 1} files are not in {folder.resolve()}: "
            f"{', '.join(absent)}. Unpack {name}.tar of {address} there, or name the folder that holds {name} with "
            "--data-dir"
        )
