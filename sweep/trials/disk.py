"""Disk space that a study's checkpoints and counterexamples need, in bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sweep.store.base import Store
from sweep.studies.model import Study, searched
from sweep.trials import cells as planned
from sweep.trials.candidates import most_candidates
from trainers import models
from trainers.config import TrialConfig
from trainers.data import dataset_facts

BYTES_PER_NUMBER = 4


def trial_bytes(config: TrialConfig) -> int:
    """Return the size in bytes of the weights that a finished trial keeps."""
    kept = 3 if config.selection.validation else 2
    return (kept + len(config.selection.keep or ())) * _weights_bytes(config)


def resume_bytes(config: TrialConfig) -> int:
    """Return the size in bytes of a running trial's resume state.

    Counts weights, momentum and any averaged weights, twice: the old file exists until the new one is complete.
    """
    copies = 2 + sum(wrapper.state_copies for wrapper in config.wrappers.values())
    return 2 * copies * _weights_bytes(config)


def _weights_bytes(config: TrialConfig) -> int:
    facts = dataset_facts(config.dataset)
    return models.numbers(config.model, facts.classes, facts.shape) * BYTES_PER_NUMBER


def counterexample_bytes(study: Study) -> int:
    """Return the size in bytes of the counterexamples of all attacks on one trial.

    Assumes that each attack fools every image and that signs suffice, at one bit per pixel value.
    """
    if not study.evaluation.counterexamples:
        return 0
    facts = dataset_facts(study.dataset)
    images = min(study.evaluation.images or facts.test_images, study.test_images or facts.test_images)
    attacks = [one for one in planned.evaluation_attacks(study) if one.epsilon != "0"]
    return len(attacks) * len(study.evaluation.checkpoints) * images * math.prod(facts.shape) // 8


def planned_bytes(study: Study, store: Store, at_once: int, cells: Sequence[planned.Cell] | None = None) -> int:
    cells = planned.stored_cells(study, store) if cells is None else list(cells)
    states = zip(cells, planned.states(list(cells), store), strict=True)
    wanted = [cell.config for cell, state in states if state in ("missing", "waiting", "broken")]
    proof = len(wanted) * counterexample_bytes(study)
    for label, search in study.searches().items():
        if any(cell.label == searched(label) and cell.trial is None for cell in cells):
            wanted += [study.search_config(label, {})] * (most_candidates(study, label) * len(search.seeds))
    largest = sorted((resume_bytes(config) for config in wanted), reverse=True)[:at_once]
    return sum(trial_bytes(config) for config in wanted) + sum(largest) + proof
