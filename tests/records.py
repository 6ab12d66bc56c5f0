"""Records as a sweep writes them, made by their own constructors; a test names only what it is about."""

from __future__ import annotations

from typing import Any

import numpy as np

from sweep.store.numerics import NUMERICS_VERSION
from sweep.store.records.decision import DecisionRecord
from sweep.store.records.diagnostics import DiagnosticsRecord
from sweep.store.records.evaluation import EvaluationRecord, ShardRecord
from sweep.store.records.manifest import Manifest, PlannedAttack, PlannedCell
from sweep.store.records.row import RowRecord
from sweep.store.records.search import CandidateEntry, CandidateRecord, SearchRecord
from sweep.store.records.transfer import Transfer, TransferRecord
from sweep.store.records.trial import TrialRecord
from sweep.store.verdicts import pack
from trainers.attack import EvaluationAttack
from trainers.attacks import parse
from trainers.config import TrialConfig

TRIAL = "ab" * 32
SEARCH = "sovr-0123456789abcdef"


def trial_config(**changes: Any) -> TrialConfig:
    return TrialConfig(**{"dataset": "digits", "model": "small_cnn", "method": "at", **changes})


def trial_record(trial: str = TRIAL, **changes: Any) -> TrialRecord:
    accuracies = {"validation_pgd_accuracy": 0.5, "validation_clean_accuracy": 0.6}
    facts: dict[str, Any] = {
        "config": trial_config(),
        "numerics": NUMERICS_VERSION,
        "status": "done",
        "curve": tuple({"epoch": epoch, **accuracies} for epoch in range(3)),
        "checkpoints": {name: {"epoch": 2, "sha256": "c" * 64} for name in ("last", "best_test", "best_validation")},
    }
    return TrialRecord(trial=trial, **{**facts, **changes})


def first_survive(accuracy: float, images: int, shift: int = 0) -> np.ndarray:
    """Verdicts with this share of survivors: the first images, or those `shift` places further on."""
    return np.roll(np.arange(images) < round(accuracy * images), shift)


def evaluation_record(
    trial: str = TRIAL,
    attack: str | EvaluationAttack = "pgd-20",
    accuracy: float = 0.5,
    *,
    images: int = 20,
    clean: float | None = 0.9,
    shift: int = 0,
    **changes: Any,
) -> EvaluationRecord:
    described = parse(attack) if isinstance(attack, str) else attack
    verdicts = first_survive(accuracy, images, shift)
    facts = {
        "checkpoint": "best_test",
        "attack": described.model_dump(mode="json", exclude_none=True),
        "verdicts": pack(verdicts),
        "clean": None if clean is None else pack(first_survive(clean, images)),
        "accuracy": float(verdicts.mean()),
    }
    return EvaluationRecord(trial=trial, images=images, **{**facts, **changes})


def shard_record(folder: str, first: int, last: int, phase: str = "", **changes: Any) -> ShardRecord:
    every = pack(np.ones(last - first, dtype=bool))
    return ShardRecord(
        folder=folder, first=first, last=last, phase=phase, **{"correct": every, "clean": every, **changes}
    )


def candidate_record(trial: str = TRIAL, search: str = SEARCH, **changes: Any) -> CandidateRecord:
    return CandidateRecord(search=search, trial=trial, **{"curve": trial_record().curve, **changes})


def search_record(search: str = SEARCH, **changes: Any) -> SearchRecord:
    chosen = {"M": 40, "lam": 0.4}
    entry = CandidateEntry(index=0, generation=0, hyperparameters=chosen, trial=TRIAL, state="done", value=0.5)
    facts: dict[str, Any] = {
        "label": "sovr",
        "method": "sovr",
        "space": {},
        "objective": "validation_pgd_accuracy",
        "objectives": ("robust",),
        "sampler": "tpe",
        "pruner": "asha",
        "seed": 1000,
        "generation": 4,
        "wanted": 1,
        "candidates": (entry,),
        "chosen": chosen,
        "status": "done",
    }
    return SearchRecord(id=search, **{**facts, **changes})


def diagnostics_record(trial: str = TRIAL, **changes: Any) -> DiagnosticsRecord:
    facts: dict[str, Any] = {"checkpoint": "last", "epsilon": "8/255", "images": None, "summary": {"margin_mean": 0.1}}
    facts |= changes
    settings = f"{facts['epsilon'].replace('/', '_')}-{'all' if facts['images'] is None else facts['images']}"
    return DiagnosticsRecord(trial=trial, **{"arrays": f"{facts['checkpoint']}-{settings}.npz", **facts})


def decision_record(trial: str = TRIAL, **changes: Any) -> DecisionRecord:
    facts: dict[str, Any] = {
        "study": "small",
        "first": "sovr",
        "second": "at",
        "direction": 1,
        "measure": "pgd-20",
        "alpha": 0.05,
        "scale": 2.0,
        "seeds": (0, 1),
        "trials": ((trial, "cd" * 32), ("ef" * 32, "01" * 32)),
        "differences": (1.0, 2.0),
        "verdict": "undecided",
        "estimate": 1.5,
        "e_value": 1.2,
    }
    return DecisionRecord(**{**facts, **changes})


def row_record(label: str = "Madry-CNN", **changes: Any) -> RowRecord:
    facts = {"study": "small", "display": "Madry CNN", "subject": f"outside-{TRIAL}", "checkpoint": "outside"}
    return RowRecord(label=label, **{**facts, **changes})


def transfer_record(trial: str = TRIAL, **changes: Any) -> TransferRecord:
    tried, fooled = first_survive(0.5, 20), first_survive(0.1, 20)
    one = Transfer(
        trial="cd" * 32,
        checkpoint="best_test",
        attack="pgd-20-8_255-01234567",
        sha256="d" * 64,
        images=20,
        right=18,
        tried=pack(tried),
        fooled=pack(fooled),
    )
    facts = {"checkpoint": "best_test", "weights": "c" * 64, "norm": "linf", "epsilon": "8/255", "transfers": (one,)}
    return TransferRecord(trial=trial, **{**facts, **changes})


def manifest(name: str = "small", **changes: Any) -> Manifest:
    attack = parse("pgd-20")
    facts: dict[str, Any] = {
        "dataset": "digits",
        "model": "small_cnn",
        "checkpoint": "best_test",
        "seeds": (0,),
        "cells": (PlannedCell(label="at", method="at", seed=0, trial=TRIAL),),
        "attacks": (PlannedAttack(id=attack.id, name=attack.name, epsilon=attack.epsilon),),
        "config_by_label": {"at": trial_config()},
    }
    return Manifest(name=name, **{**facts, **changes})
