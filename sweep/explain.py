"""`python -m sweep.explain train.attack`: explain a key of a study, or why a table cell differs from the paper's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sweep import application
from sweep.application import app


@app.command()
def explain(
    what: Annotated[
        str | None,
        typer.Argument(help="A key such as train.attack, a method, or a cell such as digits/sovr/autoattack."),
    ] = None,
    json_schema: Annotated[bool, typer.Option("--json-schema", help="All keys, for editors that check YAML.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="All keys as the file STUDY.md.")] = False,
    store: Annotated[str, typer.Option(help="Of a cell: folder or s3:// address.")] = "store",
    study: Annotated[list[str] | None, typer.Option(help="Of a cell: only this study. Repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="Of a cell: write explain.md there.")] = None,
    against: Annotated[str | None, typer.Option(help="Of a cell: the paper to compare with.")] = None,
) -> None:
    """Explain a key of a study, or a cell of a table. Type, default, meaning and example; lists all keys by default."""
    if what is not None and "/" in what:
        from reports.__main__ import explain_cell

        explain_cell(what, store, study, out, against)
    elif json_schema:
        from sweep.studies.schema import json_schema as schema

        sys.stdout.write(schema())
    else:
        from sweep.studies import reference

        sys.stdout.write(reference.markdown() if markdown else "\n".join(reference.lines(what)) + "\n")


if __name__ == "__main__":
    application.main(["explain", *sys.argv[1:]])
