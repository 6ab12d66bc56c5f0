"""+ddpm: synthetic training images added to the real ones, and a running average of the weights (Gowal et al. 2021)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from trainers.dataset import DatasetFacts
from trainers.values import Unit
from trainers.wrapper import Hooks, Wrapper

if TYPE_CHECKING:
    from torch import nn

    from trainers.data.bundle import DataBundle


class Ddpm(Wrapper):
    """Settings of +ddpm."""

    display = "DDPM"
    excludes = {"seat": "both average the weights"}
    state_copies = 1
    needs_files = True
    few_epochs = {"warmup_fraction": 0.3}

    file: str = Field("cifar10_ddpm.npz", description="file with the generated images, in the data folder")
    fraction: Unit = Field(0.7, description="share of generated images in each batch")
    decay: Unit = Field(0.995, description="decay of the averaged weights, per step")
    warmup_fraction: Unit = Field(0.025, description="share of the training before averaging begins")
    first_batchnorm_momentum: Unit = Field(
        1.0, description="BatchNorm's momentum in the first step; 1 takes the first batch's statistics"
    )

    def begin(self, model: nn.Module, steps: int) -> Hooks:
        from trainers.wrappers.training.weight_averaging import DdpmAverage

        return DdpmAverage(model, self.decay, self.warmup_fraction * steps, self.first_batchnorm_momentum)

    def check_files(self, facts: DatasetFacts, folder: Path) -> None:
        from trainers.data.synthetic import open_synthetic

        open_synthetic(self.file, folder, facts.shape, facts.classes)

    def data_sha256(self, folder: Path) -> dict[str, str]:
        from trainers.data.synthetic import file_sha256

        return {self.file: file_sha256(self.file, folder)}

    def prepare(self, data: DataBundle, folder: Path) -> DataBundle:
        from trainers.data.synthetic import open_synthetic

        opened = data.synthetic or open_synthetic(self.file, folder, data.facts.shape, data.facts.classes)
        return replace(data, synthetic=replace(opened, fraction=self.fraction))
