"""How many images a study's models withstand: most of AutoAttack is spent on those that survive its first part."""

from __future__ import annotations

from collections.abc import Iterable

from sweep.evaluation.asked import Evaluation

UNKNOWN = (1.0, 0.5)


class Survival:
    """By label, since one column may hold next to no robust image and its neighbour most of them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float]] = {}  # the latest of each label: its seeds differ little
        self._costs: dict[tuple[str, str, str, int], float] = {}  # the same for all trials of a label

    def note(self, label: str, right: float | None, robust: float | None) -> None:
        """Shares of the images that a model of this label classifies right, clean and attacked."""
        if right is not None and robust is not None:
            self._known[label] = right, robust
            self._costs.clear()

    def of(self, label: str) -> tuple[float, float]:
        """The mean of all labels where nothing is known of this one."""
        if label in self._known or not self._known:
            return self._known.get(label, UNKNOWN)
        right, robust = zip(*self._known.values(), strict=True)
        return sum(right) / len(right), sum(robust) / len(robust)

    def cost(self, label: str, evaluations: Iterable[Evaluation]) -> float:
        """Of evaluations that have not begun."""
        return sum(self._cost(label, one) for one in evaluations)

    def _cost(self, label: str, evaluation: Evaluation) -> float:
        key = label, evaluation.attack.name, evaluation.attack.epsilon, evaluation.images
        if key not in self._costs:
            self._costs[key] = evaluation.images * evaluation.attack.expected_passes(*self.of(label))
        return self._costs[key]

    def later_cost(self, label: str, evaluation: Evaluation, phase: str, images: int) -> float:
        """Of the phases after this one, which so many images have reached."""
        phases, (right, robust) = evaluation.attack.phases, self.of(label)
        place = phases.index(phase)
        found = 0.0
        for number, later in enumerate(phases[place + 1 :], place + 1):
            if place == 0:
                share = right if number == 1 else robust
            else:
                share = robust / right if place == 1 and right else 1.0
            found += min(1.0, share) * images * evaluation.attack.passes(later)
        return found
