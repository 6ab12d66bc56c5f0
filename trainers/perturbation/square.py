"""Square Attack (Andriushchenko et al. 2020) with the draws and decisions of pyautoattack, and fewer queries.

A query changes one square of an image. When the same square with the same signs was tried before and the image has
not changed since, or when the square already has those signs, the answer is known: the model is not asked again.
Nothing else differs, so the accepted changes, and with them the verdicts, are those of the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from pyautoattack.square import SquareAttack
from torch import Tensor

from trainers.transfer import moved

Window = tuple[int, int, int]  # side, row, column


class RememberingSquare(SquareAttack):
    def attack_single_run(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.norm != "Linf":
            return super().attack_single_run(x, y)
        with torch.inference_mode():
            found = self._search(x, y)
            queries = torch.zeros(len(x), device=x.device)  # the package counts them for its reader alone
        # Copies made outside are ordinary tensors again: the caller may use them where gradients are recorded.
        return queries.clone(), found.clone()

    def _search(self, images: Tensor, labels: Tensor) -> Tensor:
        count, channels, height, width = images.shape
        start = torch.clamp(images + self.eps * self.random_choice([count, channels, 1, width]), 0.0, 1.0)
        # The package draws row, column and one sign per channel for each query; one call gives the same numbers.
        draws = torch.rand(self.n_queries, 2 + channels)
        windows = []
        for query, (down, right) in enumerate(draws[:, :2].tolist()):
            side = square_side(self.p_selection(query), height, width)
            # In float32, as the package multiplies.
            windows.append((side, int(np.float32(down) * (height - side)), int(np.float32(right) * (width - side))))
        signs = torch.sign(2 * draws[:, 2:] - 1)
        return lowered(self.predict, images, labels, start, self.eps, windows, signs)


def square_side(share: float, height: int, width: int) -> int:
    """Of a square that covers about this share of the image."""
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
    """The points after all queries, each taken where it lowers the margin; what is fooled stays as it is.

    A query sets a window to the bounds of the L-infinity ball, per channel the upper or the lower one by its sign.
    """
    channels = images.shape[1]
    best, margins = start.clone(), _margins(model, start, labels)
    result = best.clone()

    active = torch.nonzero(margins > 0.0).flatten()
    images, labels, best, margins = images[active], labels[active], best[active], margins[active]
    # Images lie in [0, 1], so the ball and the box meet and one clamp does for three.
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
        # The host waits for the device once in a query, here: who still stands, and who of them is to be asked.
        stands, moves = torch.stack([margins > 0.0, moves]).cpu()
        if not stands.all():
            fooled, kept = (moved(torch.nonzero(mask).flatten(), images.device) for mask in (~stands, stands))
            result[active[fooled]] = best[fooled]
            active, labels, best, margins = active[kept], labels[kept], best[kept], margins[kept]
            lower, upper, changed, changes = lower[kept], upper[kept], changed[kept], changes[kept]
            moves, current = moves[stands], best[window]
        if len(active) == 0:
            break
        asked = moved(torch.nonzero(moves).flatten(), images.device)
        if len(asked) == 0:
            continue
        trial = best[asked]
        trial[window] = changes[asked]
        answers = margins.index_put((asked,), _margins(model, trial, labels[asked]))
        better = (answers < margins) | (answers <= 0.0)
        current.copy_(torch.where(better.view(-1, 1, 1, 1), changes, current))
        margins = torch.where(better, answers, margins)
        changed = torch.where(better, query, changed)
    result[active] = best
    return result


def _margins(model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> Tensor:
    logits = model(images)
    true = logits.gather(1, labels[:, None])
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return true.squeeze(1) - others.max(dim=1).values
