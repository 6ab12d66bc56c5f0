"""`python -m sweep.plan`: list a study's trials, what is stored, and the cost of the rest."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Any

import typer

from sweep import application, studies
from sweep.application import app
from sweep.errors import UserError


@app.command()
def plan(
    study: application.StudyOption = "digits",
    settings: application.SetOption = None,
    methods: application.MethodsOption = None,
    seeds: application.SeedsOption = None,
    store: application.StoreOption = "store",
    address: application.AddressOption = None,
    budget: Annotated[str | None, typer.Option(help="Say whether it suffices, e.g. 500h.")] = None,
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Time a few steps here, or count passes alone.")
    ] = True,
    plugin: application.PluginOption = None,
    as_json: application.JsonOption = False,
) -> None:
    """List trials and the cost of the missing ones. Device-hours, wall time and disk, after timing a few steps here."""
    with contextlib.suppress(UserError):  # reported below
        studies.find(study)
        sys.stderr.write(f"{study}: reading the study and its store\n")
        sys.stderr.flush()
    from sweep.store.opening import open_store
    from sweep.studies.options import StudyOptions
    from sweep.trials.cells import stored_cells
    from sweep.trials.outlook import outlook

    chosen = StudyOptions(study, settings, methods, seeds, plugin, store).load()
    opened = open_store(store)
    cells = stored_cells(chosen, opened)
    found = outlook(chosen, opened, cells)
    if not as_json:
        sys.stdout.write(f"{found.text(chosen)}\n")
        sys.stdout.flush()
    sys.stderr.write("measuring for at most a minute\n" if measure else "counting\n")
    sys.stderr.flush()
    from sweep.planning import estimate  # after the checks: torch and Ray take seconds to load

    cost: dict[str, Any]
    if measure:
        cost = estimate.estimate(chosen, cells, opened, address=address, budget=budget)
        text = estimate.describe(cost)
    else:
        cost = estimate.counted(chosen, cells, opened)
        text = estimate.describe_counted(cost)
    sys.stdout.write(f"{found.json(cost=cost) if as_json else text}\n")


if __name__ == "__main__":
    application.main(["plan", *sys.argv[1:]])
