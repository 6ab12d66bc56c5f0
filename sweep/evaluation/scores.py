"""Scores of one model under attacks, computed in one or several processes, and their printed form."""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from sweep.commands import spelled, store_words
from sweep.errors import UserError
from sweep.evaluation.asked import Evaluation
from sweep.evaluation.attack import BatchDone, attack, leased
from sweep.evaluation.rows import Row, wanted_row
from sweep.evaluation.subject import EvaluateOptions, Subject, check_options, find_subject
from sweep.store.base import Store
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.verdicts import unpack
from trainers.attack import AttackSettings, EvaluationAttack
from trainers.attacks.autoattack import COMPONENTS
from trainers.attacks.scoring import suites
from trainers.plugins import registry
from trainers.values import NORM_DISPLAYS, as_float

Say = Callable[[str], None]
Tell = Callable[[BatchDone], None]
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0  # seconds between polls while other processes finish an attack


@dataclass(frozen=True)
class Score:
    attack: str
    norm: str
    epsilon: str
    accuracy: float
    images: int
    phases: dict[str, float]
    warnings: tuple[str, ...]
    wall_seconds: float
    record: str

    def lines(self) -> list[str]:
        norm = "" if self.norm == "linf" else f" {NORM_DISPLAYS[self.norm]}"
        radius = "" if self.epsilon == "0" else f"{norm} ε={self.epsilon}"
        order = COMPONENTS if len(self.phases) > 1 else ()
        return [
            f"  {self.attack + radius:<32} {100 * self.accuracy:6.2f} %  of {self.images} images",
            *(f"    after {phase:<22} {100 * self.phases[phase]:6.2f} %" for phase in order if phase in self.phases),
            *(f"    warning: {warning}" for warning in self.warnings),
        ]


@dataclass(frozen=True)
class Scores:
    name: str
    checkpoint: str
    store: str
    evaluations: dict[str, Score]
    epsilon: str
    worst_over: str
    worst_accuracy: float | None
    warnings: list[str]

    def json(self) -> str:
        return json.dumps(vars(self), indent=2, sort_keys=True, default=vars)

    def text(self) -> str:
        lines = [f"{self.name[:24]} {self.checkpoint}"]
        corrupted = [score for score in self.evaluations.values() if score.attack.startswith("corruption-")]
        lines += [line for score in self.evaluations.values() if score not in corrupted for line in score.lines()]
        lines += _corruption_lines(corrupted)
        if self.worst_accuracy is not None:
            lines.append(f"  {self.worst_over:<32} {100 * self.worst_accuracy:6.2f} %")
        return "\n".join(lines)


def _corruption_lines(corrupted: list[Score]) -> list[str]:
    """Return lines with the mean of each corruption over its severities, and the mean over all."""
    by_name: dict[str, list[Score]] = {}
    for score in corrupted:
        by_name.setdefault(score.attack.split("-")[1], []).append(score)
    lines = []
    for name, scores_of in by_name.items():
        mean = 100 * sum(score.accuracy for score in scores_of) / len(scores_of)
        severities = ", ".join(f"{100 * score.accuracy:.2f}" for score in scores_of)
        lines.append(f"  {name:<32} {mean:6.2f} %  by severity: {severities}")
    if corrupted:
        mean = 100 * sum(score.accuracy for score in corrupted) / len(corrupted)
        words = f"mean over {len(corrupted)} corrupted test sets"
        lines.append(f"  {words:<32} {mean:6.2f} %  of {corrupted[0].images} images each")
    return lines


def scores(store: Store, options: EvaluateOptions, say: Say) -> Scores:
    """Return the scores of a model. Stored evaluations are reused; `say` receives progress messages for the others."""
    check_options(options)
    row = wanted_row(store, options)
    if row is not None and options.dataset is None:
        options = replace(options, dataset=row.study.dataset)
    subject = find_subject(store, options)
    if row is not None:
        row.check(store, subject)
    attacks = _attacks(options, subject, row)
    evaluations = [subject.evaluation(wanted, options) for wanted in attacks]
    subject.check_data(store, evaluations)
    for wanted in attacks:
        subject.parts_for(wanted)  # fail on missing files before hours of attacks
    warnings = subject.warnings()
    for warning in warnings:
        sys.stderr.write(f"warning: {warning}\n")
    found, worst = {}, None
    balls = _balls(options, attacks, row)
    for evaluation in evaluations:
        computed = evaluation.attack
        record = _compute(store, evaluation, subject, say)
        if computed.kind == "clean" or computed.epsilon == balls.get(computed.norm):
            worst = record.survivors if worst is None else worst & record.survivors
        found[computed.id] = Score(
            attack=computed.name,
            norm=computed.norm,
            epsilon=computed.epsilon,
            accuracy=record.accuracy,
            images=record.images,
            phases={phase: float(unpack(bits, record.images).mean()) for phase, bits in record.phases.items()},
            warnings=record.warnings,
            wall_seconds=record.wall_seconds,
            record=record.path,
        )
    if row is not None:
        row.write(store, subject, options)
        shown = spelled("reports", *store_words(store.uri))
        say(f"{row.display!r} is a row of study {row.manifest.name!r} now (label {row.label}, n = 1); tables: {shown}")
    radii = ", ".join(balls.values())
    return Scores(
        name=subject.name,
        checkpoint=subject.checkpoint,
        store=store.uri,
        evaluations=found,
        epsilon=radii,
        worst_over=f"worst over {', '.join(sorted(balls))}" if len(balls) > 1 else f"worst case, ε={radii}",
        worst_accuracy=None if worst is None else float(worst.mean()),
        warnings=warnings,
    )


def _attacks(options: EvaluateOptions, subject: Subject, row: Row | None) -> list[EvaluationAttack]:
    found: dict[str, EvaluationAttack] = {}
    names, images = _names(options), _window(options.images)
    try:
        if row is not None and options.epsilon is options.norm is images is None:
            return row.attacks(names)
        for norm, epsilon in options.balls.items():
            settings = AttackSettings(
                epsilon=epsilon,
                norm=norm,
                classes=subject.classes(),
                seed=options.seed,
                batch_size=options.batch_size,
                images=images,
            )
            found |= {attack.id: attack for attack in suites.attacks(names or suites.SUITES["main"], settings)}
        return list(found.values())
    except ValueError as fault:
        raise UserError(str(fault)) from None


def _names(options: EvaluateOptions) -> list[str] | None:
    if options.attacks is None:
        return None
    parts = [part.strip() for part in options.attacks.split(",") if part.strip()]
    if not parts:
        raise UserError(
            f"--attacks {options.attacks!r} names no attack; give some such as clean,pgd-20, or a suite such as main"
        )
    return [name for part in parts for name in suites.SUITES.get(part, (part,))]


def _balls(options: EvaluateOptions, attacks: list[EvaluationAttack], row: Row | None) -> dict[str, str]:
    """Return the radius per norm that counts for the worst case: the requested one, or else the smallest."""
    asked: dict[str, str] = {str(norm): radius for norm, radius in options.balls.items()}
    if row is not None and options.epsilon is None:
        asked = {row.study.evaluation_norm: row.study.evaluation.epsilon}
    radii: dict[str, list[str]] = {}
    for wanted in attacks:
        if wanted.epsilon != "0":
            radii.setdefault(wanted.norm, []).append(wanted.epsilon)
    found = {norm: asked[norm] if asked.get(norm) in one else min(one, key=as_float) for norm, one in radii.items()}
    return found or asked


def _window(images: str | None) -> tuple[int, int] | None:
    if images is None:
        return None
    match = re.fullmatch(r"(\d*):(\d+)", images)
    if not match:
        raise UserError(f"--images {images!r} must be FIRST:LAST such as 0:1000")
    return int(match[1] or 0), int(match[2])


def _compute(store: Store, evaluation: Evaluation, subject: Subject, say: Say) -> EvaluationRecord:
    """Compute the missing parts of an evaluation in one process per shard, and return its record."""
    started = time.monotonic()

    def tell(done: BatchDone) -> None:
        phase = f" {done.phase}" if done.phase else ""
        say(f"{evaluation.attack.name}{phase}: {done.images}/{done.count} images, {time.monotonic() - started:.0f} s")

    if evaluation.shards == 1 or store.usable(EvaluationRecord, evaluation.record) is not None:
        return _attack_until_done(store, evaluation, subject, tell)
    threads = max(1, (os.cpu_count() or 1) // evaluation.shards)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        evaluation.shards - 1, context, initializer=registry.load_sources, initargs=(registry.sources(),)
    ) as pool:
        others = [pool.submit(_attack_in_process, evaluation, subject, threads) for _ in range(evaluation.shards - 1)]
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            record = _attack_until_done(store, evaluation, subject, tell)
        finally:
            torch.set_num_threads(before)
        for other in others:
            other.result()
    return record


def _attack_until_done(store: Store, evaluation: Evaluation, subject: Subject, tell: Tell) -> EvaluationRecord:
    """Compute chunks together with other processes until the record exists, and return it."""
    parts, data = subject.parts_for(evaluation.attack), subject.data()
    claim, pause = leased(store, evaluation), FIRST_PAUSE
    while True:
        record = attack(store, evaluation, parts, claim=claim, on_batch=tell, device=subject.device, data=data)
        if record is not None:
            return record
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _attack_in_process(evaluation: Evaluation, subject: Subject, threads: int) -> None:
    torch.set_num_threads(threads)
    _attack_until_done(open_store(subject.store), evaluation, subject, lambda done: None)
