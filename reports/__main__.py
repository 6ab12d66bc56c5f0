"""`python -m reports`: tables, tests, figures and the page from the store; `diff` and `export` beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweep.errors import UserError

app = typer.Typer(
    help="Tables, tests, figures and one page, made from the records in the store.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

StoreOption = Annotated[str, typer.Option("--store", help="Folder or s3:// address with the records.")]
StudiesOption = Annotated[
    list[str] | None, typer.Option("--study", help="Only this study; may be given several times. Default: all.")
]
AgainstOption = Annotated[
    str | None,
    typer.Option("--against", help="The paper to compare with: a shipped one's name, or a folder like theirs."),
]
OutOption = Annotated[Path | None, typer.Option("--out", help="Folder for what is written. Default: reports.")]


@app.callback(invoke_without_command=True)
def report(
    context: typer.Context,
    store: StoreOption = "store",
    study: StudiesOption = None,
    out: OutOption = None,
    against: AgainstOption = None,
    figures: Annotated[bool, typer.Option(help="Draw the figures and the page too.")] = True,
) -> None:
    """Write tables.md, tables.tex, tables.csv, numbers.tex, the figures and report.html."""
    if context.invoked_subcommand is not None:
        context.obj = {"store": store, "study": study, "out": out, "against": against}
        return
    from reports import write_reports

    for path in write_reports(store, study, out or Path("reports"), figures=figures, paper=against):
        typer.echo(str(path))


@app.command()
def diff(
    context: typer.Context,
    store: StoreOption = "",
    study: StudiesOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write diff.md there instead of printing it.")] = None,
    against: AgainstOption = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="Judge the paper's own printed numbers instead of ours.")
    ] = False,
) -> None:
    """Every cell as paper / ours / difference / within noise, and each claim of the paper with a verdict."""
    from reports.diff import text as difference_text
    from reports.diff import text_in_print
    from reports.papers import load as load_paper
    from reports.results import Results
    from sweep.store.folder import make_folder

    above = context.obj
    out, against = out or above["out"], against or above["against"]
    if paper:
        text = text_in_print(load_paper(against))
    else:
        text = difference_text(Results.read(store or above["store"], study or above["study"], against))
    if out is None:
        typer.echo(text)
    else:
        make_folder(out)
        (out / "diff.md").write_text(text, encoding="utf-8")
        typer.echo(str(out / "diff.md"))


@app.command()
def export(
    context: typer.Context,
    store: StoreOption = "",
    study: StudiesOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the files. Default: export.")] = None,
    label: Annotated[str | None, typer.Option(help="Also export this method's weights and RobustBench card.")] = None,
    seed: Annotated[int | None, typer.Option(help="Which of its trainings; default: the first that is done.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="last, best_test or best_validation; default: the study's.")
    ] = None,
) -> None:
    """All results as one Parquet and CSV file; for a chosen cell its weights and a RobustBench model card."""
    from reports.export import export as write_export

    above = context.obj
    out = out or above["out"] or Path("export")
    chosen = {"label": label, "seed": seed, "checkpoint": checkpoint, "paper": above["against"]}
    for path in write_export(store or above["store"], study or above["study"], out, **chosen):
        typer.echo(str(path))


def main() -> None:
    try:
        app(standalone_mode=True)
    except UserError as fault:
        typer.echo(f"error: {fault}", err=True)
        raise SystemExit(2) from None
    except OSError as fault:  # where files are written: no right to, no space, a folder of that name
        typer.echo(f"error: {fault.strerror or fault}: {fault.filename or 'cannot go on'}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
