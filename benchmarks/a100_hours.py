"""Estimate the cost of the shipped studies on an A100: counted passes times assumed seconds. Nothing is measured.

    python -m benchmarks.a100_hours [STUDY ...]

CLUSTER.md contains the printed table; a test compares the two.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict

from sweep import studies
from sweep.planning.estimate import FORWARDS_OF_A_PASS, missing_of
from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.trials.cells import expand
from sweep.trials.cost import PRUNED_SHARE, epochs, selection_passes, steps_of
from trainers.config import TrialConfig
from trainers.data import dataset_facts
from trainers.measures.passes import forward_operations, step_count

BATCH = 128
# Assumed milliseconds of a forward pass of 128 images of 32x32 pixels: in tf32, and with bf16 and compile.
BEFORE = {"preact_resnet18": 5.7, "wrn_34_10": 31.0}
BEST = {"preact_resnet18": 2.3, "wrn_34_10": 12.5}
CHANNELS_LAST = {"train": 1.25, "attack": 1.1}  # assumed speed-up of training and attacks
STAGES = ("training", "selection", "search", "AutoAttack", "other attacks")
COLUMNS = ("study", "ms", "trials", *STAGES, "search before", "before", "now", "bf16, compile")


def reference(model: str) -> str:
    """Return the network whose time is assumed for this model."""
    return "wrn_34_10" if model.startswith("wrn") else "preact_resnet18"


def relative(config: TrialConfig) -> float:
    """Return the operations of a forward pass, as a multiple of those of the reference network."""
    return forward_operations(config.model, config.dataset) / forward_operations(reference(config.model), "cifar10")


def selection_before(config: TrialConfig) -> float:
    """Return the passes of selection when it still measured every epoch on test images too."""
    selection = config.selection
    test = selection.images or config.test_images or dataset_facts(config.dataset).test_images
    return epochs(config) * (selection.validation + test) * (selection.steps + 0.4)


def forwards_of(study: Study) -> tuple[dict[str, float], int]:
    """Return the forwards of 128 images by stage for the whole study, and the number of trainings in its tables."""
    forwards: dict[str, float] = defaultdict(float)
    with tempfile.TemporaryDirectory(prefix="robustsweep-hours-") as folder:
        missing = missing_of(study, expand(study), open_store(folder))
    for piece in missing:
        config = piece.config
        training = steps_of(config) * config.recipe.batch_size * step_count(config).forwards
        selection = FORWARDS_OF_A_PASS * selection_passes(config)
        before = FORWARDS_OF_A_PASS * selection_before(config)
        if piece.stage == "search":
            forwards["search"] += PRUNED_SHARE * (training + selection) / BATCH
            forwards["search before"] += PRUNED_SHARE * (training + before) / BATCH
        else:
            forwards["training"] += training / BATCH
            forwards["selection"] += selection / BATCH
            forwards["selection before"] += before / BATCH
        for evaluation in piece.evaluations:
            stage = "AutoAttack" if evaluation.attack.name == "autoattack" else "other attacks"
            forwards[stage] += FORWARDS_OF_A_PASS * evaluation.cost / BATCH
    return forwards, sum(piece.stage == "train" for piece in missing)


def row(name: str) -> list[str]:
    """Return the table row of a study: millions of forwards by stage, and hours."""
    study = Study.load(studies.find(name))
    config = next(iter(expand(study))).config
    network, scale = reference(config.model), relative(config)
    forwards, trials = forwards_of(study)
    trained = forwards["training"] + forwards["selection"] + forwards["search"]
    trained_before = forwards["training"] + forwards["selection before"] + forwards["search before"]
    attacks = forwards["AutoAttack"] + forwards["other attacks"]
    before, best = BEFORE[network] * scale / 3.6e6, BEST[network] * scale / 3.6e6  # hours
    hours = (
        before * (trained_before + attacks),
        before * (trained / CHANNELS_LAST["train"] + attacks / CHANNELS_LAST["attack"]),
        best * trained + before * attacks / CHANNELS_LAST["attack"],  # AutoAttack never runs in bf16
    )
    millions = [forwards[stage] / 1e6 for stage in (*STAGES, "search before")]
    counts = [f"{value:.1f}" if value else "–" for value in millions]
    return [name, f"{BEFORE[network] * scale:.1f}", str(trials), *counts, *(f"{value:.0f}" for value in hours)]


def table(names: list[str]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|" + "--:|" * (len(COLUMNS) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row(name)) + " |" for name in names)])


def of_gpus() -> list[str]:
    """Return the shipped studies whose network has an assumed time; the others are meant for CPUs."""
    models = ((name, Study.load(studies.find(name)).model) for name in studies.shipped())
    return [name for name, model in models if model.startswith(("wrn", "preact"))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", nargs="*")
    print(table(parser.parse_args().study or of_gpus()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
