"""`python -m sweep.status`: show what is done, running, failed and remaining. It only reads the store."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from sweep import application
from sweep.application import app


@app.command()
def status(
    study: Annotated[str | None, typer.Option(help="Only this study; all in the store otherwise.")] = None,
    store: application.StoreOption = "store",
    as_json: application.JsonOption = False,
) -> None:
    """Show what is done, running and remaining. Per method and seed, from any shell at any time."""
    from sweep.bulk import no_collection

    with no_collection():
        _show(study, store, as_json)


def _show(study: str | None, store: str, as_json: bool) -> None:
    from sweep.store.encoding import BrokenRecord
    from sweep.store.older import older_note
    from sweep.store.opening import existing_store
    from sweep.trials.standing import standings

    opened = existing_store(store)
    broken: list[BrokenRecord] = []
    looks = opened.trial_looks()
    found = standings(opened, study, broken.append, looks)
    if broken and not found:
        raise broken[0]
    note = older_note(opened, looks.values())
    if note:
        sys.stderr.write(f"{note}\n")
    for fault in broken:
        sys.stderr.write(f"warning: {fault}\n")
    if as_json:
        text = json.dumps([one.facts() for one in found], indent=1)
    else:
        text = "\n\n".join(one.text() for one in found) or f"store {opened.uri} holds no study yet"
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    application.main(["status", *sys.argv[1:]])
