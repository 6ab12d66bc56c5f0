"""`python -m sweep.decide`: add seeds for a claim until it is decided, by a test that allows repeated looks."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweep import application
from sweep.application import app
from sweep.commands import spelled, typed
from sweep.errors import UserError

if TYPE_CHECKING:
    from sweep.claim import Asked, Rules

HELP = """Add seeds until a claim is decided. By a test that stays valid whenever one looks.

Its level holds for a claim that was named before its first seeds were seen, not for the clearest of many.
Seeds come in one order, the study's own and then the smallest others, whatever --set seeds says.
Those that it adds stand under "Sequential claims", not in the tables' means and tests.

\b
Examples:
  python -m sweep.decide "sovr > at" --budget 2h
  python -m sweep.decide --study cifar10_rn18 "sovr > at + 1" --budget 500h --address auto
  python -m sweep.decide "st < at" --measure pgd-20 --set evaluation.attacks=[pgd-20]
  python -m sweep.decide --study digits --claims --budget 30min
"""


@app.command(help=HELP)
def decide(
    claim: Annotated[
        str | None, typer.Argument(help="Two labels and what is said of them, e.g. 'sovr > at' or 'sovr > at + 1'.")
    ] = None,
    study: Annotated[
        str | None,
        typer.Option("--study", help="Default: digits; with --claims, all shipped studies that the store holds."),
    ] = None,
    settings: application.SetOption = None,
    measure: Annotated[
        str | None, typer.Option(help="What is compared, e.g. clean or pgd-20. Default: autoattack.")
    ] = None,
    claims: Annotated[
        bool, typer.Option("--claims", help="All open claims of the paper about two labels, most promising first.")
    ] = False,
    against: Annotated[
        str | None, typer.Option("--against", help="With --claims: the paper, by name or folder.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Device-hours that this command may spend, whatever was used before it, e.g. 2h or 30min."),
    ] = None,
    alpha: Annotated[float, typer.Option(help="Share of wrong decisions allowed, for each claim.")] = 0.05,
    batch: Annotated[int, typer.Option(min=1, help="Seeds between two looks.")] = 2,
    max_seeds: Annotated[int, typer.Option(min=2, max=10_000, help="Seeds at most.")] = 50,
    data_dir: application.DataOption = "data",
    store: application.StoreOption = "store",
    address: application.AddressOption = None,
    plugin: application.PluginOption = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed trials again.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for tables and figures.")] = Path("reports"),
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what Ray and the trials print.")] = False,
) -> None:
    from reports.papers import load as load_paper
    from sweep import deciding
    from sweep.claim import Rules
    from sweep.engine.options import RunOptions
    from sweep.engine.run import write_tables
    from sweep.store.folder import make_folder
    from sweep.store.opening import open_store
    from sweep.studies.options import StudyOptions
    from sweep.trials.cost import budget_hours

    if (claim is None) is not claims:
        raise UserError("give either one claim, such as 'sovr > at', or --claims for those of the paper")
    rules = Rules(alpha, batch, max_seeds)
    limit = deciding.Budget(budget_hours(budget))
    opened, paper = open_store(store), load_paper(against)
    options = StudyOptions(study or "digits", settings, plugins=plugin)
    if claim is not None:
        asked = [deciding.ask(options, claim, measure, rules)]
    else:
        names = [study] if study else deciding.stored_studies(opened)
        asked = [
            one for name in names for one in deciding.ask_paper(replace(options, study=name), paper, opened, rules)
        ]
    make_folder(out)  # before hours of work, not after them
    run = RunOptions(
        address=address,
        data_dir=data_dir,
        yes=True,
        progress=sys.stderr.isatty() or verbose,
        retry_failed=retry_failed,
        out=None,
        loggers=(),
        verbose=verbose,
        command=spelled("sweep.decide", *(typed("decide") or ())),
    )
    going_well = deciding.settle(asked, opened, run, limit, rules, paper, typer.echo)
    decided = sum(one.seen is not None and one.seen.decided and not one.values.left_out for one in asked)
    if claims:
        typer.echo(f"{decided} of {len(asked)} open claims decided, each at alpha = {alpha:g}{_together(asked, rules)}")
    typer.echo(f"used {limit.used:.2f} device-hours; store: {opened.uri}")
    if opened.manifests():
        written = write_tables(opened, out, figures=True)
        typer.echo(f"written: {', '.join(str(path) for path in written if path.parent == out)}")
    if not going_well:
        raise typer.Exit(application.FAILED)


def _together(asked: list[Asked], rules: Rules) -> str:
    """Return what the error levels of several claims amount to, or an empty string for a single one."""
    if len(asked) < 2:
        return ""
    from sweep.claim import strictly_decided

    return (
        f": on average at most {len(asked) * rules.alpha:.2g} of them wrongly. Decided at alpha / {len(asked)} too, "
        f"a level for all of them together: {strictly_decided(asked, rules.alpha / len(asked))}"
    )


if __name__ == "__main__":
    application.main(["decide", *sys.argv[1:]])
