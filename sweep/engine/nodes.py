"""The driver's knowledge of its cluster's nodes: which ones are faulty, and how much memory their GPUs have."""

from __future__ import annotations

from dataclasses import dataclass, field

FAST_SECONDS = 120.0  # a piece that fails sooner may have found a fault of its node
STRIKES = 2


@dataclass
class NodeRecord:
    """The reports of the workers on a node."""

    host: str
    gpu_bytes: int = 0
    reported: str | None = None  # a fault that a worker detected there
    strikes: dict[str, dict[str, str]] = field(default_factory=dict)  # by stage: pieces that failed quickly, and why

    @property
    def fault(self) -> str | None:
        """The reason why the node gets no work, or None."""
        if self.reported is not None:
            return self.reported
        for failed in self.strikes.values():
            if len(failed) >= STRIKES:
                return f"{len(failed)} pieces failed there at once: {list(failed.values())[-1]}"
        return None


class Nodes:
    """The nodes of a cluster, by Ray's ids."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeRecord] = {}

    def hear(self, name: str, host: str, gpu_bytes: int = 0, fault: str | None = None) -> None:
        """Record a worker's report about its node."""
        node = self._nodes.setdefault(name, NodeRecord(host))
        node.gpu_bytes, node.reported = gpu_bytes, fault

    def fault(self, name: str) -> str | None:
        return self._nodes[name].fault if name in self._nodes else None

    def worked(self, name: str, stage: str) -> None:
        """Clear the strikes of a stage. A node on which attacks succeed may still fail all trainings."""
        if name in self._nodes:
            self._nodes[name].strikes.pop(stage, None)

    def failed(self, name: str, stage: str, piece: str, reason: str) -> None:
        """Count one strike per piece, because a piece that fails everywhere is not the node's fault."""
        if name in self._nodes:
            self._nodes[name].strikes.setdefault(stage, {})[piece] = reason

    def faults(self) -> dict[str, str]:
        """Return the reasons why nodes get no work, by Ray's ids."""
        return {name: node.fault for name, node in self._nodes.items() if node.fault is not None}

    def bad(self) -> dict[str, str]:
        """Return the same reasons by host name, for messages."""
        return {f"{self._nodes[name].host} ({name[:8]})": fault for name, fault in self.faults().items()}

    def others(self, avoided: set[str], alive: set[str]) -> bool:
        """Return whether a living node remains that is neither bad nor avoided. Unknown nodes count as good."""
        return any(name not in avoided and self.fault(name) is None for name in alive)

    def larger_gpu(self, amount: int, alive: set[str]) -> bool:
        """Return whether a living, good node has GPUs with more memory than this many bytes."""
        return any(
            name in alive and node.fault is None and node.gpu_bytes > amount for name, node in self._nodes.items()
        )
