"""`python -m sweep.new my_mnist.yaml --dataset mnist --methods at,trades`: write a commented study, ready to run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sweep import application
from sweep.application import app
from sweep.errors import UserError


@app.command()
def new(
    file: Annotated[Path, typer.Argument(help="The study to write, e.g. my_mnist.yaml.")],
    dataset: Annotated[
        str, typer.Option(help="By name, e.g. mnist, or your own: folder:PATH, npz:PATH, my_data.py:load.")
    ] = "digits",
    methods: Annotated[str, typer.Option(help="Comma-separated, e.g. at,trades or sovr+awp.")] = "at,trades",
    model: Annotated[
        str | None, typer.Option(help="By name, or your own: my_net.py:build; one that fits the images if absent.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of each training.")] = None,
    seeds: Annotated[str, typer.Option(help="E.g. 0,1 or 0-9.")] = "0-2",
    plugin: application.PluginOption = None,
) -> None:
    """Write a study of your own to start from. Every value is spelled out and explained; the study runs as it is."""
    from sweep.commands import option_words, spelled
    from sweep.store.files import write_text
    from sweep.studies.model import Study
    from sweep.studies.options import parse_names, parse_seeds
    from sweep.studies.skeleton import skeleton

    if file.suffix not in (".yaml", ".yml"):
        raise UserError(f"{file}: a study is a YAML file; write {file}.yaml")
    if file.exists():
        raise UserError(f"{file} is there already; give another name, or delete it first")
    words = option_words(study=str(file), plugin=plugin)
    text = skeleton(file, dataset, parse_names(methods), model, epochs, parse_seeds(seeds), plugin or ())
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, text)
    Study.load(file, plugins=plugin or ())
    typer.echo(f"written: {file}")
    typer.echo(f"what it takes: {spelled('sweep.plan', *words)}")
    typer.echo(f"run it: {spelled('sweep.run', *words)}")


if __name__ == "__main__":
    application.main(["new", *sys.argv[1:]])
