"""Square Attack (Andriushchenko et al. 2020) with the draws and decisions of pyautoattack, and fewer queries.

A query changes one square of an image. When the same square with the same signs was tried before and the image has
not changed since, or when the square already has those signs, the answer is known: the model is not asked again.
Nothing else differs, so the accepted changes, and with them the verdicts, are those of the package.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from pyautoattack.square import SquareAttack
from torch import Tensor

from trainers.transfer import moved


class RememberingSquare(SquareAttack):
    def attack_single_run(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.norm != "Linf":
            return super().attack_single_run(x, y)
        with torch.inference_mode():
            queries, found = self._search(x, y)
        # Copies made outside are ordinary tensors again: the caller may use them where gradients are recorded.
        return queries.clone(), found.clone()

    def _search(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        count, channels, height, width = images.shape
        best = torch.clamp(images + self.eps * self.random_choice([count, channels, 1, width]), 0.0, 1.0)
        margins = self._margins(best, labels)
        # The package draws row, column and one sign per channel for each query; one call gives the same numbers.
        draws = torch.rand(self.n_queries, 2 + channels)
        signs = torch.sign(2 * draws[:, 2:] - 1)
        result = best.clone()

        active = torch.nonzero(margins > 0.0).flatten()
        images, labels, best, margins = images[active], labels[active], best[active], margins[active]
        # Images lie in [0, 1], so the ball and the box meet and one clamp does for three.
        lower, upper = (images - self.eps).clamp_(min=0.0), (images + self.eps).clamp_(max=1.0)
        changed = torch.zeros(len(active), dtype=torch.long, device=images.device)
        steps = 2.0 * self.eps * signs.to(images.device).view(-1, channels, 1, 1)
        tried: dict[tuple[float, ...], int] = {}
        for query, (down, right, *chosen) in enumerate(zip(*draws[:, :2].T.tolist(), *signs.T.tolist(), strict=True)):
            side = self.side(query, channels, height, width)
            # In float32, as the package multiplies.
            row, column = int(np.float32(down) * (height - side)), int(np.float32(right) * (width - side))
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
            answers = margins.index_put((asked,), self._margins(trial, labels[asked]))
            better = (answers < margins) | (answers <= 0.0)
            current.copy_(torch.where(better.view(-1, 1, 1, 1), changes, current))
            margins = torch.where(better, answers, margins)
            changed = torch.where(better, query, changed)
        result[active] = best
        return torch.zeros(count, device=images.device), result  # the package counts queries for its reader alone

    def side(self, query: int, channels: int, height: int, width: int) -> int:
        share = self.p_selection(query) * (channels * height * width) / channels
        return min(max(int(round(math.sqrt(share))), 1), height, width)

    def _margins(self, images: Tensor, labels: Tensor) -> Tensor:
        logits = self.predict(images)
        true = logits.gather(1, labels[:, None])
        others = logits.scatter(1, labels[:, None], -torch.inf)
        return true.squeeze(1) - others.max(dim=1).values
