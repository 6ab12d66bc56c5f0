"""`python -m sweep.merge`: join the results of several stores."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sweep import application, listing
from sweep.application import app
from sweep.errors import UserError


@app.command()
def merge(
    sources: Annotated[list[str], typer.Argument(help="Stores to take records from.")],
    store: Annotated[str, typer.Option(help="The store that gets them: folder, or s3://bucket/prefix.")] = "store",
    leave_out: Annotated[
        str,
        typer.Option(help="What stays behind: weights, logs, journals, counterexamples, diagnostics, commands."),
    ] = "",
    dry_run: application.DryOption = False,
) -> None:
    """Join the results of other stores. Conflicts are refused before anything is written."""
    from sweep.store.merging import Merge
    from sweep.store.opening import existing_store, open_store
    from sweep.store.publishing import LEAVABLE

    left = [name.strip() for name in leave_out.split(",") if name.strip()]
    for name in left:
        if name not in LEAVABLE:
            raise UserError(f"--leave-out {name}: must be one of: {', '.join(LEAVABLE)}")
    merging = Merge(open_store(store), [existing_store(source) for source in sources], left)
    for warning in merging.warnings:
        sys.stderr.write(f"warning: {warning}\n")
    if not dry_run:
        merging.write()
    total, stores = listing.count(len(merging.new), "record"), listing.count(len(sources), "store")
    verb = "would merge" if dry_run else "merged"
    sys.stdout.write(f"{verb} {total} from {stores} into {merging.target.uri}\n")


if __name__ == "__main__":
    application.main(["merge", *sys.argv[1:]])
