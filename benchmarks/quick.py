"""Compare `quick` with AutoAttack: accuracy, images on which they differ, and passes of both, by model.

    python -m benchmarks.quick [--data-dir data] [--store STORE] [--studies NAME ...] [--images 100] [--factors 1 0.5]

A pass is one image through the network, forwards or backwards. Passes are counted as each attack makes them, so fooled
images take no further passes. The models are those of a finished store, if one is given, and networks trained here in
some seconds (_victims.py). `--factors` multiply the radius at which each model was trained.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks._victims import VICTIMS
from sweep.errors import UserError
from sweep.evaluation.checkpoints import trial_parts
from sweep.store.opening import open_store
from sweep.store.records.manifest import Manifest
from trainers.attack import times
from trainers.attacks import parse
from trainers.attacks.scoring.scorer import evaluate_attack, pixels, ready

LIMITS = {"points": 0.3, "passes": 0.2}
RESULTS = Path(__file__).parent / "results" / "quick.json"
Model = tuple[str, nn.Module, Tensor, Tensor, str]


class Passes:
    """Counts of passes through a network."""

    forwards = backwards = 0

    @property
    def all(self) -> int:
        return self.forwards + self.backwards


@contextmanager
def counted(model: nn.Module) -> Iterator[Passes]:
    """Count the passes through the model. A backward pass counts whenever a gradient reaches the images."""
    passes = Passes()

    def arrived(gradient: Tensor) -> None:
        passes.backwards += len(gradient)

    def called(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        passes.forwards += len(inputs[0])
        if inputs[0].requires_grad:
            inputs[0].register_hook(arrived)

    hook = model.register_forward_pre_hook(called)
    try:
        yield passes
    finally:
        hook.remove()


def stored(uri: str, data_dir: str, studies: Sequence[str] = ()) -> Iterator[Model]:
    """Yield the headline checkpoint of each trial in a store, with the radius of its study."""
    store = open_store(uri)
    for manifest in store.records(Manifest, store.record_paths(Manifest)):
        if studies and manifest.name not in studies:
            continue
        for cell in manifest.cells:
            record = store.trial_record(cell.trial) if cell.trial else None
            if record is None or manifest.checkpoint not in record.checkpoints:
                continue
            try:
                model, images, labels = trial_parts(uri, record.trial, manifest.checkpoint, data_dir, "cpu")
            except UserError as error:  # records may have been copied without weights
                print(f"{manifest.name} {cell.label} {cell.seed} is skipped: {error}", file=sys.stderr)
                continue
            yield f"{manifest.name} {cell.label} {cell.seed}", model, images, labels, manifest.evaluation.epsilon


def trained(names: list[str], data_dir: str) -> Iterator[Model]:
    """Train and yield the named victims."""
    for name in names:
        victim = VICTIMS[name]
        model, images, labels = victim.trained(data_dir)
        yield name, ready(model, "cpu"), images[: victim.attacked], labels[: victim.attacked], victim.epsilon


def compared(name: str, model: nn.Module, images: Tensor, labels: Tensor, epsilon: str) -> dict[str, Any]:
    verdicts, passes = {}, {}
    for attack in ("autoattack", "quick"):
        described = parse(attack, epsilon=epsilon, batch_size=len(images))
        with counted(model) as count:
            verdicts[attack] = evaluate_attack(model, images, labels, described, batch_size=len(images)).correct
        passes[attack] = count.all
    reference, ours = verdicts["autoattack"], verdicts["quick"]
    return {
        "model": name,
        "epsilon": epsilon,
        "images": len(images),
        "autoattack": 100 * float(reference.float().mean()),
        "quick": 100 * float(ours.float().mean()),
        "missed": int((ours & ~reference).sum()),
        "more": int((reference & ~ours).sum()),
        "passes": passes["quick"] / passes["autoattack"],
        "autoattack_passes": passes["autoattack"],
        "quick_passes": passes["quick"],
    }


def verdict(row: dict[str, Any]) -> str:
    """Return ok or MISSED for the accuracy. A single image is allowed even where its share exceeds the limit."""
    weaker = row["quick"] - row["autoattack"]
    return "ok" if weaker <= max(LIMITS["points"], 100.5 / row["images"]) else "MISSED"


def in_all(rows: list[dict[str, Any]]) -> str:
    """Return a line on the passes of all models together.

    For a single weak model, which falls within a few steps of either attack, the ratio means nothing.
    """
    share = sum(row["quick_passes"] for row in rows) / sum(row["autoattack_passes"] for row in rows)
    outcome = "ok" if share <= LIMITS["passes"] else "MISSED"
    return f"passes of quick over those of AutoAttack, {len(rows)} models together: {share:.3f} {outcome}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--store", help="a finished store with weights")
    parser.add_argument("--studies", nargs="*", default=[], help="studies of the store; default: all")
    parser.add_argument("--images", type=int, default=100, help="images for each stored model")
    parser.add_argument("--factors", type=Fraction, nargs="+", default=[Fraction(1)])
    parser.add_argument("--victims", nargs="*", choices=VICTIMS, default=["CNN"])
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    print("| model | ε | images | AutoAttack | quick | difference | missed | broken besides | passes | |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|---|")
    models = stored(options.store, options.data_dir, options.studies) if options.store else iter(())
    for name, model, images, labels, epsilon in chain(models, trained(options.victims, options.data_dir)):
        part = slice(0, options.images)
        for factor in options.factors:
            radius = times(epsilon, factor)
            row = compared(name, model, pixels(images[part], "cpu"), labels[part], radius)
            rows.append(row)
            print(
                f"| {name} | {radius} | {row['images']} | {row['autoattack']:.1f} | {row['quick']:.1f} "
                f"| {row['quick'] - row['autoattack']:+.1f} | {row['missed']} | {row['more']} | {row['passes']:.3f} "
                f"| {verdict(row)} |",
                flush=True,
            )
    print(in_all(rows))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
