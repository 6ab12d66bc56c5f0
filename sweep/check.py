"""`python -m sweep.check NAME`: whether a method keeps the promises that every table relies on, in plain words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def check(
    name: Annotated[str, typer.Argument(help="A method such as sovr, sovr+awp, my_loss or my_loss.py.")],
    plugin: Annotated[Path | None, typer.Option(help="The file that defines it; ./NAME.py is found by itself.")] = None,
) -> None:
    """Runs the contract test on one method. Exit 0: all promises kept, 1: some broken, 2: it cannot be loaded."""
    try:
        broken = report(_loaded(name, plugin))
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(1 if broken else 0)


def _loaded(name: str, plugin: Path | None) -> str:
    """The method's name, after its file was loaded where there is one."""
    from trainers import composition, registry

    base, *wrappers = name.split("+")
    if plugin is None and base not in composition.method_names():
        beside = Path(base if base.endswith(".py") else f"{base}.py")
        if beside.is_file() or base.endswith(".py"):
            plugin = beside
            base = beside.stem
    if plugin is not None:
        loaded = registry.load_plugin(plugin)
        if loaded != base:
            raise ValueError(f"{plugin} defines the method {loaded!r}, not {base!r}; a method is named after its file")
    return composition.canonical("+".join((base, *wrappers)))


def report(name: str) -> int:
    """Prints every promise and whether it is kept; gives the number of broken ones."""
    from trainers import contract

    broken = kept = 0
    typer.echo(f"{name}:")
    for finding in contract.examine(name):
        if finding.fault is None:
            kept += 1
            typer.echo(f"  ok      {finding.promise}")
        else:
            broken += 1
            typer.echo(f"  BROKEN  {finding.promise}: {finding.fault}")
    verdict = f"{kept} promises kept" if not broken else f"{broken} of {kept + broken} promises broken"
    typer.echo(f"{name}: {verdict}")
    return broken


def main() -> None:
    app(prog_name=sys.argv[0] if sys.argv[0].startswith("sweep ") else "python -m sweep.check")


if __name__ == "__main__":
    main()
