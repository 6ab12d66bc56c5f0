"""What a driver knows of its cluster's nodes: which fail whatever they are given, and how large their GPUs are."""

from __future__ import annotations

from dataclasses import dataclass, field

from sweep.cluster.place import Place

FAST_SECONDS = 120.0  # a task that fails sooner has found something wrong with its place
STRIKES = 2


@dataclass
class Node:
    place: Place
    strikes: dict[str, dict[str, str]] = field(default_factory=dict)  # by stage: tasks that failed fast, and why

    @property
    def fault(self) -> str | None:
        """Why it gets no work."""
        if self.place.fault is not None:
            return self.place.fault
        for failed in self.strikes.values():
            if len(failed) >= STRIKES:
                return f"{len(failed)} tasks failed there at once: {list(failed.values())[-1]}"
        return None


class Nodes:
    """By Ray's name of a node."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}

    def hear(self, place: Place) -> None:
        """A process on it said what the place is like."""
        known = self._nodes.setdefault(place.node, Node(place))
        known.place = place

    def fault(self, node: str) -> str | None:
        return self._nodes[node].fault if node in self._nodes else None

    def worked(self, node: str, stage: str) -> None:
        """Where evaluations go well, trainings may still fail one after the other."""
        if node in self._nodes:
            self._nodes[node].strikes.pop(stage, None)

    def failed(self, node: str, stage: str, task: str, reason: str) -> None:
        """One task counts once: what fails wherever it runs is no fault of a node."""
        if node in self._nodes:
            self._nodes[node].strikes.setdefault(stage, {})[task] = reason

    def bad(self) -> dict[str, str]:
        """Machines that get no work, and why."""
        found = {}
        for name, node in self._nodes.items():
            if node.fault is not None:
                found[f"{node.place.host} ({name[:8]})"] = node.fault
        return found

    def others(self, avoided: set[str], alive: set[str]) -> bool:
        """Whether a living node is left that is neither bad nor avoided; one not heard of may be good."""
        return any(node not in avoided and self.fault(node) is None for node in alive)

    def larger_gpu(self, amount: int, alive: set[str]) -> bool:
        """Whether a living, good node has GPUs with more memory than this."""
        return any(
            name in alive and node.fault is None and node.place.gpu_bytes > amount for name, node in self._nodes.items()
        )

    def gpu_bytes(self, node: str) -> int:
        return self._nodes[node].place.gpu_bytes if node in self._nodes else 0
