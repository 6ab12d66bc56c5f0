"""The function that Ray Tune runs: it does one piece of a study, from its stored state to its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from sweep.store.leases import LeaseLost
from sweep.work.failures import failure_of
from sweep.work.pieces import Metrics, Setting, piece_from
from sweep.work.worker import Worker

Report = Callable[[Metrics], None]


def trainable(
    config: Mapping[str, Any], setting: Setting, report: Report = lambda metrics: None, node: str = ""
) -> Metrics:
    """Do one piece of a study: a search candidate, a training, an attack or a diagnosis.

    It does not need Ray: `sweep run --local`, notebooks and debuggers call it as Tune does.

    Args:
        config: The piece, as described by `Piece.tune_config`.
        setting: Settings that all pieces of the run share.
        report: Called after every epoch or batch, and from time to time as a sign of life.
        node: The name of this node in its cluster.

    Returns:
        The metrics of the piece. `state` is done, collapsed, pruned or failed, as in its record; `shared` if other
        workers have the remaining chunks of an attack; `taken` if another driver's worker has the piece; `held` or
        `elsewhere` if this node cannot do it.
    """
    with Worker(config, setting, report, node) as worker:
        refusal = worker.refusal()
        if refusal is not None:
            return worker.hold_device(refusal)
        piece = piece_from(config)
        try:
            with worker.lease(piece.lease) if piece.is_leased else nullcontext(True) as is_mine:
                if not is_mine:
                    return {"state": "taken"}
                stored = piece.stored(worker.store, retry_failed=setting.retry_failed)
                if stored is not None:
                    return {**stored, "stored": True}
                with worker.workplace(piece) as place:
                    return piece.run(place)
        except LeaseLost:
            return {"state": "taken"}
        except Exception as error:
            report({"failure": vars(failure_of(error))})
            raise
