"""Whether a Ray cluster can still work: without its last node, or its head, a driver would wait for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sweep.cluster.connection import Connection
from sweep.cluster.devices import TrialResources, nodes

LOST_SECONDS = 60.0  # a head that is started again, or a node that replaces another, gets this long
LOOK_SECONDS = 5.0


class Liveness:
    """Looks from a thread of its own, because calls to a dead head do not return, and says once that all is lost."""

    def __init__(
        self,
        resources: TrialResources,
        lost: Callable[[str], None],
        patience: float | None = None,
        needed: Callable[[], bool] = lambda: True,
    ) -> None:
        """`patience` is for clusters whose nodes come when they are `needed`, and go when they are not."""
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
            # Nodes may be waited for as long as the cluster scales; nothing comes of waiting for a lost connection.
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
        while not self._over.wait(1.0):  # until then Tune may reserve devices again
            self._connection.release()

    def _missing(self) -> str:
        try:
            fit = any(self.resources.fits(node["Resources"]) for node in nodes())
        except Exception:  # the head has died since it was asked, and Ray has many words for that
            fit = True
        return "" if fit or not self.needed() else f"the Ray cluster has had no living node with {self.resources}"
