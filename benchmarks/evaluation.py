"""Measure the cost of evaluation, compared with plain pyautoattack and a plain PGD loop, on real CIFAR-10 images.

    python -m benchmarks.evaluation [--data-dir data] [--checkpoint FILE] [--only autoattack pgd ...]

Measurements use one thread and processor time, so that a busy machine distorts little; shards are measured in wall
time. AutoAttack is measured on networks that are trained here for some seconds (_victims.py), the rest on a
PreActResNet-18. --checkpoint loads weights that were trained on CIFAR-10, such as those of a stored trial. Without it,
the network has random convolutions, the statistics of real images, and a least-squares readout of their labels.
`--only autoattack --victims large` measures AutoAttack on the large network, at a radius that half of its images
survive; each survivor takes several minutes.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks._victims import VICTIMS, Victim
from sweep.errors import UserError
from sweep.evaluation.asked import evaluation as asked
from sweep.evaluation.attack import attack, leased
from sweep.evaluation.outside import Outside, load_outside
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.verdicts import pack
from trainers import data, models
from trainers.attacks import parse
from trainers.attacks.scoring.scorer import evaluate_phase, ready
from trainers.attacks.scoring.suites import SUITES, attacks
from trainers.values import as_float

FITTED = 384
LARGE = "large"
LARGE_RADIUS, LARGE_IMAGES = "1/2040", 4
RESULTS = Path(__file__).parent / "results" / "evaluation.json"
Row = dict[str, Any]


def classifier(data_dir: str, checkpoint: str | None) -> tuple[nn.Module, Tensor, Tensor]:
    """Return the network as a user would have it: contiguous weights that require gradients."""
    bundle = data.load("cifar10", data_dir, download=False)
    images, labels = bundle.test_images[:FITTED].float() / 255, bundle.test_labels[:FITTED]
    if checkpoint is not None:
        return load_outside(Outside(checkpoint, "preact_resnet18", "cifar10")).eval(), images, labels
    torch.manual_seed(0)
    model = models.build("preact_resnet18", 10, shape=(3, 32, 32), mean=bundle.mean, std=bundle.std)
    readout = model.get_submodule("linear")
    assert isinstance(readout, nn.Linear)
    features: list[Tensor] = []
    hook = readout.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0]))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        model.train()(images[:128])
        features.clear()
        model.eval()
        for batch in images.split(64):
            model(batch)
        hook.remove()
        known = torch.cat([torch.cat(features), torch.ones(FITTED, 1)], dim=1).double()
        wanted = 10 * F.one_hot(labels, 10).double() - 1
        gram = known.T @ known
        gram += gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.float64)
        fitted = torch.linalg.solve(gram, known.T @ wanted).float()
        readout.weight.copy_(fitted[:-1].T)
        readout.bias.copy_(fitted[-1])
    return model, images, labels


def processor_seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    result = action()
    return time.process_time() - started, result


def interleaved(plain: Callable[[], Any], ours: Callable[[], Any], repeats: int) -> tuple[float, float, float]:
    """Return the median seconds of both, and the median of the ratios within a repeat."""
    pairs = [(processor_seconds(plain)[0], processor_seconds(ours)[0]) for _ in range(repeats + 1)][1:]
    first, second = (statistics.median(values) for values in zip(*pairs, strict=True))
    return first, second, statistics.median(b / a for a, b in pairs)


def measure_victim(victim: Victim, data_dir: str) -> list[Row]:
    return measure_autoattack(victim.name, *victim.trained(data_dir), victim.attacked, victim.epsilon)


def measure_autoattack(
    name: str, model: nn.Module, images: Tensor, labels: Tensor, count: int, radius: str
) -> list[Row]:
    """Measure AutoAttack on a network on which about half of the correct images survive."""
    from pyautoattack import AutoAttack

    images, labels = images[:count], labels[:count]
    attack = parse("autoattack", epsilon=radius, batch_size=count)
    package = AutoAttack(copy.deepcopy(model), eps=as_float(radius), seed=0, device="cpu")
    plain, (_, predicted) = processor_seconds(lambda: package.run_standard_evaluation(images, labels, batch_size=count))
    with tempfile.TemporaryDirectory() as folder:
        evaluation = asked("outside-benchmark", "outside", attack, count, batch_size=count)
        mine = ready(copy.deepcopy(model), "cpu")
        ours, record = processor_seconds(lambda: _finished(folder, evaluation, mine, images, labels))
    expected = (predicted == labels).numpy()
    right = round(count * (record.clean_accuracy or 0.0))
    return [
        {
            "what": f"AutoAttack, {name}: {count} images, {right} right, {int(expected.sum())} left",
            "plain": plain,
            "ours": ours,
            "ratio": ours / plain,
            "limit": 0.60,
            "identical": bool(np.array_equal(record.survivors, expected)),
        }
    ]


def plain_pgd(model: nn.Module, images: Tensor, labels: Tensor, start: Tensor) -> Tensor:
    """Run PGD as in the official adversarial-training codes, with a backward() per step."""
    delta = start.clone().requires_grad_()
    for _ in range(20):
        F.cross_entropy(model(torch.clamp(images + delta, 0, 1)), labels).backward()
        assert delta.grad is not None
        stepped = torch.clamp(delta + 2 / 255 * delta.grad.sign(), -8 / 255, 8 / 255)
        delta.data = torch.clamp(stepped, -images, 1 - images).detach()
        delta.grad.zero_()
    with torch.no_grad():
        return model(images + delta).argmax(dim=1) == labels


def measure_pgd(model: nn.Module, images: Tensor, labels: Tensor) -> list[Row]:
    images, labels = images[:16], labels[:16]
    user, mine = copy.deepcopy(model), ready(copy.deepcopy(model), "cpu")
    attack = parse("pgd-20")
    start = (torch.rand(images.shape) * 2 - 1) * 8 / 255
    places = torch.arange(len(images))
    plain, ours, ratio = interleaved(
        lambda: plain_pgd(user, images, labels, start),
        lambda: evaluate_phase(mine, images, labels, attack, "", indices=places),
        3,
    )
    return [{"what": "PGD-20, 16 images", "plain": plain, "ours": ours, "ratio": ratio, "limit": 0.75}]


def measure_parts(model: nn.Module, images: Tensor) -> list[Row]:
    """Measure the saving of each change by itself, on 16 images."""
    images = images[:16]
    user = copy.deepcopy(model)
    frozen = copy.deepcopy(model).requires_grad_(False)
    last = ready(copy.deepcopy(model), "cpu")
    traced = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(frozen, images)))

    def forward(network: nn.Module) -> Callable[[], Any]:
        def run() -> Tensor:
            with torch.no_grad():
                return network(images)

        return run

    def gradient(network: nn.Module, *, full: bool = False) -> Callable[[], Any]:
        def run() -> None:
            inputs = images.clone().requires_grad_()
            value = network(inputs)[:, 0].sum()
            value.backward() if full else torch.autograd.grad(value, inputs)

        return run

    comparisons = {
        "forward: channels last": (forward(user), forward(last)),
        "forward: frozen trace with folded BatchNorm (not used)": (forward(user), forward(traced)),
        "input gradient: no parameter gradients": (gradient(user), gradient(frozen)),
        "input gradient: and channels last": (gradient(user), gradient(last)),
        "FAB's backward(): no parameter gradients, channels last": (gradient(user, full=True), gradient(last)),
    }
    rows = []
    for what, (plain_run, our_run) in comparisons.items():
        plain, ours, ratio = interleaved(plain_run, our_run, 5)
        rows.append({"what": what, "plain": plain, "ours": ours, "ratio": ratio})
    return rows


def _finished(folder: str, evaluation: Any, model: Any, images: Tensor, labels: Tensor) -> EvaluationRecord:
    record = attack(open_store(folder), evaluation, (model, images, labels))
    assert record is not None
    return record


def _shard_process(folder: str, weights: str, evaluation: Any, images: Tensor, labels: Tensor, barrier: Any) -> None:
    torch.set_num_threads(1)
    model = models.build("preact_resnet18", 10, shape=(3, 32, 32), mean=(0.5,) * 3, std=(0.5,) * 3)
    model.load_state_dict(torch.load(weights, weights_only=True))
    ready(model, "cpu")(images[:2])
    store = open_store(folder)
    barrier.wait()
    attack(store, evaluation, (model, images, labels), claim=leased(store, evaluation))
    barrier.wait()


def measure_shards(model: nn.Module, images: Tensor, labels: Tensor) -> list[Row]:
    """Measure PGD-20 in one process with one thread, and in two such processes."""
    images, labels = images[:32], labels[:32]
    context = multiprocessing.get_context("spawn")
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        weights = f"{folder}/weights.pt"
        torch.save(model.state_dict(), weights)
        for shards in (1, 2):
            store = f"{folder}/store-{shards}"
            evaluation = asked("outside-benchmark", "outside", parse("pgd-20"), 32, shards=shards, batch_size=16)
            barrier = context.Barrier(shards + 1)
            processes = [
                context.Process(target=_shard_process, args=(store, weights, evaluation, images, labels, barrier))
                for _ in range(shards)
            ]
            for process in processes:
                process.start()
            barrier.wait()
            started = time.perf_counter()
            barrier.wait()
            seconds[shards] = time.perf_counter() - started
            for process in processes:
                process.join()
    gain = seconds[1] / seconds[2]
    return [
        {"what": "two shards on two cores, by the clock", "plain": seconds[1], "ours": seconds[2], "gain": gain,
         "at_least": 1.6}
    ]  # fmt: skip


def measure_storage() -> list[Row]:
    """Measure the disk space of records for 10,000 images, 20 attacks (with repetitions) and 100 checkpoints."""
    bits = np.random.default_rng(0).random(10_000) < 0.5
    chosen = (attacks(SUITES["paper"]) * 2)[:20]
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        for attack in chosen:
            record = EvaluationRecord(
                trial=64 * "a",
                checkpoint="best_test",
                attack=attack.model_dump(mode="json", exclude_none=True),
                images=10_000,
                verdicts=pack(bits),
                clean=pack(bits),
                accuracy=float(bits.mean()),
                phases={phase: pack(bits) for phase in attack.phases if phase},
                wall_seconds=1000.0,
                versions={"torch": str(torch.__version__)},
                commit=40 * "a",
                device="cpu",
            )
            store.write_record(record)
            total += len(store.read(record.path))
    return [{"what": "verdicts of 10,000 x 20 x 100, MB", "ours": 100 * total / 1e6, "limit": 50.0}]


def verdict(row: Row) -> str:
    if "identical" in row and not row["identical"]:
        return "DIFFERENT VERDICTS"
    if "limit" in row:
        value = row.get("ratio", row["ours"])
        return f"{'ok' if value <= row['limit'] else 'MISSED'}, at most {row['limit']:g}"
    if "at_least" in row:
        return f"{'ok' if row['gain'] >= row['at_least'] else 'MISSED'}, at least {row['at_least']:g}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--checkpoint", help="trained weights of a PreActResNet-18 for CIFAR-10")
    parser.add_argument(
        "--victims", nargs="+", choices=[*VICTIMS, LARGE], default=("CNN", "PreActResNet-18"), help="of AutoAttack"
    )
    names = ("storage", "parts", "pgd", "shards", "autoattack")
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        model, images, labels = classifier(options.data_dir, options.checkpoint)
    except (data.DataMissing, UserError) as fault:
        parser.error(str(fault))
    measures: dict[str, Callable[[], list[Row]]] = {
        "storage": measure_storage,
        "parts": lambda: measure_parts(model, images),
        "pgd": lambda: measure_pgd(model, images, labels),
        "shards": lambda: measure_shards(model, images, labels),
        "autoattack": lambda: [
            row
            for name in options.victims
            for row in (
                measure_autoattack("PreActResNet-18 at 32x32", model, images, labels, LARGE_IMAGES, LARGE_RADIUS)
                if name == LARGE
                else measure_victim(VICTIMS[name], options.data_dir)
            )
        ],
    }
    rows: list[Row] = []
    print(f"{'':<60}{'plain s':>10}{'ours':>10}{'ratio':>8}")
    for name in (name for name in names if name in options.only):
        for row in measures[name]():
            rows.append(row)
            ratio = row.get("ratio", row.get("gain"))
            plain = f"{row['plain']:.3f}" if "plain" in row else ""
            shown = f"{ratio:.2f}" if ratio is not None else ""
            print(f"{row['what']:<60}{plain:>10}{row['ours']:>10.3f}{shown:>8}  {verdict(row)}", flush=True)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
