"""SPSA (Uesato et al. 2018): gradients estimated from queries, as in advertorch's LinfSPSAAttack."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from trainers.attacks.perturbation.noise import keyed_signs
from trainers.losses import logit_margin

# (iteration, first sample, last sample + 1, images) -> ±1 of shape (samples, C, H, W)
Directions = Callable[[int, int, int, Tensor], Tensor]


def shared_directions(seed: int, samples: int) -> Directions:
    """Return a function that draws one ±1 direction for each (iteration, sample), shared by all images.

    The official code shares them too. They depend on nothing else, so neither batch nor shard affects a verdict.
    """

    def draw(iteration: int, first: int, end: int, images: Tensor) -> Tensor:
        keys = torch.arange(first, end, device=images.device) + iteration * samples
        return keyed_signs(seed, keys, tuple(images.shape[1:]), images.dtype)

    return draw


def estimate_gradient(
    model: nn.Module, images: Tensor, labels: Tensor, delta: float, samples: int, directions: Callable, chunk: int
) -> Tensor:
    """Return the mean over directions v of (L(x+δv) - L(x-δv)) / 2δ · v, where L = z_y - max of the others.

    L is to be minimised. The model sees `chunk` directions at once; this affects memory and, by rounding, the value.
    """
    count = len(images)
    gradient = torch.zeros_like(images)
    for first in range(0, samples, chunk):
        signs = directions(first, min(first + chunk, samples))
        shifted = delta * signs[:, None]
        both = torch.cat([images[None] + shifted, images[None] - shifted]).flatten(0, 1)
        losses = -logit_margin(model(both), labels.repeat(2 * len(signs))).view(2, len(signs), count)
        slopes = (losses[0] - losses[1]) / (2 * delta)
        gradient += torch.einsum("sn,schw->nchw", slopes, signs)
    return gradient / samples


def perturb(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    epsilon: float,
    steps: int,
    samples: int,
    delta: float,
    learning_rate: float,
    directions: Directions,
    queries_at_once: int = 2048,
) -> Tensor:
    """Return adversarial images by Adam on the perturbation, from 0, clipped to the ball and [0, 1] at every step."""
    chunk = max(1, queries_at_once // (2 * len(images)))
    first = torch.zeros_like(images)
    second = torch.zeros_like(images)
    perturbation = torch.zeros_like(images)
    with torch.inference_mode():
        for step in range(1, steps + 1):

            def drawn(start: int, end: int, iteration: int = step - 1) -> Tensor:
                return directions(iteration, start, end, images)

            gradient = estimate_gradient(model, images + perturbation, labels, delta, samples, drawn, chunk)
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            corrected = second.sqrt() / (1 - 0.999**step) ** 0.5 + 1e-8
            perturbation = perturbation - learning_rate / (1 - 0.9**step) * first / corrected
            perturbation = perturbation.clamp(-epsilon, epsilon)
            perturbation = (images + perturbation).clamp(0.0, 1.0) - images
        adversarial = images + perturbation
    return adversarial.clone()
