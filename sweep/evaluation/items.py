"""Evaluation as small pieces of work over (checkpoint, attack, phase, range of images), kept in the store.

`next_items` says what can be computed now, `compute` does one item in whatever process, and when nothing is left
`next_items` writes the record. AutoAttack's phases follow one another: the survivors of all images are packed into
batches before the next phase is cut into items, so the verdicts do not depend on the number of shards. An item saves
after every batch; a kill loses one batch of one component.
"""

from __future__ import annotations

import base64
import contextlib
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.errors import UserError
from sweep.evaluation.checkpoints import Outside, outside_parts, trial_parts
from sweep.store.base import FORMAT, BrokenRecord, Store, open_store
from trainers.attack import EvaluationAttack
from trainers.config import TrialConfig

_SHARD = re.compile(r"shard-(\d+)-(\d+)(?:\.(.+))?\.json")


@dataclass(frozen=True)
class Evaluation:
    """One record to be: an attack on a checkpoint. `trial` names the trial, or weights from elsewhere."""

    trial: str
    checkpoint: str
    attack: EvaluationAttack
    images: int
    shards: int = 1
    batch_size: int = 256

    @property
    def folder(self) -> str:
        return f"evaluations/{self.trial[:16]}/{self.checkpoint}/{self.attack.id}"

    @property
    def record(self) -> str:
        return f"{self.folder}.json"

    @property
    def first_image(self) -> int:
        return self.attack.images[0] if self.attack.images else 0

    @property
    def piece(self) -> int:
        """How many images are computed and saved together; for AutoAttack its batch, which is part of the attack."""
        return self.attack.batch_size or self.batch_size


@dataclass(frozen=True)
class Item:
    """A range of the images that reach a phase: positions first … last-1 among the survivors of the phase before."""

    evaluation: Evaluation
    phase: str
    first: int
    last: int


def pack(verdicts: np.ndarray) -> str:
    return base64.b64encode(np.packbits(verdicts.astype(bool)).tobytes()).decode()


def unpack(text: str, count: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8), count=count).astype(bool)


def of_trial(
    trial: str,
    config: TrialConfig,
    checkpoint: str,
    attack: EvaluationAttack,
    *,
    shards: int = 1,
    batch_size: int = 256,
) -> Evaluation:
    from trainers.data import dataset_facts

    present = config.test_images or dataset_facts(config.dataset).test_images
    return Evaluation(trial, checkpoint, attack, _count(attack, present), shards, batch_size)


def of_outside(
    name: str, attack: EvaluationAttack, test_images: int, *, shards: int = 1, batch_size: int = 256
) -> Evaluation:
    return Evaluation(name, "outside", attack, _count(attack, test_images), shards, batch_size)


def _count(attack: EvaluationAttack, present: int) -> int:
    first, last = attack.images or (0, present)
    if not 0 <= first < last <= present:
        raise UserError(
            f"images {first}:{last} are not among the {present} test images; give a range within 0:{present}"
        )
    return last - first


def next_items(store: Store, evaluation: Evaluation) -> list[Item]:
    """What can be computed now, by any processes. When nothing is left the record is written, and the answer is []."""
    if _is_finished(store, evaluation):
        return []
    progress = _Progress(store, evaluation)
    for phase in evaluation.attack.phases:
        missing = progress.missing(phase)
        if missing:
            return [Item(evaluation, phase, first, last) for first, last in missing]
        progress.finish(phase)
    store.write_json(evaluation.record, progress.record())
    for path in store.list(evaluation.folder):
        store.delete(path)
    return []


def _is_finished(store: Store, evaluation: Evaluation) -> bool:
    """A broken record counts as not there, and is replaced."""
    try:
        store.read_json(evaluation.record)
    except (BrokenRecord, FileNotFoundError):
        return False
    return True


def missing_images(store: Store, item: Item) -> int:
    """How many images of an item are not saved yet, from a listing alone."""
    left = set(range(item.first, item.last))
    for path in store.list(item.evaluation.folder):
        match = _SHARD.fullmatch(path.rpartition("/")[2])
        if match and (match[3] or "") == item.phase:
            left -= set(range(int(match[1]), int(match[2])))
    return len(left)


class _Progress:
    """The shards of one evaluation in the store, followed phase by phase."""

    def __init__(self, store: Store, evaluation: Evaluation) -> None:
        self.store = store
        self.evaluation = evaluation
        self.alive = np.ones(evaluation.images, dtype=bool)
        self.clean: np.ndarray | None = None
        self.after: dict[str, np.ndarray] = {}
        self.finished: list[dict[str, Any]] = []
        self.paths: dict[str, list[tuple[int, int, str]]] = {}
        for path in store.list(evaluation.folder):
            if match := _SHARD.fullmatch(path.rpartition("/")[2]):
                self.paths.setdefault(match[3] or "", []).append((int(match[1]), int(match[2]), path))
        self.shards: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}

    def read(self, phase: str) -> list[tuple[int, int, dict[str, Any]]]:
        """The phase's shards by position. A broken one counts as not there, and is computed and written again."""
        if phase not in self.shards:
            self.shards[phase] = []
            for first, last, path in sorted(self.paths.get(phase, [])):
                with contextlib.suppress(BrokenRecord, FileNotFoundError):
                    self.shards[phase].append((first, last, self.store.read_json(path)))
        return self.shards[phase]

    def missing(self, phase: str) -> list[tuple[int, int]]:
        """The ranges without a shard, cut so that the phase has about as many items as the evaluation has shards."""
        count = int(self.alive.sum())
        piece = self.evaluation.piece
        length = piece * max(1, math.ceil(math.ceil(count / piece) / self.evaluation.shards))
        gaps, position = [], 0
        for first, last in [*((first, last) for first, last, _ in self.read(phase)), (count, count)]:
            gaps += [(start, min(start + length, first)) for start in range(position, first, length)]
            position = max(position, last)
        return gaps

    def finish(self, phase: str) -> None:
        """Read a complete phase: who survives it."""
        where = np.flatnonzero(self.alive)
        for first, last, shard in self.read(phase):
            self.finished.append(shard)
            self.alive[where[first:last]] = unpack(shard["correct"], last - first)
            if shard["clean"] is not None:
                if self.clean is None:
                    self.clean = np.zeros(self.evaluation.images, dtype=bool)
                self.clean[where[first:last]] = unpack(shard["clean"], last - first)
        self.after[phase] = self.alive.copy()

    def survivors(self) -> np.ndarray:
        return np.flatnonzero(self.alive)

    def record(self) -> dict[str, Any]:
        """The verdicts of all images; every number in it is read off them."""
        from trainers.perturbation.autoattack import joined_warnings, square_warning

        evaluation, attack = self.evaluation, self.evaluation.attack
        warnings = [warning for shard in self.finished for warning in shard["warnings"]]
        phases = {}
        if len(attack.phases) > 1:
            accuracies = {phase: float(alive.mean()) for phase, alive in self.after.items()}
            warnings += square_warning(accuracies)
            phases = {phase: pack(alive) for phase, alive in self.after.items() if phase != "clean"}
        assert self.clean is not None
        return {
            "kind": "evaluation",
            "format": FORMAT,
            "trial": evaluation.trial,
            "checkpoint": evaluation.checkpoint,
            "attack": attack.model_dump(mode="json", exclude_none=True),
            "images": evaluation.images,
            "verdicts": pack(self.alive),
            "clean": pack(self.clean),
            "phases": phases,
            "accuracy": float(self.alive.mean()),
            "warnings": joined_warnings(warnings),
            "wall_seconds": sum(shard["seconds"] for shard in self.finished),
            **{key: self.finished[0][key] for key in ("versions", "commit", "device")},
        }


def compute(
    store_uri: str,
    item: Item,
    data_dir: str | None,
    *,
    outside: Outside | None = None,
    device: str = "cpu",
    commit: str | None = None,
    threads: int | None = None,
) -> None:
    """One item, in any process that can open the store. Safe to repeat: what is saved is not computed again."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    store = open_store(store_uri)
    evaluation = item.evaluation
    if outside is None:
        model, images, labels = trial_parts(store_uri, evaluation.trial, evaluation.checkpoint, data_dir, device)
    else:
        model, images, labels = outside_parts(outside, data_dir, device)
    end = evaluation.first_image + evaluation.images
    images, labels = images[evaluation.first_image : end], labels[evaluation.first_image : end]
    for _ in run_item(store, item, model, images, labels, device=device, commit=commit):
        pass


def run_item(
    store: Store, item: Item, model: Any, images: Any, labels: Any, *, device: str = "cpu", commit: str | None = None
) -> Iterator[int]:
    """Computes an item piece by piece and saves each; yields how many images of the item are done.

    `images` and `labels` are those of the evaluation: its range of the test set.
    """
    import torch

    from sweep.cluster.worker import device_name, versions
    from trainers.evaluate import evaluate_phase

    evaluation, attack = item.evaluation, item.evaluation.attack
    progress = _Progress(store, evaluation)
    for phase in attack.phases[: attack.phases.index(item.phase)]:
        progress.finish(phase)
    survivors = torch.from_numpy(progress.survivors())
    for first, last in progress.missing(item.phase):
        for start in range(max(first, item.first), min(last, item.last), evaluation.piece):
            end = min(start + evaluation.piece, last, item.last)
            where = survivors[start:end]
            started = time.perf_counter()
            found = evaluate_phase(
                model,
                images[where],
                labels[where],
                attack,
                item.phase,
                indices=where + evaluation.first_image,
                device=device,
                batch_size=evaluation.batch_size,
                checks=start == 0 and item.phase == "clean",
            )
            suffix = f".{item.phase}" if item.phase else ""
            store.write_json(
                f"{evaluation.folder}/shard-{start}-{end}{suffix}.json",
                {
                    "kind": "shard",
                    "format": FORMAT,
                    "correct": pack(found.correct.numpy()),
                    "clean": None if found.clean is None else pack(found.clean.numpy()),
                    "warnings": found.warnings,
                    "seconds": time.perf_counter() - started,
                    "versions": versions(),
                    "commit": commit,
                    "device": device_name(),
                },
            )
            yield end - item.first


def finish(
    store: Store, evaluation: Evaluation, model: Any, images: Any, labels: Any, *, device: str = "cpu"
) -> dict[str, Any]:
    """The record of an evaluation, computing in this process whatever is missing."""
    while items := next_items(store, evaluation):
        for item in items:
            for _ in run_item(store, item, model, images, labels, device=device):
                pass
    return store.read_json(evaluation.record)
