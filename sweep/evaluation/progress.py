"""How far an evaluation is: its shards in the store, followed phase by phase, and the record that they become."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from hashlib import sha256

import numpy as np

from sweep.evaluation.asked import Evaluation
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.records.evaluation import EvaluationRecord, KeptFile, ShardRecord
from sweep.store.verdicts import pack, pack_distances, unpack, unpack_distances
from trainers.counterexample_file import Counterexamples, decoded, joined
from trainers.perturbation.autoattack import joined_warnings, square_warning


class EvaluationProgress:
    """`paths` are the files below the evaluation's folder, where somebody knows them already."""

    def __init__(self, store: Store, evaluation: Evaluation, paths: Iterable[str] | None = None) -> None:
        self.store, self.evaluation = store, evaluation
        self.alive = np.ones(evaluation.images, dtype=bool)
        self.clean: np.ndarray | None = None
        self.distances: np.ndarray | None = None
        self.after: dict[str, np.ndarray] = {}
        self.finished: list[ShardRecord] = []
        self.unproven = False  # whether an image fell in a shard that kept no counterexamples
        self._known: dict[str, ShardRecord] = {}  # by path
        self.look(paths)

    def look(self, paths: Iterable[str] | None = None) -> None:
        """What the store has by now; phases that were read stay read, however often one looks."""
        there = self.store.paths(self.evaluation.folder) if paths is None else paths
        self.paths = [path for path in there if layout.kind_at(path) == ShardRecord.kind]

    def add(self, shards: Iterable[ShardRecord]) -> None:
        """What whoever computed it has stored, and says: nothing of it is read again."""
        for shard in shards:
            self._known[shard.path] = shard
            if shard.path not in self.paths:
                self.paths.append(shard.path)

    def shards(self, phase: str) -> list[ShardRecord]:
        """The phase's shards by position. A broken one counts as not there, and is computed and written again."""
        found = []
        for path in self.paths:
            name = layout.shard_name(path)
            if name is None or name.phase != phase:
                continue
            if path not in self._known and (shard := self.store.usable(ShardRecord, path)):
                self._known[path] = shard
            if path in self._known:
                found.append(self._known[path])
        return sorted(found, key=lambda shard: (shard.first, shard.last))

    def missing(self, phase: str, shards: int | None = None) -> list[tuple[int, int]]:
        """The ranges without a shard, cut into about so many items; as many as the evaluation says unless given."""
        count = int(self.alive.sum())
        piece = self.evaluation.piece
        length = piece * max(1, math.ceil(math.ceil(count / piece) / (shards or self.evaluation.shards)))
        gaps, position = [], 0
        for first, last in [*((shard.first, shard.last) for shard in self.shards(phase)), (count, count)]:
            gaps += [(start, min(start + length, first)) for start in range(position, first, length)]
            position = max(position, last)
        return gaps

    def finish(self, phase: str) -> None:
        """Read a complete phase: who survives it."""
        if phase in self.after:
            return
        where = np.flatnonzero(self.alive)
        for shard in self.shards(phase):
            images = where[shard.first : shard.last]
            self.finished.append(shard)
            right = unpack(shard.correct, len(images))
            self.alive[images] = right
            if shard.clean is not None:
                if self.clean is None:
                    self.clean = np.zeros(self.evaluation.images, dtype=bool)
                self.clean[images] = unpack(shard.clean, len(images))
            if shard.distances is not None:
                if self.distances is None:
                    self.distances = np.full(self.evaluation.images, np.inf, dtype=np.float32)
                self.distances[images] = unpack_distances(shard.distances, len(images))
            fell = ~right if self.clean is None else self.clean[images] & ~right
            self.unproven = self.unproven or (shard.counterexamples is None and bool(fell.any()))
        self.after[phase] = self.alive.copy()

    def survivors(self) -> np.ndarray:
        return np.flatnonzero(self.alive)

    def reached_by(self, alive: str) -> None:
        """Begin with the images that others found to be left, packed."""
        self.alive = unpack(alive, self.evaluation.images)

    def counterexamples(self) -> tuple[KeptFile, bytes] | None:
        """One file of all shards' counterexamples; None unless all of them kept theirs."""
        kept = [shard.counterexamples for shard in self.finished if shard.counterexamples is not None]
        if not kept or self.unproven or not self.evaluation.counterexamples:
            return None
        images = self.evaluation.images
        found = joined(decoded(base64.b64decode(text), images) for text in kept if text)
        content = found.encoded()
        return KeptFile(sha256=sha256(content).hexdigest(), bytes=len(content), count=len(found)), content

    def record(self) -> tuple[EvaluationRecord, bytes | None]:
        """The verdicts of all images, when all phases are finished, and the counterexamples that belong to it."""
        evaluation, attack = self.evaluation, self.evaluation.attack
        warnings = [warning for shard in self.finished for warning in shard.warnings]
        phases = {}
        if len(attack.phases) > 1:
            accuracies = {phase: float(alive.mean()) for phase, alive in self.after.items()}
            warnings += square_warning(accuracies)
            phases = {phase: pack(alive) for phase, alive in self.after.items() if phase != "clean"}
        first = self.finished[0]
        kept, content = self.counterexamples() or (None, None)
        record = EvaluationRecord(
            trial=evaluation.trial,
            checkpoint=evaluation.checkpoint,
            attack=attack.model_dump(mode="json", exclude_none=True),
            images=evaluation.images,
            verdicts=pack(self.alive),
            clean=None if self.clean is None else pack(self.clean),
            phases=phases,
            accuracy=float(self.alive.mean()),
            warnings=tuple(joined_warnings(warnings)),
            wall_seconds=sum(shard.seconds for shard in self.finished),
            versions=first.versions,
            commit=first.commit,
            device=first.device,
            device_kind=first.device_kind,
            devices=tuple(dict.fromkeys(one for shard in self.finished for one in shard.devices or (shard.device,))),
            precision=first.precision,
            threads=first.threads,
            data=first.data,
            counterexamples=kept,
            distances=None if self.distances is None else pack_distances(self.distances),
        )
        return record, content


def as_text(parts: list[Counterexamples | None]) -> str | None:
    """For a shard's record: None where some were not kept, empty where there are none."""
    kept = [part for part in parts if part is not None]
    if len(kept) < len(parts):
        return None
    found = joined(kept)
    return base64.b64encode(found.encoded()).decode() if len(found) else ""
