"""Transfer of stored counterexamples to all other models evaluated on the same data, norm and radius."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from sweep.evaluation.proof import ball_of, counterexamples_of, window_of
from sweep.evaluation.untrusted import BATCH, Contradiction, Model, NotVerified, open_model
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.transfer import Transfer, TransferRecord
from sweep.store.verdicts import pack
from sweep.trials.provenance import made_here
from trainers.attacks.scoring.counterexamples import images_of, inside
from trainers.attacks.scoring.scorer import pixels

SAVE_SECONDS = 30.0
Subject = tuple[str, str]  # trial and checkpoint


@dataclass
class Ball:
    """The evaluations on the same data in one norm and radius."""

    norm: str
    epsilon: str
    records: list[EvaluationRecord] = field(default_factory=list)

    @property
    def targets(self) -> list[Subject]:
        return list(dict.fromkeys((one.trial, one.checkpoint) for one in self.records))

    def sources(self, target: Subject) -> list[EvaluationRecord]:
        """Return the evaluations of other models that saved counterexamples."""
        others = [one for one in self.records if one.counterexamples and (one.trial, one.checkpoint) != target]
        return [one for one in others if one.counterexamples and one.counterexamples.count]


def balls(records: Iterable[EvaluationRecord]) -> list[Ball]:
    """Group evaluations by data, norm and radius; return the groups with more than one model."""
    found: dict[tuple[object, ...], Ball] = {}
    for record in records:
        norm, epsilon = str(record.attack.get("norm", "linf")), str(record.attack.get("epsilon", "0"))
        if epsilon != "0" and record.data:
            key = tuple(sorted(record.data.items())), norm, epsilon
            found.setdefault(key, Ball(norm, epsilon)).records.append(record)
    return [ball for ball in found.values() if len(ball.targets) > 1]


def try_all(
    store: Store, ball: Ball, data_dir: str | None, device: str, leave_out: Callable[[str], None]
) -> Iterator[TransferRecord]:
    """Yield one record per model with usable weights; `leave_out` receives the reason for everything skipped."""
    for target in ball.targets:
        try:
            record = _tried(store, ball, target, data_dir, device, leave_out)
        except (NotVerified, Contradiction) as reason:
            leave_out(f"{layout.short(target[0])} {target[1]}: {reason}")
            continue
        if record is not None:
            yield record


def _tried(
    store: Store, ball: Ball, target: Subject, data_dir: str | None, device: str, leave_out: Callable[[str], None]
) -> TransferRecord | None:
    """Return the record of one target, with missing transfers computed and saved; None if there is nothing to try.

    The model is loaded only if some transfers are missing.
    """
    known = store.usable(TransferRecord, layout.transfer_record(*target, ball.norm, ball.epsilon))
    trained = None if target[0].startswith("outside-") else store.trial_record(target[0])
    kept = trained.checkpoints.get(target[1]) if trained else None
    if known is not None and (kept is None or kept.sha256 != known.weights):
        known = None
    before = {one.source: one.sha256 for one in known.transfers} if known else {}
    missing = [one for one in ball.sources(target) if before.get(_source(one)) != _sha256(one)]
    if not missing:
        return known
    model = open_model(store, *target, data_dir, device)
    record = (known or _empty(ball, target, model)).model_copy(update=made_here(model.data))
    saved = time.monotonic()
    for source in missing:
        try:
            record = record.with_transfers([_transfer(store, source, model)])
        except (NotVerified, Contradiction) as reason:
            leave_out(str(reason))
        if time.monotonic() - saved > SAVE_SECONDS:
            store.write_record(record)
            saved = time.monotonic()
    store.write_record(record)
    return record


def _empty(ball: Ball, target: Subject, model: Model) -> TransferRecord:
    weights = model.record.checkpoints[target[1]].sha256
    return TransferRecord(trial=target[0], checkpoint=target[1], weights=weights, norm=ball.norm, epsilon=ball.epsilon)


def _source(record: EvaluationRecord) -> tuple[str, str, str]:
    return record.trial, record.checkpoint, record.path.rpartition("/")[2].removesuffix(".json")


def _sha256(record: EvaluationRecord) -> str:
    return record.counterexamples.sha256 if record.counterexamples else ""


def _transfer(store: Store, source: EvaluationRecord, model: Model) -> Transfer:
    found = try_on(store, source, model)
    trial, checkpoint, attack = _source(source)
    return Transfer(
        trial=trial,
        checkpoint=checkpoint,
        attack=attack,
        sha256=_sha256(source),
        first=found.first,
        images=source.images,
        right=found.right,
        tried=pack(found.tried),
        fooled=pack(found.fooled),
    )


@dataclass(frozen=True)
class Tried:
    """Verdicts of one model on another's counterexamples; `near` marks those within rounding of its boundary."""

    first: int
    right: int
    tried: np.ndarray
    fooled: np.ndarray
    near: np.ndarray


def try_on(store: Store, source: EvaluationRecord, model: Model) -> Tried:
    """Try an evaluation's counterexamples on a model.

    Counts only images that lie in the ball on this device and whose clean version the model classifies correctly.
    """
    norm, radius = ball_of(source)
    first, last = window_of(source, len(model.images))
    found = counterexamples_of(store, source, model.images[0].numel())
    right = ~model.clean(first, last).wrong.numpy()
    where = found.indices.astype(np.int64)
    tried, fooled, near = (np.zeros(source.images, bool) for _ in range(3))
    candidates = np.flatnonzero(right[where])
    for start in range(0, len(candidates), BATCH):
        rows = candidates[start : start + BATCH]
        places = torch.from_numpy(where[rows] + first)
        clean = pixels(model.images[places], model.device)
        images = images_of(found, rows, clean)
        within = inside(images, clean, norm, radius).cpu().numpy()
        judged = model.judged(images, model.labels[places])
        tried[where[rows]], fooled[where[rows]] = within, within & judged.wrong.numpy()
        near[where[rows]] = within & judged.at_the_boundary.numpy()
    return Tried(first, int(right.sum()), tried, fooled, near)
