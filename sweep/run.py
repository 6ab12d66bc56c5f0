"""`python -m sweep.run`: take a study from its file to its tables, or list with --dry-run what that requires."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sweep import application, studies
from sweep.application import app
from sweep.errors import UserError


def _studies() -> str:
    found = studies.titles()
    width = max(map(len, found))
    return "\n".join(f"  {name:<{width}}  {title}" for name, title in found.items())


# \b keeps the line breaks of the paragraph that follows.
HELP = f"""Train, search, evaluate and report a study. What the store holds already is never computed again.

\b
Studies (or give a YAML file of your own):
{_studies()}

\b
Examples:
  python -m sweep.run
  python -m sweep.run --study cifar10_rn18 --dry-run
  python -m sweep.run --study cifar10_rn18 --methods at,sovr --seeds 0,1 --set train.epochs=2
  python -m sweep.run --plugin my_loss.py --methods at,my_loss
  python -m sweep.run --study cifar10_wrn --address auto --store s3://bucket/results --yes
"""


@app.command(help=HELP)
def run(
    study: application.StudyOption = "digits",
    settings: application.SetOption = None,
    methods: application.MethodsOption = None,
    seeds: application.SeedsOption = None,
    data_dir: application.DataOption = "data",
    store: application.StoreOption = "store",
    address: application.AddressOption = None,
    dry_run: application.DryOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed trials again.")] = False,
    budget: application.BudgetOption = None,
    plugin: application.PluginOption = None,
    out: Annotated[Path, typer.Option(help="Folder for tables and figures.")] = Path("reports"),
    logger: Annotated[
        str, typer.Option(help="Curves while it runs: tensorboard, wandb, mlflow or none.")
    ] = "tensorboard",
    wait_for_nodes: application.WaitOption = 300.0,
    local: Annotated[
        bool, typer.Option("--local", help="Without Ray, one trial after the other in this process, to debug one.")
    ] = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Show Ray's dashboard of this machine, on 127.0.0.1 only.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what Ray and the trials print.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: as JSON, for programs.")] = False,
) -> None:
    if as_json and not dry_run:
        raise UserError("--json goes with --dry-run: add that, or read results with 'python -m sweep.status --json'")
    from sweep.bulk import no_collection
    from sweep.engine.checks import check_run
    from sweep.engine.options import RunOptions
    from sweep.store.opening import open_store
    from sweep.studies.options import StudyOptions

    options = RunOptions(
        address=address,
        data_dir=data_dir,
        yes=yes,
        budget=budget,
        retry_failed=retry_failed,
        out=out,
        loggers=tuple(name.strip() for name in logger.split(",") if name.strip() not in ("", "none")),
        verbose=verbose,
        local=local,
        dashboard=dashboard,
        wait_for_nodes=wait_for_nodes,
    )
    with no_collection():
        chosen = StudyOptions(study, settings, methods, seeds, plugin, store).load()
        opened = open_store(store)
        check_run(chosen, options)
        if dry_run:
            from sweep.trials.cells import stored_cells
            from sweep.trials.outlook import outlook
            from sweep.trials.replacing import replacements

            found = outlook(chosen, opened, stored_cells(chosen, opened), retry_failed=retry_failed)
            lines = [found.json()] if as_json else [found.text(chosen), *replacements(chosen, opened)]
            sys.stdout.write("\n".join(lines) + "\n")
            return
    from sweep.engine.run import run_study

    if not run_study(chosen, opened, options).complete:
        raise typer.Exit(application.FAILED)


if __name__ == "__main__":
    application.main(["run", *sys.argv[1:]])
