"""Proof that an attack fooled a model: one adversarial image each, as small as it still fools, checked as it is read.

Coarse before fine: signs of the perturbation alone, then whole multiples of a scale, then the image itself. What is
kept was decoded again and shown to the very model: it is misclassified, in the ball and in [0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from trainers.counterexample_file import EXACT, SIGNS, Counterexamples, joined, none
from trainers.perturbation.norms import NORMS
from trainers.values import NormName

# Two machines differ in the last digits of logits: an image this near to the boundary, as a share of its largest
# logit, counts as misclassified on one and not on the other. A coarse form must be clear of it.
ROUNDING = 1e-4
# Of a radius: what the sum of an image and its perturbation is rounded by.
BALL_TOLERANCE, PIXEL_TOLERANCE = 1e-5, 1e-7
# Levels, and whether the perturbation is stretched to the radius: in L∞ the scale is the radius' share, in the others
# it is free, and a perturbation that was found shorter fools more clearly when it is as long as it may be.
FORMS: dict[NormName, tuple[tuple[int, bool], ...]] = {
    "linf": ((SIGNS, True), (3, True), (15, True), (127, True)),
    "l2": ((2, True), (7, True), (127, True), (127, False)),
    "l1": ((2, True), (7, True), (127, True), (127, False)),
}


@dataclass(frozen=True)
class Judged:
    """Of images that are said to be misclassified; one value for each."""

    wrong: Tensor
    margins: Tensor  # the likeliest wrong class above the label
    scales: Tensor  # the largest logit: what rounding goes by

    @property
    def clear(self) -> Tensor:
        return self.wrong & (self.margins > ROUNDING * self.scales)

    @property
    def at_the_boundary(self) -> Tensor:
        """As near as another machine's rounding."""
        return self.margins.abs() <= ROUNDING * self.scales


def judge(model: nn.Module, images: Tensor, labels: Tensor) -> Judged:
    """The model is in eval mode."""
    with torch.no_grad():
        logits = model(images).float()
    places = labels.unsqueeze(1)
    others = logits.scatter(1, places, -torch.inf).amax(dim=1)
    margins = others - logits.gather(1, places).squeeze(1)
    return Judged(logits.argmax(dim=1) != labels, margins, logits.abs().amax(dim=1))


def inside(images: Tensor, clean: Tensor, norm: NormName, epsilon: float) -> Tensor:
    """Whether each image lies in [0, 1] and in the ball around its clean one, but for rounding."""
    flat = images.flatten(1)
    in_box = (flat.amin(dim=1) >= 0) & (flat.amax(dim=1) <= 1)
    sizes = NORMS[norm].size(images.double() - clean.double())
    return in_box & (sizes <= epsilon * (1 + BALL_TOLERANCE) + PIXEL_TOLERANCE)


def perturbed(clean: Tensor, steps: Tensor, scales: Tensor) -> Tensor:
    """What a row of signs or multiples stands for; the same arithmetic wherever it is read."""
    shift = steps.to(clean.dtype).view_as(clean) * _each(scales.to(clean.dtype), clean)
    return (clean + shift).clamp(0.0, 1.0)


def images_of(found: Counterexamples, rows: np.ndarray, clean: Tensor) -> Tensor:
    """The adversarial images of these rows; `clean` are their images as floats, on the device that is asked."""
    steps, scales = torch.from_numpy(found.steps(rows)), torch.from_numpy(found.scales[rows])
    images = perturbed(clean, steps.to(clean.device), scales.to(clean.device))
    exact = found.levels[rows] == EXACT
    if exact.any():
        own = torch.from_numpy(found.exact(rows[exact])).to(clean)
        images[torch.from_numpy(np.flatnonzero(exact)).to(clean.device)] = own.view(-1, *clean.shape[1:])
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
    """One for each of these images, all of them fooled; none for those that only an image outside of the ball fools.

    `positions` become their indices. The model is in eval mode.
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
    """Whole multiples, and the scale of each image."""
    if norm == "linf":
        scales = torch.full((len(changes),), epsilon / level, device=changes.device)
        if level == SIGNS:
            # Where nothing changed, often since the pixel could not go further: towards the end that it is near.
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
    """Images that lie there stay as they are, to the last digit."""
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
    """One amount for each image, shaped so that it broadcasts over them."""
    return amounts.view(-1, *[1] * (images.dim() - 1))
