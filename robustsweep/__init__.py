"""The Python interface: run a study, read results as data frames, attack your own model, compare methods.

    import robustsweep

    found = robustsweep.run("digits", methods=["at", "sovr"], store="store")
    found.evaluations                      # a pandas frame; also cells, trials, curves() and verdicts()
    found.compare("digits", "sovr", "at")  # with its test and interval
    robustsweep.evaluate(model, images, labels, attacks=["clean", "pgd-20", "autoattack"], epsilon="8/255")

Importing the package is cheap: each function's module is imported at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustsweep.frames import Compared, Frames, load
    from robustsweep.live import Evaluated, evaluate
    from robustsweep.running import run
    from sweep.errors import UserError

__all__ = ["Compared", "Evaluated", "Frames", "UserError", "evaluate", "load", "run"]

_PLACES = {
    "Compared": "robustsweep.frames",
    "Frames": "robustsweep.frames",
    "load": "robustsweep.frames",
    "Evaluated": "robustsweep.live",
    "evaluate": "robustsweep.live",
    "run": "robustsweep.running",
    "UserError": "sweep.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'robustsweep' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
