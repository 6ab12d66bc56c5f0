"""Evaluations as pieces of a sweep's work: which a cell still needs, and what a worker does with one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.evaluation.diagnosis import diagnose_trial, diagnostics_path
from sweep.evaluation.items import Evaluation, Item, of_trial, run_item
from sweep.store.base import Store
from sweep.studies.model import Study
from sweep.trials import cells as plan
from trainers import attacks


def evaluations_of(study: Study, cell: plan.Cell) -> list[Evaluation]:
    assert cell.trial is not None
    settings = study.evaluation
    return [
        of_trial(cell.trial, cell.config, checkpoint, attack, shards=settings.shards, batch_size=settings.batch_size)
        for checkpoint in plan.evaluated_checkpoints(study, cell.config)
        for attack in plan.evaluation_attacks(study)
    ]


def diagnoses_of(study: Study, cell: plan.Cell) -> dict[str, str]:
    """Checkpoint -> the record that its diagnostics have or will have."""
    if cell.trial is None:
        return {}
    trial, settings = cell.trial, study.evaluation
    return {
        name: diagnostics_path(trial, name, settings.epsilon, settings.images)
        for name in plan.diagnosed_checkpoints(study, cell.config)
    }


def relative_cost(evaluation: Evaluation) -> float:
    """In the same unit as that of trainings."""
    return evaluation.images * evaluation.attack.cost


def item_payload(item: Item) -> dict[str, Any]:
    evaluation = item.evaluation
    return {
        "evaluation": {
            "trial": evaluation.trial,
            "checkpoint": evaluation.checkpoint,
            "attack": evaluation.attack.model_dump(mode="json", exclude_none=True),
            "images": evaluation.images,
            "shards": evaluation.shards,
            "batch_size": evaluation.batch_size,
        },
        "phase": item.phase,
        "first": item.first,
        "last": item.last,
    }


def evaluate(job: Mapping[str, Any], store: Store, place: Path, report: Any) -> str:
    """One item in a worker. It saves after every batch, so a retry computes only what is missing."""
    from sweep.cluster.worker import device
    from sweep.evaluation.checkpoints import trial_parts

    facts = dict(job["evaluation"])
    evaluation = Evaluation(**{**facts, "attack": attacks.from_record(facts["attack"])})
    item = Item(evaluation, job["phase"], job["first"], job["last"])
    model, images, labels = trial_parts(
        job["store"], evaluation.trial, evaluation.checkpoint, job["data_dir"], device()
    )
    part = slice(evaluation.first_image, evaluation.first_image + evaluation.images)
    pieces = run_item(store, item, model, images[part], labels[part], device=device(), commit=job["commit"])
    for done in pieces:
        report({"images": done})
    return "done"


def diagnose(job: Mapping[str, Any], store: Store, place: Path, report: Any) -> str:
    from sweep.cluster.worker import device

    diagnose_trial(
        job["store"],
        job["trial"],
        job["checkpoint"],
        job["data_dir"],
        epsilon=job["epsilon"],
        images=job["images"],
        device=device(),
        commit=job["commit"],
    )
    return "done"
