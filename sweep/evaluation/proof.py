"""Verification of evaluations by forward passes: a record's counterexamples confirm its verdicts or refute them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sweep.evaluation.untrusted import BATCH, Contradiction, Model, NotVerified
from sweep.store.base import ABSENT, Store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.verdicts import unpack
from sweep.trials.provenance import device_name, versions
from trainers.attacks import display_name, from_record
from trainers.attacks.scoring.counterexample_file import BrokenCounterexamples, Counterexamples, decoded
from trainers.attacks.scoring.counterexamples import Judged, images_of, inside
from trainers.attacks.scoring.scorer import pixels
from trainers.loop.precision import used_precision
from trainers.values import NORM_NAMES, NormName, as_float, check_amount

# Tolerances for the difference of a logit margin from the recorded one, as a share of the largest logit: on the same
# device and torch version, on another, and if either of the two used tf32.
DRIFTS = (2e-5, 5e-4, 2e-2)


@dataclass(frozen=True)
class Proof:
    """Result of verifying one evaluation. `bound` is proven: at most this share of the images is robust."""

    record: str
    trial: str
    checkpoint: str
    attack: str
    norm: str
    epsilon: str
    images: int
    accuracy: float
    kept: int = 0
    confirmed: int = 0
    near: int = 0  # confirmed ones within rounding of the decision boundary
    by_chance: int = 0  # wrong when clean but right when attacked; an attack without phases may count these as robust
    bound: float | None = None
    faults: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        return "failed" if self.faults else "not verified" if self.unverified else "confirmed"

    def line(self) -> str:
        norm = "" if self.norm == "linf" else f"{self.norm} "
        ball = f"{norm}ε={self.epsilon}, " if self.epsilon != "0" or self.attack != "clean" else ""
        start = f"{display_name(self.attack)} {100 * self.accuracy:.1f} % ({ball}{self.images:,} images): "
        said = []
        if self.kept:
            said.append(f"{self.confirmed:,} of {self.kept:,} counterexamples confirmed")
        if self.near:
            said.append(f"{self.near:,} of them within rounding of the boundary")
        if self.by_chance:
            said.append(f"{self.by_chance:,} images that are wrong when clean count as robust")
        if self.bound is not None and self.epsilon != "0":
            said.append(f"at most {100 * self.bound:.1f} % robust")
            rest = self.status == "confirmed" and self.bound > 0
            said += [f"the rest was not broken by {display_name(self.attack)}"] if rest else []
        elif self.bound is not None:
            said.append("confirmed")
        said += [f"NOT VERIFIED: {reason}" for reason in self.unverified]
        said += [f"FAILED: {fault}" for fault in self.faults]
        return start + "; ".join(said)


def prove(store: Store, record: EvaluationRecord, model: Model | NotVerified | Contradiction) -> Proof:
    attack = record.attack
    facts: dict[str, Any] = {
        "record": record.path,
        "trial": record.trial,
        "checkpoint": record.checkpoint,
        "attack": str(attack.get("name")),
        "norm": str(attack.get("norm", "linf")),
        "epsilon": str(attack.get("epsilon", "0")),
        "images": record.images,
        "accuracy": record.accuracy,
        "kept": record.counterexamples.count if record.counterexamples else 0,
    }
    faults = list(_own_contradictions(record))
    if isinstance(model, NotVerified | Contradiction):
        said = (str(model),)
        if isinstance(model, NotVerified):
            return Proof(**facts, faults=tuple(faults), unverified=said)
        return Proof(**facts, faults=(*faults, *said))
    try:
        return Proof(**facts, **_Check(store, record, model, faults).outcome())
    except NotVerified as reason:
        return Proof(**facts, faults=tuple(faults), unverified=(str(reason),))
    except Contradiction as fault:
        return Proof(**facts, faults=(*faults, str(fault)))


def _own_contradictions(record: EvaluationRecord) -> Iterator[str]:
    """Yield contradictions between the verdicts of one record; its accuracy was checked when it was read."""
    alive = unpack(record.clean, record.images) if record.clean is not None else np.ones(record.images, bool)
    components = record.attack.get("components")
    named = [one for one in components if isinstance(one, str)] if isinstance(components, list | tuple) else []
    for phase in (one for one in named if one in record.phases):
        after = unpack(record.phases[phase], record.images)
        if (after & ~alive).any():
            yield f"{int((after & ~alive).sum())} images are robust after {phase} that were not before it"
        alive = after
    if record.phases and not np.array_equal(alive, record.survivors):
        yield "its verdicts are not those after its last phase"


class _Check:
    def __init__(self, store: Store, record: EvaluationRecord, model: Model, faults: list[str]) -> None:
        self.store, self.record, self.model, self.faults = store, record, model, faults
        self.norm, self.radius = ball_of(record)
        self.first, self.last = window_of(record, len(model.images))
        for name, sha256 in model.data.items():
            if record.data.get(name, sha256) != sha256:
                raise Contradiction(f"evaluated on data {name!r} of sha256 {record.data[name][:16]}…, not on these")

    def outcome(self) -> dict[str, Any]:
        if self.record.attack.get("kind") == "corruption":
            self._compare("its", self.record.survivors, self._corrupted())
            return {"bound": self.record.accuracy, "faults": tuple(self.faults)}
        clean = self.model.clean(self.first, self.last)
        if self.record.clean is not None:
            self._compare("its clean", unpack(self.record.clean, self.record.images), clean)
        right = ~clean.wrong.numpy() if self.record.clean is None else unpack(self.record.clean, self.record.images)
        if self.radius == 0:
            self._compare("its", self.record.survivors, clean)
            return {"bound": float((~clean.wrong).float().mean()), "faults": tuple(self.faults)}
        fell = right & ~self.record.survivors
        if self.record.counterexamples is None:
            accuracy = 100 * float(right.mean())
            reason = (
                f"it kept no counterexamples; of its numbers only the clean accuracy, {accuracy:.1f} %, was checked"
            )
            return {"faults": tuple(self.faults), "unverified": (reason,)}
        found = counterexamples_of(self.store, self.record, self.model.images[0].numel())
        if len(found) != self.record.counterexamples.count:
            count = self.record.counterexamples.count
            self.faults.append(f"its record counts {count} counterexamples, the file has {len(found)}")
        confirmed, near = self._confirmed(found, fell)
        robust = right.copy()
        robust[confirmed] = False
        return {
            "confirmed": len(confirmed),
            "near": near,
            "by_chance": int((self.record.survivors & ~right).sum()),
            "bound": float(robust.mean()),
            "faults": tuple(self.faults),
        }

    def _corrupted(self) -> Judged:
        dataset = self.model.record.config.dataset
        try:
            images = from_record(self.record.attack).images_of(
                self.model.images, self.model.labels, dataset, self.model.data_dir
            )
        except ValueError as absent:
            raise NotVerified(str(absent)) from None
        part = slice(self.first, self.last)
        return self.model.judged(images[part], self.model.labels[part])

    def _compare(self, what: str, recorded: np.ndarray, found: Judged) -> None:
        differs = (recorded == found.wrong.numpy()) & ~found.at_the_boundary.numpy()
        if differs.any():
            where = self.first + int(np.flatnonzero(differs)[0])
            self.faults.append(
                f"{what} verdicts on {int(differs.sum())} images are not those of the weights (first: image {where})"
            )

    def _confirmed(self, found: Counterexamples, fell: np.ndarray) -> tuple[np.ndarray, int]:
        """Return the positions of images with a valid counterexample, and how many of these are within rounding.

        Adds a fault for every kind of mismatch.
        """
        where = found.indices.astype(np.int64)
        shown = np.zeros(self.record.images, bool)
        shown[where] = True
        self._say((fell & ~shown), "images fell without a counterexample")
        self._say((shown & ~fell), "counterexamples are of images that did not fall, or were wrong when clean")
        holds, near = np.zeros(len(found), bool), np.zeros(len(found), bool)
        for start in range(0, len(found), BATCH):
            rows = np.arange(start, min(start + BATCH, len(found)))
            places = torch.from_numpy(where[rows] + self.first)
            clean = pixels(self.model.images[places], self.model.device)
            images = images_of(found, rows, clean)
            judged = self.model.judged(images, self.model.labels[places])
            within = inside(images, clean, self.norm, self.radius).cpu().numpy()
            boundary, wrong = judged.at_the_boundary.numpy(), judged.wrong.numpy()
            drift = np.abs(judged.margins.numpy() - found.margins[rows]) / np.maximum(judged.scales.numpy(), 1e-12)
            same = ~(drift > self._drift())
            self._say(~within, "counterexamples lie outside of the ball or of [0, 1]", where[rows])
            self._say(within & ~wrong & ~boundary, "counterexamples are classified correctly", where[rows])
            moved = "counterexamples fool the model by another margin than was recorded: image or weights were changed"
            self._say(within & (wrong | boundary) & ~same, moved, where[rows])
            holds[rows] = within & (wrong | boundary) & same
            near[rows] = holds[rows] & boundary
        return where[holds & fell[where]], int(near.sum())

    def _say(self, bad: np.ndarray, what: str, places: np.ndarray | None = None) -> None:
        if bad.any():
            numbers = np.flatnonzero(bad)
            first = self.first + int(numbers[0] if places is None else places[numbers[0]])
            self.faults.append(f"{len(numbers)} {what} (first: image {first})")

    def _drift(self) -> float:
        made = self.record
        if "tf32" in (made.precision, used_precision(self.model.network.evaluated_in, self.model.device)):
            return DRIFTS[2]
        here = (device_name(), versions()["torch"])
        return DRIFTS[0] if (made.device, made.versions.get("torch")) == here else DRIFTS[1]


def ball_of(record: EvaluationRecord) -> tuple[NormName, float]:
    """Return norm and radius of an evaluation, without its attack's class, which may be a plug-in's."""
    norm = next((name for name in NORM_NAMES if name == record.attack.get("norm", "linf")), None)
    try:
        radius = as_float(check_amount(record.attack.get("epsilon")))
    except ValueError as fault:
        raise Contradiction(f"its radius {record.attack.get('epsilon')!r} {fault}") from None
    if norm is None:
        raise Contradiction(f"its norm is {record.attack.get('norm')!r}")
    return norm, radius


def window_of(record: EvaluationRecord, present: int) -> tuple[int, int]:
    window = record.attack.get("images") or (0, record.images)
    whole = isinstance(window, list | tuple) and len(window) == 2 and all(isinstance(one, int) for one in window)
    if not whole or not 0 <= window[0] < window[1] <= present or window[1] - window[0] != record.images:
        raise Contradiction(f"its {record.images} images {window!r} are not among the {present} test images")
    return int(window[0]), int(window[1])


def counterexamples_of(store: Store, record: EvaluationRecord, values: int) -> Counterexamples:
    """Read the counterexamples of an evaluation; `values` is the number of values per image.

    Raises NotVerified if the file is missing, and Contradiction if it is damaged.
    """
    path, kept = record.counterexamples_path, record.counterexamples
    fault = store.file_fault(path, kept.sha256 if kept else None)
    if fault == ABSENT:
        raise NotVerified(f"counterexamples {path} are absent")
    if fault is not None:
        raise Contradiction(f"counterexamples {path}: {fault}")
    try:
        return decoded(store.read(path), record.images, values)
    except BrokenCounterexamples as broken:
        raise Contradiction(f"counterexamples {path}: {broken}") from None
