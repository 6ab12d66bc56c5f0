"""`python -m sweep.evaluate`: attack any checkpoint, the store's own or one from elsewhere, and keep the verdicts."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import multiprocessing
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sweep.checkpoints import Outside, outside_parts, trial_model, trial_parts
from sweep.errors import UserError
from sweep.evaluation import Evaluation, Item, compute, next_items, of_outside, of_trial
from sweep.store import Store, open_store
from trainers import suites
from trainers.config import CHECKPOINTS, as_float
from trainers.suites import EvaluationAttack

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
    _check_options(epsilon, device, dataset)
    subject = _subject(opened, checkpoint, model, dataset, standardize, data_dir, device)
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


class Subject:
    """What is evaluated: a trial's checkpoint, or weights from elsewhere under a name made of their content."""

    def __init__(self, name: str, store: Store, data_dir: str, device: str) -> None:
        self.name, self.store, self.data_dir, self.device = name, store, data_dir, device
        self.outside: Outside | None = None
        self.checkpoint = "outside"

    def parts(self) -> tuple[Any, Any, Any]:
        if self.outside is not None:
            return outside_parts(self.outside, self.data_dir, self.device)
        return trial_parts(self.store.uri, self.name, self.checkpoint, self.data_dir, self.device)

    def evaluation(self, attack: EvaluationAttack, shards: int, batch_size: int) -> Evaluation:
        if self.outside is not None:
            count = len(self.parts()[1])
            return of_outside(self.name, attack, count, shards=shards, batch_size=batch_size)
        _, config = trial_model(self.store.uri, self.name, self.checkpoint, self.device)
        return of_trial(self.name, config, self.checkpoint, attack, shards=shards, batch_size=batch_size)

    def classes(self) -> int:
        from trainers.evaluate import pixels

        model, images, _ = self.parts()
        return int(model(pixels(images[:2], self.device)).shape[1])

    def warnings(self) -> list[str]:
        """What makes an evaluation worthless without anyone noticing."""
        import torch

        from trainers.evaluate import pixels

        model, images, labels = self.parts()
        batch = pixels(images[:64], self.device)
        with torch.no_grad():
            first, second = model(batch), model(batch)
        if first.dim() != 2 or first.shape[1] <= int(labels.max()):
            raise UserError(
                f"the model returns an output of shape {tuple(first.shape)} for {len(batch)} images; "
                f"expected one logit for each of {int(labels.max()) + 1} classes"
            )
        notes = []
        if not torch.isfinite(first).all():
            notes.append("the model returns values that are not finite: attacks cannot work on them")
        if (first >= 0).all() and torch.allclose(
            first.sum(dim=1), torch.ones(len(first), device=first.device), atol=1e-4
        ):
            notes.append(
                "the model returns probabilities (rows sum to one), not logits: gradients vanish, attacks fail"
            )
        if not torch.allclose(first, second, rtol=1e-4, atol=1e-5):
            notes.append("the model's output is random: verdicts of a fixed attack overstate its robustness")
        if batch.min() < 0 or batch.max() > 1:
            notes.append("images lie outside [0, 1]: the attacks' box does not hold them")
        return notes


def _check_options(epsilon: str, device: str, dataset: str | None) -> None:
    import torch

    from trainers.data import dataset_facts

    try:
        radius = as_float(epsilon)
    except (ValueError, ZeroDivisionError):
        radius = -1.0
    if not 0 <= radius <= 1:
        raise UserError(f"--epsilon {epsilon!r} must be a number or a fraction such as 8/255, from 0 to 1")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as fault:
        raise UserError(f"--device {device!r} cannot be used: {str(fault).splitlines()[0]}") from None
    if dataset is not None:
        try:
            dataset_facts(dataset)
        except ValueError as fault:
            raise UserError(str(fault)) from None


def _subject(
    store: Store, checkpoint: str, model: str | None, dataset: str | None, standardize: bool, data_dir: str, device: str
) -> Subject:
    trial, _, kept = checkpoint.rpartition("/")
    if kept in CHECKPOINTS and re.fullmatch(r"[0-9a-f]{16,64}", trial):
        record = store.trial_record(trial)
        if record is None:
            raise UserError(f"trial {trial} has no record in {store.uri}")
        subject = Subject(record["trial"], store, data_dir, device)
        subject.checkpoint = kept
        return subject
    path = Path(checkpoint).expanduser()
    if not path.is_file():
        raise UserError(f"checkpoint {checkpoint} is neither a file nor TRIAL/{'|'.join(CHECKPOINTS)} of {store.uri}")
    if model is None or dataset is None:
        raise UserError("weights from elsewhere need --model NAME|factory.py:function and --dataset")
    facts = {"model": model, "dataset": dataset, "standardize": standardize}
    if ".py:" in model:
        factory = Path(model.rpartition(":")[0]).expanduser()
        if not factory.is_file():
            raise UserError(f"model factory {factory} does not exist")
        facts["factory"] = hashlib.sha256(factory.read_bytes()).hexdigest()
        facts["model"] = model.rpartition(":")[2]
    digest = hashlib.sha256(path.read_bytes() + json.dumps(facts, sort_keys=True).encode()).hexdigest()
    subject = Subject(f"outside-{digest}", store, data_dir, device)
    subject.outside = Outside(str(path.absolute()), model, dataset, standardize)
    return subject


def _attacks(
    text: str, epsilon: str, images: str | None, seed: int, batch_size: int, subject: Subject
) -> list[EvaluationAttack]:
    window = None
    if images is not None:
        match = re.fullmatch(r"(\d*):(\d+)", images)
        if not match:
            raise UserError(f"--images {images!r} must be FIRST:LAST such as 0:1000")
        window = (int(match[1] or 0), int(match[2]))
    classes = subject.classes()
    found: list[EvaluationAttack] = []
    try:
        for name in (part.strip() for part in text.split(",") if part.strip()):
            options: dict[str, Any] = {"epsilon": epsilon, "classes": classes, "seed": seed, "batch_size": batch_size}
            if name in suites.SUITES:
                found += [a.model_copy(update={"images": window}) for a in suites.attacks(name, **options)]
            else:
                found.append(suites.parse(name, images=window, **options))
    except ValueError as fault:
        raise UserError(str(fault)) from None
    return list({attack.id: attack for attack in found}.values())


def _finish(store: Store, evaluation: Evaluation, subject: Subject, shards: int, *, quiet: bool) -> None:
    """Compute what is missing, phase by phase, in as many processes as there are shards."""
    while items := next_items(store, evaluation):
        if not quiet:
            phase = f" {items[0].phase}" if items[0].phase else ""
            count = sum(item.last - item.first for item in items)
            typer.echo(f"{evaluation.attack.name}{phase}: {count} images in {len(items)} parts", err=True)
        for number, _ in enumerate(_computed(store.uri, items, subject, shards), start=1):
            if not quiet:
                typer.echo(f"  {number}/{len(items)} parts done", err=True)


def _computed(store_uri: str, items: list[Item], subject: Subject, shards: int) -> Any:
    options: dict[str, Any] = {"outside": subject.outside, "device": subject.device}
    if shards == 1 or len(items) == 1:
        for item in items:
            compute(store_uri, item, subject.data_dir, **options)
            yield item
        return
    options["threads"] = max(1, (os.cpu_count() or 1) // shards)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(min(shards, len(items)), mp_context=context) as pool:
        futures = [pool.submit(compute, store_uri, item, subject.data_dir, **options) for item in items]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()


def _result(
    store: Store, evaluations: list[Evaluation], subject: Subject, notes: list[str], epsilon: str
) -> dict[str, Any]:
    from sweep.evaluation import unpack

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
    return [(phase, phases[phase]) for phase in suites.AUTOATTACK_COMPONENTS if phase in phases and len(phases) > 1]


def main() -> int:
    """The command; a user's mistake is a message and exit code 2."""
    try:
        app(standalone_mode=True)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped. Finished work is in the store; the same command goes on from there.\n")
        return 130
    except UserError as fault:
        sys.stderr.write(f"error: {fault}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
