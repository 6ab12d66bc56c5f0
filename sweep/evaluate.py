"""`python -m sweep.evaluate`: attack any checkpoint, the store's own or one from elsewhere, and keep the verdicts."""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from sweep.errors import UserError
from sweep.evaluation.items import (
    Evaluation,
    Item,
    compute,
    missing_images,
    next_items,
    run_item,
    unpack,
)
from sweep.evaluation.subject import Subject, check_options, find_subject
from sweep.store.base import Store, open_store
from trainers import suites
from trainers.attack import EvaluationAttack
from trainers.attacks.autoattack import COMPONENTS

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def evaluate(
    checkpoint: Annotated[str, typer.Option(help="Weights: .safetensors or .pt, or TRIAL/best_test of the store.")],
    model: Annotated[str | None, typer.Option(help="A network's name, or factory.py:function of your own.")] = None,
    dataset: Annotated[str | None, typer.Option(help="digits, mnist, cifar10, cifar100 or svhn.")] = None,
    attacks: Annotated[
        str, typer.Option(help="Comma-separated: clean, fgsm, pgd-20, cw-100, spsa, autoattack, square, …, or a suite.")
    ] = "main",
    epsilon: Annotated[str, typer.Option(help="Radius of the L∞ ball, e.g. 8/255 or 0.031.")] = "8/255",
    images: Annotated[str | None, typer.Option(help="Test images, e.g. 0:1000; all by default.")] = None,
    seed: Annotated[int, typer.Option(help="Of the attacks' randomness.")] = 0,
    shards: Annotated[int, typer.Option(min=1, help="Processes that share the images.")] = 1,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Images at a time; of AutoAttack part of its definition.")
    ] = 256,
    standardize: Annotated[bool, typer.Option(help="Whether a named network standardises its input.")] = True,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    store: Annotated[str, typer.Option(help="Folder, or s3://bucket/prefix")] = "store",
    data_dir: Annotated[str, typer.Option(help="Where data sets are.")] = "data",
    as_json: Annotated[
        bool, typer.Option("--json", help="For programs: the result alone, on standard output.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Also write the JSON result to this file.")] = None,
) -> None:
    """Verdicts of attacks on each image. Finished work is never done again; an interrupted command goes on.

    \b
    Examples:
      python -m sweep.evaluate --checkpoint net.pt --model preact_resnet18 --dataset cifar10 --images 0:1000
      python -m sweep.evaluate --checkpoint net.safetensors --model my_net.py:build --dataset svhn --attacks autoattack
      python -m sweep.evaluate --checkpoint 3f2a…/best_test --attacks components --epsilon 8/255
    """
    opened = open_store(store)
    check_options(epsilon, device, dataset)
    if output is not None:
        _check_output(output)
    subject = find_subject(opened, checkpoint, model, dataset, standardize, data_dir, device)
    chosen = _attacks(attacks, epsilon, images, seed, batch_size, subject)
    evaluations = [subject.evaluation(attack, shards, batch_size) for attack in chosen]
    notes = subject.warnings()
    for note in notes:
        typer.echo(f"warning: {note}", err=True)
    for evaluation in evaluations:
        _finish(opened, evaluation, subject, shards, quiet=as_json)
    result = _result(opened, evaluations, subject, notes, epsilon)
    text = json.dumps(result, indent=2, sort_keys=True)
    if output is not None:
        output.write_text(text + "\n", encoding="utf-8")
    typer.echo(text if as_json else _table(result))


def _check_output(output: Path) -> None:
    """Before hours of attacks: the result must have a place."""
    if output.is_dir() or not output.parent.is_dir():
        raise UserError(f"--output {output} cannot be written: it must be a file in a folder that exists")
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        raise UserError(f"--output {output} cannot be written: permission denied")


def _attacks(
    text: str, epsilon: str, images: str | None, seed: int, batch_size: int, subject: Subject
) -> list[EvaluationAttack]:
    window = None
    if images is not None:
        match = re.fullmatch(r"(\d*):(\d+)", images)
        if not match:
            raise UserError(f"--images {images!r} must be FIRST:LAST such as 0:1000")
        window = (int(match[1] or 0), int(match[2]))
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise UserError(f"--attacks {text!r} names no attack; give some such as clean,pgd-20, or a suite such as main")
    names = [name for part in parts for name in suites.SUITES.get(part, (part,))]
    options: dict[str, Any] = {"epsilon": epsilon, "seed": seed, "batch_size": batch_size, "images": window}
    try:
        return suites.attacks(names, classes=subject.classes(), **options)
    except ValueError as fault:
        raise UserError(str(fault)) from None


def _finish(store: Store, evaluation: Evaluation, subject: Subject, shards: int, *, quiet: bool) -> None:
    """Compute what is missing, phase by phase, in as many processes as there are shards."""
    while items := next_items(store, evaluation):
        phase = f" {items[0].phase}" if items[0].phase else ""
        count = sum(item.last - item.first for item in items)
        started = time.monotonic()
        for done in _computed(store, items, subject, shards):
            if not quiet:
                seconds = time.monotonic() - started
                typer.echo(f"{evaluation.attack.name}{phase}: {done}/{count} images, {seconds:.0f} s", err=True)


def _computed(store: Store, items: list[Item], subject: Subject, shards: int) -> Iterator[int]:
    """Yields how many images are done, after every batch, or every few seconds when other processes work."""
    if shards == 1 or len(items) == 1:
        model, images, labels = subject.parts()
        before = 0
        for item in items:
            first = item.evaluation.first_image
            part = slice(first, first + item.evaluation.images)
            for done in run_item(store, item, model, images[part], labels[part], device=subject.device):
                yield before + done
            before += item.last - item.first
        return
    options: dict[str, Any] = {
        "outside": subject.outside,
        "device": subject.device,
        "threads": max(1, (os.cpu_count() or 1) // shards),
    }
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(min(shards, len(items)), mp_context=context) as pool:
        waiting = {pool.submit(compute, store.uri, item, subject.data_dir, **options) for item in items}
        while waiting:
            finished, waiting = concurrent.futures.wait(waiting, timeout=5)
            for future in finished:
                future.result()
            yield sum(item.last - item.first for item in items) - sum(missing_images(store, item) for item in items)


def _result(
    store: Store, evaluations: list[Evaluation], subject: Subject, notes: list[str], epsilon: str
) -> dict[str, Any]:
    found, worst = {}, None
    for evaluation in evaluations:
        record = store.read_json(evaluation.record)
        verdicts = unpack(record["verdicts"], record["images"])
        if evaluation.attack.epsilon in ("0", epsilon):
            worst = verdicts if worst is None else worst & verdicts
        found[evaluation.attack.id] = {
            "attack": evaluation.attack.name,
            "epsilon": evaluation.attack.epsilon,
            "accuracy": record["accuracy"],
            "images": record["images"],
            "phases": {phase: float(unpack(bits, record["images"]).mean()) for phase, bits in record["phases"].items()},
            "warnings": record["warnings"],
            "wall_seconds": record["wall_seconds"],
            "record": evaluation.record,
        }
    return {
        "name": subject.name,
        "checkpoint": subject.checkpoint,
        "store": store.uri,
        "evaluations": found,
        "epsilon": epsilon,
        "worst_accuracy": None if worst is None else float(worst.mean()),
        "warnings": notes,
    }


def _table(result: dict[str, Any]) -> str:
    lines = [f"{result['name'][:24]} {result['checkpoint']}"]
    for entry in result["evaluations"].values():
        radius = "" if entry["attack"] == "clean" else f" ε={entry['epsilon']}"
        lines.append(f"  {entry['attack'] + radius:<32} {100 * entry['accuracy']:6.2f} %  of {entry['images']} images")
        lines += [f"    after {phase:<22} {100 * share:6.2f} %" for phase, share in _in_order(entry["phases"])]
        lines += [f"    warning: {warning}" for warning in entry["warnings"]]
    if result["worst_accuracy"] is not None:
        lines.append(f"  {'worst case, ε=' + result['epsilon']:<32} {100 * result['worst_accuracy']:6.2f} %")
    return "\n".join(lines)


def _in_order(phases: dict[str, float]) -> list[tuple[str, float]]:
    return [(phase, phases[phase]) for phase in COMPONENTS if phase in phases and len(phases) > 1]


def main() -> int:
    """The command; a user's mistake is a message and exit code 2."""
    try:
        app(prog_name=sys.argv[0] if sys.argv[0].startswith("sweep ") else "python -m sweep.evaluate")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped. Finished work is in the store; the same command goes on from there.\n")
        return 130
    except UserError as fault:
        sys.stderr.write(f"error: {fault}\n")
        return 2
    except OSError as fault:  # a store that is read-only or full
        sys.stderr.write(f"error: {fault.strerror or fault}: {fault.filename or 'cannot go on'}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
