"""`python -m sweep.plan`: a study's trials, what of them is stored, and what the rest costs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sweep import application
from sweep.application import app


@app.command()
def plan(
    study: application.StudyOption = "digits",
    settings: application.SetOption = None,
    methods: application.MethodsOption = None,
    seeds: application.SeedsOption = None,
    store: application.StoreOption = "store",
    address: application.AddressOption = None,
    budget: Annotated[str | None, typer.Option(help="Say whether it suffices, e.g. 500h.")] = None,
    plugin: application.PluginOption = None,
    as_json: application.JsonOption = False,
) -> None:
    """List trials and what the rest costs. Device-hours, wall time and disk, after timing a few steps here."""
    from sweep.store.opening import open_store
    from sweep.studies.options import StudyOptions
    from sweep.trials.cells import stored_cells
    from sweep.trials.outlook import outlook

    chosen = StudyOptions(study, settings, methods, seeds, plugin, store).load()
    opened = open_store(store)
    cells = stored_cells(chosen, opened)
    from sweep.cluster import estimate  # after mistakes were found: torch and Ray take seconds to load

    found = outlook(chosen, opened, cells)
    cost = estimate.estimate(chosen, cells, opened, address=address, budget=budget)
    text = found.json(cost=cost) if as_json else f"{found.text(chosen)}\n{estimate.describe(cost)}"
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    application.main(["plan", *sys.argv[1:]])
