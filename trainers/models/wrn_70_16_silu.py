"""WRN-70-16 with SiLU, the largest network used with generated images (Gowal et al. 2020, 2021)."""

from __future__ import annotations

from trainers.models.wrn_28_10_silu import WideResNetSilu
from trainers.network import Architecture


class WideResNet70x16Silu(WideResNetSilu):
    depth, width = 70, 16


wrn_70_16_silu = Architecture(WideResNet70x16Silu, display="WRN-70-16 (SiLU)", least=8, multiple=4)
