"""`python -m sweep.check NAME`: check that a method or an attack keeps the promises that every table relies on."""

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
    name: Annotated[str, typer.Argument(help="A method such as sovr+awp or my_loss, or an attack.")],
    plugin: Annotated[Path | None, typer.Option(help="The file that defines it; ./NAME.py is found by itself.")] = None,
) -> None:
    """Run the contract test on a method, an attack or a plug-in file. Exit 0: all promises kept, 1: some broken."""
    from trainers.plugins import attack_contract, contract

    method, is_attack = _loaded(name, plugin)
    broken = kept = 0
    typer.echo(f"{method}:")
    for finding in attack_contract.examine(method) if is_attack else contract.examine(method):
        if finding.fault is None:
            kept += 1
            typer.echo(f"  ok      {finding.promise}")
        else:
            broken += 1
            typer.echo(f"  BROKEN  {finding.promise}: {finding.fault}")
    verdict = f"{kept} promises kept" if not broken else f"{broken} of {kept + broken} promises broken"
    typer.echo(f"{method}: {verdict}")
    raise typer.Exit(application.FAILED if broken else 0)


def _loaded(name: str, plugin: Path | None) -> tuple[str, bool]:
    """Load the plug-in if there is one. Return the canonical name and whether it is an attack's."""
    from trainers import attacks, composition
    from trainers.plugins import registry

    base, *wrappers = name.split("+")
    try:
        if plugin is None and base not in composition.method_names() and not _is_attack(name):
            beside = Path(base if base.endswith(".py") else f"{base}.py")
            if beside.is_file() or base.endswith(".py"):
                plugin, base = beside, beside.stem
        loaded = None if plugin is None else registry.load_plugin(plugin)
        if loaded in registry.ATTACKS.loaded:
            attack = loaded if name.endswith(".py") else name
            if attacks.parse(attack).kind != loaded:
                raise ValueError(f"{plugin} defines the attack {loaded!r}, but {name!r} is one of robustsweep's")
            return attack, True
        if loaded not in (None, base):
            raise ValueError(f"{plugin} defines the method {loaded!r}, not {base!r}; a method is named after its file")
        if loaded is None and _is_attack(name):
            return name, True
        return composition.canonical("+".join((base, *wrappers))), False
    except ValueError as fault:
        raise UserError(str(fault)) from None


def _is_attack(name: str) -> bool:
    from trainers import attacks

    try:
        attacks.parse(name)
    except ValueError:
        return False
    return True


if __name__ == "__main__":
    application.main(["check", *sys.argv[1:]])
