"""How much room a study's checkpoints take."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.store.base import Store
from sweep.studies.model import Study
from sweep.trials import cells as planned
from trainers.config import TrialConfig

# Parameters and buffers; the classifier of another number of classes makes no difference here.
PARAMETERS = {
    "preact_resnet18": 11_250_000,
    "wrn_34_10": 46_300_000,
    "wrn_28_10_silu": 36_600_000,
    "small_cnn": 800_000,
}
BYTES_PER_NUMBER = 4


def trial_bytes(config: TrialConfig) -> int:
    """The weights that a finished trial keeps."""
    kept = 3 if config.selection.validation else 2
    return kept * PARAMETERS[config.model] * BYTES_PER_NUMBER


def resume_bytes(config: TrialConfig) -> int:
    """The state of a running trial: weights, momentum, and the averaged weights where there are some; old and new."""
    copies = 2 + (1 if config.seat or config.ddpm else 0)
    return 2 * copies * PARAMETERS[config.model] * BYTES_PER_NUMBER


def planned_bytes(study: Study, store: Store, at_once: int, cells: Sequence[planned.Cell] | None = None) -> int:
    cells = planned.stored_cells(study, store) if cells is None else list(cells)
    states = zip(cells, planned.states(list(cells), store), strict=True)
    wanted = [cell.config for cell, state in states if state in ("missing", "waiting", "broken")]
    for label, search in study.searches().items():
        if any(cell.label == label and cell.trial is None for cell in cells):
            wanted += [study.search_config(label, {})] * search.candidates
    largest = sorted((resume_bytes(config) for config in wanted), reverse=True)[:at_once]
    return sum(trial_bytes(config) for config in wanted) + sum(largest)
