"""`python -m sweep.retry`: try failed trials again."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sweep import application, commands, listing
from sweep.application import app


@app.command()
def retry(
    study: Annotated[str | None, typer.Option(help="Only this study's trials.")] = None,
    methods: application.MethodsOption = None,
    seeds: Annotated[str | None, typer.Option(help="Only these, e.g. 0,1 or 0-9.")] = None,
    store: application.StoreOption = "store",
    dry_run: application.DryOption = False,
) -> None:
    """Clear the failures of trials. The next run starts them again from their last checkpoint."""
    from sweep.store.opening import existing_store
    from sweep.trials.failed import failed_trials, set_free

    opened = existing_store(store)
    found = failed_trials(opened, study, methods, seeds)
    for one in found:
        sys.stdout.write(f"{'would retry' if dry_run else 'to be run again'}: {one.title} ({one.place})\n")
        if not dry_run:
            set_free(opened, one)
    sys.stdout.write(f"{listing.count(len(found), 'trial')} {'would be ' if dry_run else ''}set free\n")
    asking = {cell.trial for one in found for cell in one.cells}
    for name, manifest in opened.manifests().items():
        if any(cell.trial in asking for cell in manifest.cells):
            sys.stdout.write(f"to run them: {commands.run(name, manifest.command, opened.uri)}\n")


if __name__ == "__main__":
    application.main(["retry", *sys.argv[1:]])
