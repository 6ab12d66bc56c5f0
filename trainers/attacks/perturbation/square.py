"""Square Attack (Andriushchenko et al. 2020) with the draws and decisions of pyautoattack, and fewer queries.

A query changes one square of an image. Its answer is known without the model if the same square with the same signs was
tried before and the image has not changed since, or if the square already has those signs. Nothing else differs, so the
accepted changes, and with them the verdicts, are those of the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from trainers.compat.autoattack_internals import SquareAttack
from trainers.loop.device_copies import moved

Window = tuple[int, int, int]  # side, row, column


class RememberingSquare(SquareAttack):
    """The package's attack, without queries whose answer is known."""

    def attack_single_run(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.norm != "Linf":
            return super().attack_single_run(x, y)
        with torch.inference_mode():
            adversarial = self._search(x, y)
            queries = torch.zeros(len(x), device=x.device)  # the package only displays them
        # Copies made outside inference mode are ordinary tensors, which may be used where gradients are recorded.
        return queries.clone(), adversarial.clone()

    def _search(self, images: Tensor, labels: Tensor) -> Tensor:
        count, channels, height, width = images.shape
        start = torch.clamp(images + self.eps * self.random_choice([count, channels, 1, width]), 0.0, 1.0)
        # The package draws row, column and one sign per channel for each query; one call gives the same numbers.
        draws = torch.rand(self.n_queries, 2 + channels)
        windows = []
        for query, (down, right) in enumerate(draws[:, :2].tolist()):
            side = square_side(self.p_selection(query), height, width)
            # Multiplied in float32, as in the package.
            windows.append((side, int(np.float32(down) * (height - side)), int(np.float32(right) * (width - side))))
        signs = torch.sign(2 * draws[:, 2:] - 1)
        return lowered(self.predict, images, labels, start, self.eps, windows, signs)


def square_side(share: float, height: int, width: int) -> int:
    """Return the side of a square that covers about this share of the image."""
    return min(max(int(round(math.sqrt(share * (height * width)))), 1), height, width)


@torch.no_grad()
def lowered(
    model: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    start: Tensor,
    epsilon: float,
    windows: Sequence[Window],
    signs: Tensor,
) -> Tensor:
    """Return the points after all queries, each query accepted if it lowers the margin. Fooled images no longer change.

    A query sets a window to the bounds of the L∞ ball, per channel the upper or the lower one by its sign.
    """
    channels = images.shape[1]
    best, margins = start.clone(), _margins(model, start, labels)
    result = best.clone()

    active = torch.nonzero(margins > 0.0).flatten()
    images, labels, best, margins = images[active], labels[active], best[active], margins[active]
    # Images lie in [0, 1], so one clamp serves ball and box.
    lower, upper = (images - epsilon).clamp_(min=0.0), (images + epsilon).clamp_(max=1.0)
    changed = torch.zeros(len(active), dtype=torch.long, device=images.device)
    steps = 2.0 * epsilon * signs.to(images.device).view(-1, channels, 1, 1)
    tried: dict[tuple[float, ...], int] = {}
    for query, ((side, row, column), chosen) in enumerate(zip(windows, signs.tolist(), strict=True)):
        proposal = (side, row, column, *chosen)
        last, tried[proposal] = tried.get(proposal, -1), query
        window = (slice(None), slice(None), slice(row, row + side), slice(column, column + side))
        current = best[window]
        changes = torch.clamp(current + steps[query], lower[window], upper[window])
        moves = (changes != current).flatten(1).any(dim=1) & (changed >= last)
        # The host waits for the device once per query, here: which images are robust, and which of them need a query.
        robust, moves = torch.stack([margins > 0.0, moves]).cpu()
        if not robust.all():
            fooled, remaining = (moved(torch.nonzero(mask).flatten(), images.device) for mask in (~robust, robust))
            result[active[fooled]] = best[fooled]
            active, labels, best, margins = active[remaining], labels[remaining], best[remaining], margins[remaining]
            lower, upper, changed, changes = lower[remaining], upper[remaining], changed[remaining], changes[remaining]
            moves, current = moves[robust], best[window]
        if len(active) == 0:
            break
        queried = moved(torch.nonzero(moves).flatten(), images.device)
        if len(queried) == 0:
            continue
        trial = best[queried]
        trial[window] = changes[queried]
        answers = margins.index_put((queried,), _margins(model, trial, labels[queried]))
        better = (answers < margins) | (answers <= 0.0)
        current.copy_(torch.where(better.view(-1, 1, 1, 1), changes, current))
        margins = torch.where(better, answers, margins)
        changed = torch.where(better, query, changed)
    result[active] = best
    return result


def _margins(model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> Tensor:
    logits = model(images)
    true = logits.gather(1, labels[:, None])
    wrong_logits = logits.scatter(1, labels[:, None], -torch.inf)
    return true.squeeze(1) - wrong_logits.max(dim=1).values
