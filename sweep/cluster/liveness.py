"""Detection of a Ray cluster that can no longer work. A driver without its head or its last node would wait forever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sweep.cluster.connection import Connection
from sweep.cluster.resources import TrialResources, nodes

LOST_SECONDS = 60.0  # time for a head to restart, or for a node to be replaced
LOOK_SECONDS = 5.0


class Liveness:
    """A watch on the cluster that calls `lost` once, when the cluster can no longer work.

    It runs in a separate thread, because calls to a dead head do not return.
    """

    def __init__(
        self,
        resources: TrialResources,
        lost: Callable[[str], None],
        patience: float | None = None,
        needed: Callable[[], bool] = lambda: True,
    ) -> None:
        """Start with a good connection.

        Args:
            lost: Called once with the reason.
            patience: Seconds to wait for nodes, for clusters whose nodes come and go with the work.
            needed: Return whether any work needs a node.
        """
        self.resources, self.lost, self.patience, self.needed = resources, lost, patience, needed
        self._connection = Connection()
        self._over = threading.Event()

    def __enter__(self) -> Liveness:
        threading.Thread(target=self._watch, name="liveness", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        connected = equipped = time.monotonic()
        patience = max(LOST_SECONDS, self.patience or 0.0)
        while not self._over.wait(min(LOOK_SECONDS, LOST_SECONDS / 3)):
            # A cluster that scales may need time to add nodes, but waiting never repairs a lost connection.
            fault, limit, since = self._connection.fault(), LOST_SECONDS, connected
            if not fault:
                connected = time.monotonic()
                fault, limit, since = self._missing(), patience, equipped
            if not fault:
                equipped = time.monotonic()
            elif time.monotonic() - since > limit:
                self.lost(f"{fault} for {limit:.0f} s; finished work is in the store")
                break
        else:
            return
        self._connection.release()
        while not self._over.wait(1.0):  # until the process ends, Tune may reserve devices again
            self._connection.release()

    def _missing(self) -> str:
        try:
            fit = any(self.resources.fits(node["Resources"]) for node in nodes())
        except Exception:  # the head has died since the last call, and Ray raises many types for that
            fit = True
        return "" if fit or not self.needed() else f"the Ray cluster has had no living node with {self.resources}"
