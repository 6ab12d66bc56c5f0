"""Measure the gain of `train.compile: true` on this machine: AT steps on a small network, plain and compiled, in turns.

    python -m benchmarks.compiled [--model small_cnn] [--dataset digits]
    python -m benchmarks.compiled --against small_cnn_dense    # another network in place of the compiled one

Times are the minimum over some turns, in processor time of one thread. The first steps, which include the compilation,
are reported separately.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from trainers import assembly, composition
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.config import Recipe, TrialConfig
from trainers.data import dataset_facts
from trainers.loop.precision import prepared
from trainers.loop.reproducible import reproducible
from trainers.loop.step import training_step
from trainers.method import Batch

TURNS, STEPS, IMAGES = 7, 10, 128


def stepping(dataset: str, model: str, recipe: Recipe) -> Callable[[], None]:
    """Return a function that does STEPS training steps of AT."""
    config = TrialConfig(dataset=dataset, model=model, method="at", recipe=recipe)
    facts, device = dataset_facts(dataset), torch.device("cpu")
    torch.manual_seed(0)
    network = prepared(assembly.build_model(config), device, recipe)
    method, optimizer = composition.build("at"), assembly.build_optimizer(network, config)
    indices = torch.arange(IMAGES)
    batch = Batch(torch.rand(IMAGES, *facts.shape), indices % facts.classes, indices, {})

    def steps() -> None:
        with reproducible(device, recipe):
            for _ in range(STEPS):
                training_step(network, optimizer, method, batch, ProjectedAscent(0.2, 0.08, 5))

    return steps


def seconds(work: Callable[[], None]) -> float:
    """Return the processor seconds of a call."""
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
    alternative = stepping(options.dataset, options.against or options.model, Recipe(compile=options.against is None))
    name = options.against or "compiled"
    seconds(plain)
    started = time.perf_counter()
    alternative()
    first = time.perf_counter() - started
    turns = [(seconds(plain), seconds(alternative)) for _ in range(TURNS)]
    before, after = (1000 * min(seconds_of_turns) / STEPS for seconds_of_turns in zip(*turns, strict=True))
    print(f"{options.model}, AT with 5 steps, {IMAGES} images: {before:.1f} ms per step plain, {after:.1f} ms {name}")
    print(f"ratio {after / before:.2f}; the first {STEPS} steps of {name} took {first:.1f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
