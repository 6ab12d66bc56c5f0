"""The command line. Every command loads what it needs when it runs: help and listings load neither torch nor ray."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from gc import set_threshold
from typing import Annotated, Any

import typer

from sweep import studies
from sweep.errors import UserError

INTERRUPTED = 130
NOTHING_LOST = "stopped. Finished work is in the store; the same command goes on from there."


def _studies() -> str:
    found = studies.titles()
    width = max(map(len, found))
    return "\n".join(f"  {name:<{width}}  {title}" for name, title in found.items())


# \b keeps the lines of the paragraph that follows as they are.
RUN_HELP = f"""Train, search, evaluate and report a study. What the store holds already is never computed again.

\b
Studies (or give a YAML file of your own):
{_studies()}

\b
Examples:
  sweep run
  sweep run --study cifar10_rn18 --dry-run
  sweep run --study cifar10_rn18 --methods at,sovr --seeds 0,1 --set train.epochs=2
  sweep run --plugin my_loss.py --methods at,my_loss
  sweep run --study cifar10_wrn --address auto --store s3://bucket/results --yes
"""

app = typer.Typer(
    name="sweep",
    help="From a study file to a paper's tables. Start with 'sweep run --help'.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Interrupted(Exception):
    """Ctrl-C inside a command, under a name that typer does not turn into 'Aborted!'."""


def command(**options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def register(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def guarded(*arguments: Any, **values: Any) -> None:
            try:
                function(*arguments, **values)
            except KeyboardInterrupt:
                raise Interrupted from None

        return app.command(**options)(guarded)

    return register


StudyOption = Annotated[str, typer.Option("--study", help="A shipped study's name, or a YAML file.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="key=value on top of the study, e.g. train.epochs=2. Repeatable.")
]
MethodsOption = Annotated[str | None, typer.Option(help="Only these, comma-separated, e.g. at,sovr+awp.")]
SeedsOption = Annotated[str | None, typer.Option(help="Instead of the study's, e.g. 0,1 or 0-9.")]
StoreOption = Annotated[str, typer.Option(help="Folder, or s3://bucket/prefix?endpoint_override=…")]
DataOption = Annotated[str, typer.Option(help="Where data sets are, or are downloaded to.")]
PluginOption = Annotated[list[str] | None, typer.Option(help="A file with a method of your own. Repeatable.")]
AddressOption = Annotated[
    str | None, typer.Option(help="An existing Ray cluster (auto, or host:6379); otherwise this machine.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="The listing as JSON, for programs.")]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, do nothing.")]


@command(help=RUN_HELP)
def run(
    study: StudyOption = "digits",
    settings: SetOption = None,
    methods: MethodsOption = None,
    seeds: SeedsOption = None,
    data_dir: DataOption = "data",
    store: StoreOption = "store",
    address: AddressOption = None,
    dry_run: DryOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed trials again.")] = False,
    budget: Annotated[str | None, typer.Option(help="Start nothing beyond this many device-hours, e.g. 500h.")] = None,
    plugin: PluginOption = None,
    out: Annotated[str, typer.Option(help="Folder for tables and figures.")] = "reports",
    logger: Annotated[
        str, typer.Option(help="Curves while it runs: tensorboard, wandb, mlflow or none.")
    ] = "tensorboard",
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what Ray and the trials print.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: as JSON, for programs.")] = False,
) -> None:
    from sweep import run as command

    chosen = command.load(study, settings, methods, seeds, plugin)
    if dry_run:
        command.show(chosen, store, retry_failed=retry_failed, as_json=as_json)
        return
    raise typer.Exit(
        command.run(
            chosen,
            store,
            data_dir=data_dir,
            address=address,
            yes=yes,
            retry_failed=retry_failed,
            budget=budget,
            out=out,
            loggers=[name.strip() for name in logger.split(",") if name.strip() not in ("", "none")],
            verbose=verbose,
        )
    )


@command()
def plan(
    study: StudyOption = "digits",
    settings: SetOption = None,
    methods: MethodsOption = None,
    seeds: SeedsOption = None,
    store: StoreOption = "store",
    address: AddressOption = None,
    budget: Annotated[str | None, typer.Option(help="Say whether it suffices, e.g. 500h.")] = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """List trials and what the rest costs. Device-hours, wall time and disk, after timing a few steps here."""
    from sweep import run as command

    chosen = command.load(study, settings, methods, seeds, plugin)
    command.show(chosen, store, as_json=as_json, cost={"address": address, "budget": budget})


@command()
def status(
    study: Annotated[str | None, typer.Option(help="Only this study; all in the store otherwise.")] = None,
    store: StoreOption = "store",
    as_json: JsonOption = False,
) -> None:
    """Show what is done, running and left. Per method and seed, from any shell at any time."""
    from sweep import status as command

    command.show(store, study, as_json=as_json)


@command()
def retry(
    study: Annotated[str | None, typer.Option(help="Only this study's trials.")] = None,
    methods: MethodsOption = None,
    seeds: Annotated[str | None, typer.Option(help="Only these, e.g. 0,1 or 0-9.")] = None,
    store: StoreOption = "store",
    dry_run: DryOption = False,
) -> None:
    """Forget that trials failed. The next run starts them again from their last checkpoint."""
    from sweep import upkeep

    upkeep.retry(store, study, methods, seeds, dry_run=dry_run)


@command()
def gc(
    store: StoreOption = "store",
    keep: Annotated[str, typer.Option(help="Checkpoints kept: selected (what tables show) or all.")] = "selected",
    dry_run: DryOption = False,
) -> None:
    """Delete what no table needs. Resume states of finished trials, unselected checkpoints, leftovers."""
    from sweep import upkeep

    upkeep.gc(store, keep=keep, dry_run=dry_run)


@command()
def merge(
    sources: Annotated[list[str], typer.Argument(help="Stores to take records from.")],
    store: Annotated[str, typer.Option(help="The store that gets them: folder, or s3://bucket/prefix.")] = "store",
    dry_run: DryOption = False,
) -> None:
    """Join the results of other stores. Conflicts are refused before anything is written."""
    from sweep import merge as merging

    merging.merge(store, sources, dry_run=dry_run)


# These parse their own arguments: they are modules that also run alone.
FORWARDED = {
    "evaluate": ("sweep.evaluate", [], "Evaluate a stored checkpoint with an attack or a suite."),
    "check": ("sweep.check", [], "Run the contract test on a method or a plug-in file."),
    "submit": ("sweep.submit", [], "Run a study on a cluster."),
    "report": ("reports.__main__", [], "Write tables, tests, figures and the page from a store."),
    "diff": ("reports.__main__", ["diff"], "Compare a store's numbers with the published ones, cell by cell."),
    "export": ("reports.__main__", ["export"], "Write records as CSV, and a trained model for others to use."),
}


def _forward(name: str, module: str, first: list[str], text: str) -> None:
    @command(
        name=name,
        help=f"{text} See 'sweep {name} --help'.",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    )
    def forwarded(context: typer.Context) -> None:
        sys.argv = ["sweep" if first else f"sweep {name}", *first, *context.args]
        raise typer.Exit(importlib.import_module(module).main() or 0)


for _name, (_module, _first, _text) in FORWARDED.items():
    _forward(_name, _module, _first, _text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 something failed, 2 a user's mistake, 130 interrupted."""
    # A large study is many small objects that all stay: looking through them for garbage took half of the time.
    set_threshold(200_000, 50, 50)
    try:
        app(args=None if arguments is None else list(arguments), prog_name="sweep")
    except UserError as fault:
        sys.stderr.write(f"error: {fault}\n")
        sys.exit(2)
    except PermissionError as fault:
        sys.stderr.write(f"error: {fault.strerror}: {fault.filename}\n")
        sys.exit(2)
    except (Interrupted, KeyboardInterrupt):
        sys.stderr.write(f"\n{NOTHING_LOST}\n")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        sys.stderr.close()
        sys.exit(0)


if __name__ == "__main__":
    main()
