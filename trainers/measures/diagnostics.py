"""The paper's diagnostics in addition to accuracy.

Margins on attacked training data, gradient norms, potentially misclassified images and the generalisation gap.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from trainers import composition
from trainers.attacks.perturbation.noise import keyed_bits
from trainers.attacks.perturbation.norms import NORMS
from trainers.attacks.perturbation.projected_ascent import batchnorm_mode, frozen_parameters, keyed_pgd
from trainers.attacks.scoring.scorer import pixels
from trainers.config import TrialConfig
from trainers.data.bundle import DataBundle
from trainers.losses import logit_margin, of_label, probability_margin
from trainers.values import NormName, as_float

Arrays = dict[str, np.ndarray]

# Bytes for the gradients of all classes together. A backward pass holds the activations of several such batches.
MEMORY_LIMIT = 512 * 1024**2


def class_gradients(model: nn.Module, images: Tensor, memory_limit: int = MEMORY_LIMIT) -> tuple[Tensor, Tensor]:
    """Return the logits (B, K) and the gradient of every logit with respect to its image, (B, K, C·H·W).

    There is one forward pass. The backward passes of many classes are one batched call, in chunks that fit the memory
    limit.
    """
    inputs = images.detach().requires_grad_()
    with torch.enable_grad():
        logits = model(inputs)
    count, classes = logits.shape
    # A network's activations are about ten to a hundred times its input.
    chunk = max(1, min(classes, memory_limit // max(1, 100 * inputs.numel() * inputs.element_size())))
    selectors = torch.eye(classes, dtype=logits.dtype, device=logits.device)
    parts = []
    for first in range(0, classes, chunk):
        rows = selectors[first : first + chunk, None, :].expand(-1, count, -1)
        last = first + chunk >= classes
        (gradients,) = torch.autograd.grad(logits, inputs, rows, is_grads_batched=True, retain_graph=not last)
        parts.append(gradients.flatten(2))
    return logits.detach(), torch.cat(parts).transpose(0, 1)


def gradient_facts(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    indices: Tensor,
    epsilon: float,
    memory_limit: int = MEMORY_LIMIT,
    norm: NormName = "linf",
) -> dict[str, Tensor]:
    """Return margins and gradient norms at clean images, by name; one row for each image.

    Norms are L1. An image is potentially misclassified in the sense of the paper's Prop. 5.1, with the dual of the
    attack's norm in place of L1. The gradient of cross-entropy for a label k is the sum over j of (p_j - [j = k]) times
    that of logit j, so the logits' gradients give all others.
    """
    logits, gradients = class_gradients(model, images, memory_limit)
    norms = gradients.abs().sum(dim=2)
    expected = torch.einsum("bk,bkd->bd", logits.softmax(dim=1), gradients)
    runner_up = logits.scatter(1, labels[:, None], -torch.inf).argmax(dim=1)
    drawn = keyed_bits(0, indices, 1).squeeze(1) % logits.shape[1]
    rows = torch.arange(len(labels), device=labels.device)

    def ce_norm(label: Tensor) -> Tensor:
        return (expected - gradients[rows, label]).abs().sum(dim=1)

    margin = logit_margin(logits, labels)
    largest, own = norms.max(dim=1).values, of_label(norms, labels)
    slopes = norms if norm == "linf" else NORMS[norm].dual(gradients)
    reach = (slopes.max(dim=1).values + of_label(slopes, labels)) * epsilon
    return {
        "clean_margin": margin,
        "gradient_norm_ce_label": ce_norm(labels),
        "gradient_norm_ce_runner_up": ce_norm(runner_up),
        "gradient_norm_ce_random": ce_norm(drawn),
        "gradient_norm_logit_label": own,
        "gradient_norm_logit_max": largest,
        "gradient_norm_logits": norms,
        "potentially_misclassified": margin > -reach,
    }


def diagnose(
    model: nn.Module,
    config: TrialConfig,
    data: DataBundle,
    *,
    epsilon: float | None = None,
    norm: NormName = "linf",
    images: int | None = None,
    device: torch.device | str = "cpu",
    batch_size: int = 256,
    seed: int = 0,
) -> tuple[Arrays, dict[str, float]]:
    """Return arrays with one entry per image, and the means that tables and figures use.

    `data` is the trial's own, limited and split as in its training. `images` limits each part to its first n images.
    PGD takes 20 steps of a quarter of the radius from a uniform start keyed by image. As in the paper, margins are
    taken on the images that the method trains on.
    """
    radius = as_float(config.selection.epsilon) if epsilon is None else epsilon
    size = _batch_that_fits(data, batch_size)
    arrays: dict[str, list[Tensor]] = {}
    robust: dict[str, list[Tensor]] = {"train": [], "test": []}
    clean_margins = composition.method_of(config.method).trains_on == "clean"
    with batchnorm_mode(model, "eval"), frozen_parameters(model):
        for part, all_images, all_labels in (
            ("train", data.train_images[:images], data.train_labels[:images]),
            ("test", data.test_images[:images], data.test_labels[:images]),
        ):
            for first in range(0, len(all_images), size):
                batch = pixels(all_images[first : first + size], device)
                labels = all_labels[first : first + size].to(device)
                indices = torch.arange(first, first + len(batch), device=device)
                adversarial = keyed_pgd(
                    model, batch, labels, indices, epsilon=radius, step_size=radius / 4, steps=20, norm=norm, seed=seed
                )
                with torch.no_grad():
                    attacked = model(adversarial)
                    logits = model(batch) if clean_margins else attacked
                robust[part].append(attacked.argmax(dim=1) == labels)
                facts = gradient_facts(model, batch, labels, indices, radius, norm=norm)
                if part == "train":
                    facts |= {
                        "margin": logit_margin(logits, labels),
                        "correct": logits.argmax(dim=1) == labels,
                        "probability_margin": probability_margin(logits, labels),
                    }
                for name, values in facts.items():
                    arrays.setdefault(f"{part}_{name}", []).append(values.cpu())
    joined = {name: torch.cat(parts).numpy() for name, parts in arrays.items()}
    return joined, _summary(
        joined, {part: float(torch.cat(correct).float().mean()) for part, correct in robust.items()}
    )


def _summary(arrays: Arrays, robust: dict[str, float]) -> dict[str, float]:
    summary = {
        "train_margin_mean": float(arrays["train_margin"].mean()),
        "train_probability_margin_mean": float(arrays["train_probability_margin"].mean()),
        "train_pgd_accuracy": robust["train"],
        "test_pgd_accuracy": robust["test"],
        "generalization_gap": robust["train"] - robust["test"],
        "images_train": float(len(arrays["train_margin"])),
        "images_test": float(len(arrays["test_clean_margin"])),
    }
    for part in ("train", "test"):
        summary[f"{part}_potentially_misclassified"] = float(arrays[f"{part}_potentially_misclassified"].mean())
    # The paper averages gradient norms over data points; we average over the test images.
    for name in ("ce_label", "ce_runner_up", "ce_random", "logit_label", "logit_max"):
        summary[f"gradient_norm_{name}"] = float(arrays[f"test_gradient_norm_{name}"].mean())
    summary["gradient_norm_logit_mean"] = float(arrays["test_gradient_norm_logits"].mean())
    return summary


def _batch_that_fits(data: DataBundle, batch_size: int) -> int:
    """Return the largest batch size whose gradients of all classes fit the memory limit.

    One image with 100 classes of 3x32x32 takes 1.2 MB.
    """
    one_image = data.classes * data.test_images[0].numel() * 4
    return max(1, min(batch_size, MEMORY_LIMIT // (4 * one_image)))
