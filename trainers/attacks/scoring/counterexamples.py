"""Proof that an attack fooled a model: one adversarial image for each, stored as compactly as possible.

Coarse forms are tried before fine ones: the signs of the perturbation, then integer multiples of a scale, then the
image itself. Every stored row has been decoded again and shown to the same model: it is misclassified, and it lies in
the ball and in [0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from trainers.attacks.perturbation.norms import NORMS
from trainers.attacks.scoring.counterexample_file import EXACT, SIGNS, Counterexamples, joined, none
from trainers.values import NormName

# Machines differ in the last digits of logits. An image this close to the boundary, as a share of its largest logit,
# may be misclassified on one machine and not on another. A coarse form must be further away.
ROUNDING = 1e-4
# Rounding of the sum of an image and its perturbation: relative to the radius, and absolute.
BALL_TOLERANCE, PIXEL_TOLERANCE = 1e-5, 1e-7
# Number of levels, and whether the perturbation is stretched to the radius. In L∞ the scale is a fixed share of the
# radius. In the other norms it is free, and a shorter perturbation fools more clearly when stretched.
FORMS: dict[NormName, tuple[tuple[int, bool], ...]] = {
    "linf": ((SIGNS, True), (3, True), (15, True), (127, True)),
    "l2": ((2, True), (7, True), (127, True), (127, False)),
    "l1": ((2, True), (7, True), (127, True), (127, False)),
}


@dataclass(frozen=True)
class Judged:
    """The model's judgement of images that should be misclassified; one value for each image."""

    wrong: Tensor
    margins: Tensor  # logit of the most likely wrong class minus that of the label
    scales: Tensor  # largest absolute logit, to which rounding is proportional

    @property
    def clear(self) -> Tensor:
        """Return True for images that are misclassified by more than another machine's rounding."""
        return self.wrong & (self.margins > ROUNDING * self.scales)

    @property
    def at_the_boundary(self) -> Tensor:
        """Return True for images whose margin is within another machine's rounding."""
        return self.margins.abs() <= ROUNDING * self.scales


def judge(model: nn.Module, images: Tensor, labels: Tensor) -> Judged:
    """Return the model's judgement of these images. The model must be in eval mode."""
    with torch.no_grad():
        logits = model(images).float()
    classes = labels.unsqueeze(1)
    runners_up = logits.scatter(1, classes, -torch.inf).amax(dim=1)
    margins = runners_up - logits.gather(1, classes).squeeze(1)
    return Judged(logits.argmax(dim=1) != labels, margins, logits.abs().amax(dim=1))


def inside(images: Tensor, clean: Tensor, norm: NormName, epsilon: float) -> Tensor:
    """Return True for images that lie in [0, 1] and in the ball around their clean image, up to rounding."""
    flat = images.flatten(1)
    in_box = (flat.amin(dim=1) >= 0) & (flat.amax(dim=1) <= 1)
    sizes = NORMS[norm].size(images.double() - clean.double())
    return in_box & (sizes <= epsilon * (1 + BALL_TOLERANCE) + PIXEL_TOLERANCE)


def perturbed(clean: Tensor, steps: Tensor, scales: Tensor) -> Tensor:
    """Return the images that signs or multiples stand for, by the same arithmetic wherever they are read."""
    shift = steps.to(clean.dtype).view_as(clean) * _each(scales.to(clean.dtype), clean)
    return (clean + shift).clamp(0.0, 1.0)


def images_of(counterexamples: Counterexamples, rows: np.ndarray, clean: Tensor) -> Tensor:
    """Return the adversarial images of these rows. `clean` are their clean images, as floats on the target device."""
    steps, scales = torch.from_numpy(counterexamples.steps(rows)), torch.from_numpy(counterexamples.scales[rows])
    images = perturbed(clean, steps.to(clean.device), scales.to(clean.device))
    exact = counterexamples.levels[rows] == EXACT
    if exact.any():
        stored = torch.from_numpy(counterexamples.exact(rows[exact])).to(clean)
        images[torch.from_numpy(np.flatnonzero(exact)).to(clean.device)] = stored.view(-1, *clean.shape[1:])
    return images


def keep(
    model: nn.Module,
    clean: Tensor,
    adversarial: Tensor,
    labels: Tensor,
    positions: np.ndarray,
    *,
    norm: NormName,
    epsilon: float,
) -> Counterexamples:
    """Return one counterexample for each of these images, all of which fooled the model.

    An image that only a point outside the ball fools gets none. `positions` become the rows' indices. The model must be
    in eval mode.
    """
    values = clean[0].numel() if len(clean) else 0
    changes = (adversarial - clean).detach()
    pending = torch.arange(len(clean), device=clean.device)
    parts: list[Counterexamples] = []
    for level, stretched in FORMS[norm]:
        if not len(pending):
            break
        steps, scales = _quantised(clean[pending], changes[pending], norm, epsilon, level, stretched)
        images = perturbed(clean[pending], steps, scales)
        judged = judge(model, images, labels[pending])
        good = judged.clear & inside(images, clean[pending], norm, epsilon)
        where = positions[pending[good].cpu().numpy()]
        parts.append(_rows(where, level, scales[good], judged.margins[good], steps[good].flatten(1), values))
        pending = pending[~good]
    if len(pending):
        images = _back_into_the_ball(clean[pending], adversarial[pending].detach(), norm, epsilon)
        judged = judge(model, images, labels[pending])
        good = (judged.wrong | judged.at_the_boundary) & inside(images, clean[pending], norm, epsilon)
        where = positions[pending[good].cpu().numpy()]
        ones = torch.ones_like(judged.margins[good])
        parts.append(_rows(where, EXACT, ones, judged.margins[good], images[good].flatten(1), values))
    return joined(parts)


def _quantised(
    clean: Tensor, changes: Tensor, norm: NormName, epsilon: float, level: int, stretched: bool
) -> tuple[Tensor, Tensor]:
    """Return the perturbations as integer multiples, and the scale of each image."""
    if norm == "linf":
        scales = torch.full((len(changes),), epsilon / level, device=changes.device)
        if level == SIGNS:
            # An unchanged pixel often could not move further: point it towards the nearer end of [0, 1].
            resting = torch.where(clean > 0.5, 1.0, -1.0)
            return torch.where(changes == 0, resting, changes.sign()).to(torch.int8), scales
        steps = (changes * (level / epsilon)).round().clamp(-level, level) if epsilon else torch.zeros_like(changes)
        return steps.to(torch.int8), scales
    largest = changes.flatten(1).abs().amax(dim=1).double().clamp(min=1e-12)
    multiples = (changes * _each(level / largest, changes)).round().clamp(-level, level)
    most = epsilon * (1 - 1e-6) / NORMS[norm].size(multiples.double()).clamp(min=1e-12)
    scales = most if stretched else torch.minimum(largest / level, most)
    return multiples.to(torch.int8), scales.float()


def _back_into_the_ball(clean: Tensor, images: Tensor, norm: NormName, epsilon: float) -> Tensor:
    """Return the images projected into the ball; those already inside are returned bit for bit."""
    out = ~inside(images, clean, norm, epsilon)
    if not bool(out.any()):
        return images
    changes = images - clean
    sizes = NORMS[norm].size(changes).clamp(min=1e-12)
    shorter = changes.clamp(-epsilon, epsilon) if norm == "linf" else changes * _each(epsilon / sizes, clean)
    return torch.where(_each(out, clean), (clean + shorter).clamp(0.0, 1.0), images)


def _rows(
    positions: np.ndarray, level: int, scales: Tensor, margins: Tensor, content: Tensor, values: int
) -> Counterexamples:
    arrays = vars(none(values)) | {
        "indices": positions.astype(np.uint32),
        "levels": np.full(len(positions), level, np.uint8),
        "scales": scales.float().cpu().numpy(),
        "margins": margins.nan_to_num(0.0).float().cpu().numpy(),
    }
    rows = content.cpu().numpy()
    if level == SIGNS:
        arrays["signs"] = np.packbits(rows > 0, axis=1)
    else:
        arrays["images" if level == EXACT else "offsets"] = rows.astype(np.float32 if level == EXACT else np.int8)
    return Counterexamples(**arrays)


def _each(amounts: Tensor, images: Tensor) -> Tensor:
    """Return one amount for each image, shaped so that it broadcasts over the images."""
    return amounts.view(-1, *[1] * (images.dim() - 1))
