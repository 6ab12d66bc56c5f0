"""Commands of `python -m reports`: the report itself, `diff`, `explain`, `export`, `new-paper` and `site`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from sweep import application
from sweep.commands import spelled

app = application.typer_application()
application.app.add_typer(app, name="report")

StoreOption = Annotated[str | None, typer.Option("--store", help="Folder or s3:// address. Default: store.")]
StudiesOption = Annotated[
    list[str] | None, typer.Option("--study", help="Only this study; may be given several times. Default: all.")
]
AgainstOption = Annotated[
    str | None,
    typer.Option("--against", help="Paper to compare with: the name of a shipped one, or a folder like theirs."),
]
OutOption = Annotated[Path | None, typer.Option("--out", help="Output folder. Default: reports.")]


@dataclass(frozen=True)
class Shared:
    """Options that may stand before or after a subcommand."""

    store: str = "store"
    studies: list[str] | None = None
    out: Path | None = None
    against: str | None = None

    @classmethod
    def of(
        cls,
        context: typer.Context,
        store: str | None,
        studies: list[str] | None,
        out: Path | None,
        against: str | None = None,
    ) -> Shared:
        """Return the options of a command, completed by those typed before it. Studies are joined."""
        before = context.obj if isinstance(context.obj, Shared) else cls()
        named = list(dict.fromkeys([*(before.studies or []), *(studies or [])])) or None
        return cls(store or before.store, named, out or before.out, against or before.against)


@app.callback(invoke_without_command=True)
def report(
    context: typer.Context,
    store: StoreOption = None,
    study: StudiesOption = None,
    out: OutOption = None,
    against: AgainstOption = None,
    figures: Annotated[bool, typer.Option(help="Draw the figures and the page too.")] = True,
) -> None:
    """Write a store's tables and figures. Makes tables.md, tables.tex, tables.csv, numbers.tex, plots, report.html."""
    from reports import write_reports
    from reports.store.load import broken_manifests

    context.obj = shared = Shared.of(context, store, study, out, against)
    if context.invoked_subcommand is None:
        out = shared.out or Path("reports")
        for path in write_reports(shared.store, shared.studies, out, figures=figures, paper=shared.against):
            typer.echo(str(path))
        problems = broken_manifests(shared.store, shared.studies)
        for problem in problems:
            typer.echo(f"error: {problem.path}: {problem.reason}", err=True)
        if problems:
            raise typer.Exit(1)


@application.app.command()
@app.command()
def diff(
    context: typer.Context,
    store: StoreOption = None,
    study: StudiesOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for diff.md. Default: print it.")] = None,
    against: AgainstOption = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="Judge the numbers that the paper prints instead of ours.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show cells not run, every part of a claim, and the rules.")
    ] = False,
) -> None:
    """Compare our numbers with the published ones. Shows every difference, and a verdict on each claim."""
    from reports.analysis.results import Results
    from reports.comparison import brief_diff
    from reports.comparison.diff import text as difference_text
    from reports.comparison.diff import text_in_print
    from reports.papers import load as load_paper

    shared = Shared.of(context, store, study, out, against)
    if paper:
        text = text_in_print(load_paper(shared.against))
    else:
        results = Results.read(shared.store, shared.studies, shared.against)
        text = difference_text(results) if everything else brief_diff.text(results)
    _print_or_write(text, shared.out, "diff.md")


@app.command()
def explain(
    context: typer.Context,
    cell: Annotated[str, typer.Argument(help="e.g. digits/sovr/autoattack, or table1/cifar10_rn18/sovr.")],
    store: StoreOption = None,
    study: StudiesOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for explain.md. Default: print it.")] = None,
    against: AgainstOption = None,
) -> None:
    """Explain why a cell differs from the paper's. Lists every differing setting with its measured effect."""
    shared = Shared.of(context, store, study, out, against)
    explain_cell(cell, shared.store, shared.studies, shared.out, shared.against)


def explain_cell(
    cell: str, store: str, studies: list[str] | None = None, out: Path | None = None, against: str | None = None
) -> None:
    """Print the explanation of one cell, or write it to explain.md in the folder `out`."""
    from reports.analysis.results import Results
    from reports.comparison.explanation.text import text as explanation

    _print_or_write(explanation(Results.read(store, studies, against), cell), out, "explain.md")


def _print_or_write(text: str, out: Path | None, name: str) -> None:
    """Print the text, or write it to `out/name` and print that path."""
    from sweep.store.files import write_text
    from sweep.store.folder import make_folder

    if out is None:
        typer.echo(text)
    else:
        make_folder(out)
        write_text(out / name, text)
        typer.echo(str(out / name))


@application.app.command()
@app.command()
def export(
    context: typer.Context,
    store: StoreOption = None,
    study: StudiesOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Output folder. Default: export.")] = None,
    label: Annotated[str | None, typer.Option(help="Also export this method's weights and RobustBench card.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the training. Default: the first that finished.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="last, best_test or best_validation. Default: the study's.")
    ] = None,
) -> None:
    """Write all results as Parquet and CSV. With --label also that model's weights and its RobustBench card."""
    from reports.export import export as write_export

    shared = Shared.of(context, store, study, out)
    out, paper = shared.out or Path("export"), shared.against
    written = write_export(
        shared.store, shared.studies, out, label=label, seed=seed, checkpoint=checkpoint, paper=paper
    )
    for path in written:
        typer.echo(str(path))


@app.command()
def new_paper(
    name: Annotated[str, typer.Argument(help="Name of the paper and of its folder, e.g. trades2019.")],
    folder: Annotated[Path, typer.Option("--in", help="Folder in which to create it.")] = Path(),
) -> None:
    """Write a skeleton for a paper to compare with. It has one table and one claim; see docs/PAPERS.md."""
    from reports.papers import load as load_paper
    from reports.papers.skeleton import write_skeleton

    for path in write_skeleton(name, folder):
        typer.echo(str(path))
    load_paper(folder / name)
    typer.echo(f"fill it in, then name it in a study: papers: [{folder / name}]")
    typer.echo(f"or for one report: {spelled('reports', '--against', str(folder / name))}")


@application.app.command()
@app.command()
def site(
    context: typer.Context,
    stores: Annotated[list[str] | None, typer.Argument(help="Folders or s3:// addresses. Default: store.")] = None,
    study: StudiesOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Output folder. Default: site.")] = None,
    against: AgainstOption = None,
) -> None:
    """Write a static site of one or more stores. It has an index and, for each study, a page and downloads."""
    from reports.site.site import write_site

    shared = Shared.of(context, None, study, out, against)
    for path in write_site(stores or [shared.store], shared.out or Path("site"), shared.studies, shared.against):
        typer.echo(str(path))


if __name__ == "__main__":
    application.main(["report", *sys.argv[1:]])
