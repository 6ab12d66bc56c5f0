"""`python -m sweep.check NAME`: whether a method keeps the promises that every table relies on, in plain words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sweep import application
from sweep.application import app
from sweep.errors import UserError


@app.command()
def check(
    name: Annotated[str, typer.Argument(help="A method such as sovr, sovr+awp, my_loss or my_loss.py.")],
    plugin: Annotated[Path | None, typer.Option(help="The file that defines it; ./NAME.py is found by itself.")] = None,
) -> None:
    """Run the contract test on a method or a plug-in file. Exit 0: all promises kept, 1: some broken."""
    from trainers import contract

    method = _loaded(name, plugin)
    broken = kept = 0
    typer.echo(f"{method}:")
    for finding in contract.examine(method):
        if finding.fault is None:
            kept += 1
            typer.echo(f"  ok      {finding.promise}")
        else:
            broken += 1
            typer.echo(f"  BROKEN  {finding.promise}: {finding.fault}")
    verdict = f"{kept} promises kept" if not broken else f"{broken} of {kept + broken} promises broken"
    typer.echo(f"{method}: {verdict}")
    raise typer.Exit(application.FAILED if broken else 0)


def _loaded(name: str, plugin: Path | None) -> str:
    """The method's name, after its file was loaded where there is one."""
    from trainers import composition, registry

    base, *wrappers = name.split("+")
    try:
        if plugin is None and base not in composition.method_names():
            beside = Path(base if base.endswith(".py") else f"{base}.py")
            if beside.is_file() or base.endswith(".py"):
                plugin, base = beside, beside.stem
        if plugin is not None and (loaded := registry.load_plugin(plugin)) != base:
            raise ValueError(f"{plugin} defines the method {loaded!r}, not {base!r}; a method is named after its file")
        return composition.canonical("+".join((base, *wrappers)))
    except ValueError as fault:
        raise UserError(str(fault)) from None


if __name__ == "__main__":
    application.main(["check", *sys.argv[1:]])
