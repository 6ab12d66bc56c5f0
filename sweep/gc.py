"""`python -m sweep.gc`: delete what no table needs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sweep import application, listing
from sweep.application import app
from sweep.errors import UserError

if TYPE_CHECKING:
    from sweep.store.base import Entry


@app.command()
def gc(
    store: application.StoreOption = "store",
    keep: Annotated[str, typer.Option(help="Checkpoints kept: selected (what tables show) or all.")] = "selected",
    broken: Annotated[bool, typer.Option("--broken", help="Also broken records that were set aside.")] = False,
    replaced: Annotated[
        bool, typer.Option("--replaced", help="Also models of columns that a later run replaced by other settings.")
    ] = False,
    dry_run: application.DryOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
) -> None:
    """Delete what no table needs. Resume states of finished trials, unselected checkpoints, leftovers.

    Checkpoints are kept for an hour after they are written, and while other stores are being merged into this one.
    Nothing is deleted through a folder that is a link.
    """
    from sweep.store.leftovers import delete, left_alone, leftovers, merges
    from sweep.store.opening import existing_store
    from sweep.store.replaced import REPLACED

    if keep not in ("selected", "all"):
        raise UserError(f"--keep {keep}: must be one of: selected, all")
    if replaced and keep == "all":
        raise UserError("--keep all keeps the models that --replaced would delete; leave one of them out")
    opened = existing_store(store)
    for line in left_alone(opened, broken):
        sys.stdout.write(f"{line}\n")
    young: list[Entry] = []
    found = leftovers(opened, all_checkpoints=keep == "all", broken=broken, young=young)
    for who in merges(opened):
        sys.stdout.write(f"left alone: checkpoints, while {who} merges other stores into this one\n")
    if young:
        size = listing.size(sum(entry.size for entry in young))
        sys.stdout.write(
            f"left alone: {listing.count(len(young), 'file')}, {size}, of trials that ended less than an hour ago\n"
        )
    once_selected = {reason: entries for reason, entries in found.items() if reason.startswith(REPLACED)}
    if once_selected and not replaced:
        found = {reason: entries for reason, entries in found.items() if reason not in once_selected}
        models = [entry for entries in once_selected.values() for entry in entries]
        held = listing.size(sum(entry.size for entry in models))
        sys.stdout.write(
            f"kept: {listing.count(len(models), 'model')} of replaced columns ({held}); --replaced offers them\n"
        )
    for reason, entries in found.items():
        size = listing.size(sum(entry.size for entry in entries))
        sys.stdout.write(f"{reason}: {listing.count(len(entries), 'file')}, {size}\n")
    every = [entry for entries in found.values() for entry in entries]
    total = sum(entry.size for entry in every)
    if every and not dry_run:
        if not yes:
            _confirm(f"Delete {listing.count(len(every), 'file')} ({listing.size(total)}) from {opened.uri}? [y/N] ")
        delete(opened, found)
    sys.stdout.write(f"{'would free' if dry_run else 'freed'} {listing.size(total)} ({total} bytes)\n")


def _confirm(question: str) -> None:
    """Ask for a confirmation. Scripts cannot answer and pass --yes instead."""
    sys.stdout.write(question)
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError("nothing was deleted; --yes asks nothing, --dry-run only lists")


if __name__ == "__main__":
    application.main(["gc", *sys.argv[1:]])
