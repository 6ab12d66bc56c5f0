"""Verification of a store, model by model: evaluations, and transfers between models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from sweep.evaluation.proof import Proof, prove
from sweep.evaluation.transferring import Tried, try_on
from sweep.evaluation.untrusted import Contradiction, Model, NotVerified, open_model
from sweep.store import layout
from sweep.store.base import Skip, Store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.transfer import Transfer, TransferRecord


@dataclass(frozen=True)
class TransferProof:
    """Result of trying again the counterexamples of other models that, by a record, fool this one."""

    record: str
    trial: str
    checkpoint: str
    norm: str
    epsilon: str
    kept: int
    confirmed: int = 0
    faults: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        return "failed" if self.faults else "not verified" if self.unverified else "confirmed"

    def line(self) -> str:
        said = [f"{self.confirmed:,} of {self.kept:,} counterexamples of other models confirmed"]
        said += [f"NOT VERIFIED: {reason}" for reason in self.unverified]
        said += [f"FAILED: {fault}" for fault in self.faults]
        return f"Transfers ({'' if self.norm == 'linf' else f'{self.norm} '}ε={self.epsilon}): " + "; ".join(said)


def verified(
    store: Store, wanted: Mapping[str, list[str]], data_dir: str | None, device: str, skip: Skip
) -> Iterator[tuple[str, list[Proof | TransferProof]]]:
    """Check the evaluations at these paths and their transfers; yield the results with their title.

    Broken records are passed to `skip`.
    """
    for title, paths in wanted.items():
        models: dict[tuple[str, str], Model | NotVerified | Contradiction] = {}
        found: list[Proof | TransferProof] = []
        for record in store.records(EvaluationRecord, paths, skip):
            key = record.trial, record.checkpoint
            if key not in models:
                try:
                    models[key] = open_model(store, *key, data_dir, device)
                except (NotVerified, Contradiction) as reason:
                    models[key] = reason
            found.append(prove(store, record, models[key]))
        for (trial, checkpoint), model in models.items():
            places = store.record_paths(TransferRecord, layout.transfers_of(trial))
            for transfers in store.records(TransferRecord, places, skip):
                if transfers.checkpoint == checkpoint:
                    found.append(prove_transfers(store, transfers, model))
        if found:
            yield title, found


def prove_transfers(store: Store, record: TransferRecord, model: Model | NotVerified | Contradiction) -> TransferProof:
    kept = sum(int(one.fooled_images.sum()) for one in record.transfers)
    facts = (record.path, record.trial, record.checkpoint, record.norm, record.epsilon, kept)
    if isinstance(model, NotVerified):
        return TransferProof(*facts, unverified=(str(model),))
    if isinstance(model, Contradiction):
        return TransferProof(*facts, faults=(str(model),))
    if record.weights != model.record.checkpoints[record.checkpoint].sha256:
        return TransferProof(*facts, unverified=("it was made with other weights; sweep.transfer makes it again",))
    confirmed, faults, unverified = 0, [], []
    for one in record.transfers:
        try:
            found = try_on(store, _source(store, one), model)
        except NotVerified as reason:
            unverified.append(str(reason))
            continue
        except Contradiction as fault:
            faults.append(str(fault))
            continue
        differs = _differences(one, found)
        if differs.any():
            first = found.first + int(np.flatnonzero(differs)[0])
            faults.append(
                f"{int(differs.sum())} verdicts on counterexamples of {layout.short(one.trial)} {one.attack} are not "
                f"those of the weights (first: image {first})"
            )
        confirmed += int((one.fooled_images & ~differs).sum())
    return TransferProof(*facts, confirmed=confirmed, faults=tuple(faults), unverified=tuple(unverified))


def _source(store: Store, transfer: Transfer) -> EvaluationRecord:
    path = layout.evaluation_record(transfer.trial, transfer.checkpoint, transfer.attack)
    source = next(store.records(EvaluationRecord, [path], lambda _: None), None)
    same = source is not None and source.counterexamples and source.counterexamples.sha256 == transfer.sha256
    if source is None or not same or source.images != transfer.images:
        raise NotVerified(f"the counterexamples of {path} that were tried are not there")
    return source


def _differences(transfer: Transfer, found: Tried) -> np.ndarray:
    """Return a mask of verdicts that differ by more than rounding on another machine can explain."""
    return (transfer.fooled_images != found.fooled) & ~found.near
