"""`python -m sweep.verify_store`: compare every checksum of a store, and set broken files aside on request."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sweep import application, listing
from sweep.application import app
from sweep.errors import FAILED

if TYPE_CHECKING:
    from sweep.store.verification import Finding, Verification

SHOWN = 50


@app.command("verify-store")
def verify_store(
    store: application.StoreOption = "store",
    repair: Annotated[
        bool, typer.Option("--repair", help="Set aside what is broken; the study's next run computes it again.")
    ] = False,
) -> None:
    """Check every checksum of a store. Records, weights, counterexamples; exit code 1 if anything is wrong."""
    from sweep.store.opening import existing_store
    from sweep.store.verification import Verification

    found = Verification(existing_store(store))
    lines = [listing.columns(("kind", "checked", "damaged", "missing"), found.rows())]
    if found.unselected:
        lines.append(f"{listing.count(len(found.unselected), 'checkpoint')} absent that no study selects: no damage")
    if found.newer:
        lines.append(f"{listing.count(len(found.newer), 'record')} of a later version, whose files were not checked")
    lines += [f"{'missing' if one.is_missing else 'damaged'}: {_title(one)}" for one in found.findings[:SHOWN]]
    if len(found.findings) > SHOWN:
        lines.append(f"… and {len(found.findings) - SHOWN:,} more")
    if not found.findings:
        lines.append(f"nothing is wrong with {found.store.uri}")
    elif not repair:
        lines.append("to set aside what is broken, so that it is computed again: the same command with --repair")
    sys.stdout.write("\n".join(lines) + "\n")
    if found.findings and repair:
        _repair(found)
    if found.findings:
        raise typer.Exit(FAILED)


def _title(finding: Finding) -> str:
    return finding.path if finding.is_missing else f"{finding.path}: {finding.reason}"


def _repair(found: Verification) -> None:
    from sweep.store.verification import COUNTEREXAMPLES

    repaired, refused = [], []
    for one in found.findings:
        try:
            for place in found.set_aside(one):
                sys.stdout.write(f"set aside: {place}\n")
        except OSError as fault:  # such as a bad sector: the others can still be set aside
            refused.append((one.path, fault))
        else:
            repaired.append(one)
    if refused and not repaired:  # nothing in the store can be changed: show one message, as every command does
        raise refused[0][1]
    for path, reason in refused:
        sys.stdout.write(f"could not be set aside: {path} ({reason.strerror or reason}); move it away by hand\n")
    commands = found.commands(repaired)
    if commands:
        sys.stdout.write("\n".join(["to compute it again:", *(f"  {command}" for command in commands)]) + "\n")
    if any(one.kind == COUNTEREXAMPLES for one in repaired):
        sys.stdout.write(
            "evaluations without their counterexamples keep their verdicts; sweep.verify cannot check them\n"
        )
    elif repaired and not commands:
        sys.stdout.write("no study in this store asks for it; running the one that made it computes it again\n")


if __name__ == "__main__":
    application.main(["verify-store", *sys.argv[1:]])
