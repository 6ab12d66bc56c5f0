"""The state of a piece of work during a sweep."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sweep.work.pieces import Piece


@dataclass(eq=False)
class Item:
    """A piece with its state in the sweep and the outcome of its attempts."""

    piece: Piece
    number: int = 0  # in the order of arrival
    is_taken: bool = False  # it has been given out and has not ended
    has_device: bool = False
    failures: int = 0  # since its last progress
    deaths: int = 0  # deaths of its processes since its last progress
    trouble: str = ""  # the reason why its latest attempt ended
    avoided: set[str] = field(default_factory=set)  # nodes on which it failed
    gpu_bytes: int = 0  # memory of the GPU, which was too small for it
    began: float = 0.0  # by the monotonic clock
    share: float = 0.0  # share of it that is done
    resumed_at: float | None = None  # share done before this attempt, known after its first epoch
    timed_from: tuple[float, float] = (0.0, 0.0)  # the time and the share at the end of the first epoch in this attempt
    timed_to: float = 0.0  # the end of its latest epoch
    free: int = 0  # incomplete chunks of an attack, besides the one that this worker has
    helped: float = 0.0  # time at which it last got another worker

    @property
    def attempt(self) -> int:
        """The number of the attempt, counted from 1 since the piece last progressed."""
        return self.failures + 1

    @property
    def timed_cost(self) -> float:
        """The cost of what was trained after this attempt's first epoch, which is slowed by imports and loading."""
        return self.piece.cost * (self.share - self.timed_from[1])

    @property
    def timed_seconds(self) -> float:
        return self.timed_to - self.timed_from[0]

    def begin(self) -> None:
        """Record that a worker has begun with the piece."""
        self.has_device, self.began, self.resumed_at, self.free = True, time.monotonic(), None, 0

    def reached(self, epoch: int) -> None:
        """Record that an epoch, counted from 0, has ended."""
        epochs, now = self.piece.epochs, time.monotonic()
        self.got_further()
        self.share = min(1.0, (epoch + 1) / epochs)
        if self.resumed_at is None:
            self.resumed_at, self.timed_from = min(1.0, epoch / epochs), (now, self.share)
        self.timed_to = now

    def got_further(self) -> None:
        """Reset the counts of failures and deaths."""
        self.failures = self.deaths = 0
