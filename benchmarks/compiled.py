"""What `train.compile: true` gives on this machine: steps of AT on a small network, as it is and compiled, in turns.

    python -m benchmarks.compiled [--model small_cnn] [--dataset digits]
    python -m benchmarks.compiled --against small_cnn_dense    # another network in place of the compiled one

Processor time of one thread, the least of some turns; what the first steps take, with a compilation, is said beside it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from trainers import assembly, composition
from trainers.config import Recipe, TrialConfig
from trainers.data import dataset_facts
from trainers.method import Batch
from trainers.perturbation.projected_ascent import ProjectedAscent
from trainers.precision import prepared
from trainers.reproducible import reproducible
from trainers.step import training_step

TURNS, STEPS, IMAGES = 7, 10, 128


def stepping(dataset: str, model: str, recipe: Recipe) -> Callable[[], None]:
    config = TrialConfig(dataset=dataset, model=model, method="at", recipe=recipe)
    facts, place = dataset_facts(dataset), torch.device("cpu")
    torch.manual_seed(0)
    network = prepared(assembly.build_model(config), place, recipe)
    method, optimizer = composition.build("at"), assembly.build_optimizer(network, config)
    indices = torch.arange(IMAGES)
    batch = Batch(torch.rand(IMAGES, *facts.shape), indices % facts.classes, indices, {})

    def steps() -> None:
        with reproducible(place, recipe):
            for _ in range(STEPS):
                training_step(network, optimizer, method, batch, ProjectedAscent(0.2, 0.08, 5))

    return steps


def seconds(work: Callable[[], None]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small_cnn")
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--against", metavar="MODEL")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plain = stepping(options.dataset, options.model, Recipe())
    other = stepping(options.dataset, options.against or options.model, Recipe(compile=options.against is None))
    name = options.against or "compiled"
    seconds(plain)
    started = time.perf_counter()
    other()
    first = time.perf_counter() - started
    turns = [(seconds(plain), seconds(other)) for _ in range(TURNS)]
    before, after = (1000 * min(found) / STEPS for found in zip(*turns, strict=True))
    print(f"{options.model}, AT with 5 steps, {IMAGES} images: {before:.1f} ms a step as it is, {after:.1f} ms {name}")
    print(f"ratio {after / before:.2f}; the first {STEPS} steps of {name} took {first:.1f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
