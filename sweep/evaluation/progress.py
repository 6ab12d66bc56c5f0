"""Progress of an evaluation: its shards in the store, phase by phase, and the record made from them."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from hashlib import sha256

import numpy as np

from sweep.evaluation.asked import Evaluation
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.records.evaluation import EvaluationRecord, KeptFile, ShardRecord
from sweep.store.verdicts import pack, pack_distances, unpack, unpack_distances
from trainers.attacks.perturbation.autoattack import joined_warnings, square_warning
from trainers.attacks.scoring.counterexample_file import Counterexamples, decoded, joined


class EvaluationProgress:
    """Progress of one evaluation. Pass `paths`, the files in its folder, if they have been listed already."""

    def __init__(self, store: Store, evaluation: Evaluation, paths: Iterable[str] | None = None) -> None:
        self.store, self.evaluation = store, evaluation
        self.alive = np.ones(evaluation.images, dtype=bool)
        self.clean: np.ndarray | None = None
        self.distances: np.ndarray | None = None
        self.after: dict[str, np.ndarray] = {}
        self.finished: list[ShardRecord] = []
        self.unproven = False  # True unless the shards hold exactly one counterexample for each fooled image
        self._known: dict[str, ShardRecord] = {}  # by path
        self.look(paths)

    def look(self, paths: Iterable[str] | None = None) -> None:
        """Refresh the list of shards from the store; phases that are finished are not read again."""
        there = self.store.paths(self.evaluation.folder) if paths is None else paths
        self.paths = [path for path in there if layout.kind_at(path) == ShardRecord.kind]

    def add(self, shards: Iterable[ShardRecord]) -> None:
        """Add shards that this process computed and stored, so that they need not be read."""
        for shard in shards:
            self._known[shard.path] = shard
            if shard.path not in self.paths:
                self.paths.append(shard.path)

    def shards(self, phase: str) -> list[ShardRecord]:
        """Return the phase's shards by position. Broken shards count as missing, so they are computed again."""
        found = []
        for path in self.paths:
            name = layout.shard_name(path)
            if name is None or name.phase != phase:
                continue
            if path not in self._known and (shard := self.store.usable(ShardRecord, path)):
                self._known[path] = shard
            if path in self._known:
                found.append(self._known[path])
        return sorted(found, key=lambda shard: (shard.first, -shard.last))

    def missing(self, phase: str, first: int = 0, last: int | None = None) -> list[tuple[int, int]]:
        """Return the ranges not covered by shards, among all images that reach the phase or those of one chunk."""
        end = int(self.alive.sum()) if last is None else last
        gaps, position = [], first
        for shard in self.shards(phase):
            if shard.first > position:
                gaps.append((position, min(shard.first, end)))
            position = max(position, shard.last)
        if position < end:
            gaps.append((position, end))
        return [(begin, stop) for begin, stop in gaps if begin < stop]

    def finish(self, phase: str) -> None:
        """Read a complete phase and update the surviving images."""
        if phase in self.after:
            return
        where, position = np.flatnonzero(self.alive), 0
        for shard in self.shards(phase):
            if shard.last <= position:
                continue  # computed twice, by processes with different chunks
            images, new = where[max(shard.first, position) : shard.last], slice(max(0, position - shard.first), None)
            position, length = shard.last, shard.last - shard.first
            self.finished.append(shard)
            right = unpack(shard.correct, length)[new]
            self.alive[images] = right
            if shard.clean is not None:
                if self.clean is None:
                    self.clean = np.zeros(self.evaluation.images, dtype=bool)
                self.clean[images] = unpack(shard.clean, length)[new]
            if shard.distances is not None:
                if self.distances is None:
                    self.distances = np.full(self.evaluation.images, np.inf, dtype=np.float32)
                self.distances[images] = unpack_distances(shard.distances, length)[new]
            fell = ~right if self.clean is None else self.clean[images] & ~right
            self.unproven |= len(images) < length or (shard.counterexamples is None and bool(fell.any()))
        self.after[phase] = self.alive.copy()

    def survivors(self) -> np.ndarray:
        return np.flatnonzero(self.alive)

    def counterexamples(self) -> tuple[KeptFile, bytes] | None:
        """Return all shards' counterexamples as one file, or None if any shard lacks its own."""
        kept = [shard.counterexamples for shard in self.finished if shard.counterexamples is not None]
        if not kept or self.unproven or not self.evaluation.counterexamples:
            return None
        images = self.evaluation.images
        found = joined(decoded(base64.b64decode(text), images) for text in kept if text)
        content = found.encoded()
        return KeptFile(sha256=sha256(content).hexdigest(), bytes=len(content), count=len(found)), content

    def record(self) -> tuple[EvaluationRecord, bytes | None]:
        """Return the record of a finished evaluation and the content of its counterexample file, if any."""
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
    """Encode counterexamples for a shard's record: None if some were not saved, '' if there are none."""
    kept = [part for part in parts if part is not None]
    if len(kept) < len(parts):
        return None
    found = joined(kept)
    return base64.b64encode(found.encoded()).decode() if len(found) else ""
