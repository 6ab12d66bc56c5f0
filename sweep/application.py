"""The Typer application: options that commands share, and the messages and exit codes of errors.

Each command's function imports what it needs when it runs, so that help appears at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from gc import set_threshold
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from sweep.errors import FAILED, INTERRUPTED, MISTAKE, SweepEnded, UserError
from sweep.repeated import refuse_repeated

NOTHING_LOST = "stopped. Finished work is in the store; the same command goes on from there."
MESSAGE_CHARACTERS = 20_000


class Command(TyperCommand):
    """A command that refuses an option given twice."""

    def parse_args(self, context: Any, arguments: list[str]) -> list[str]:
        words = list(arguments)
        rest = super().parse_args(context, arguments)
        refuse_repeated(self, context, words)
        return rest


class Group(TyperGroup):
    """A group of commands with shared options, none of which may be given twice."""

    def parse_args(self, context: Any, arguments: list[str]) -> list[str]:
        words = list(arguments)
        rest = super().parse_args(context, arguments)
        refuse_repeated(self, context, words)
        return rest


class Application(typer.Typer):
    """A Typer application whose commands are of class `Command`."""

    def command(self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **options: Any) -> Any:
        return super().command(name, cls=cls or Command, **options)


class Commands(Group):
    """The group of all commands, which turns errors into messages and exit codes.

    Exit codes: 0 done, 1 something failed, 2 a user's mistake, 130 interrupted.
    """

    def list_commands(self, context: Any) -> list[str]:
        return sorted(super().list_commands(context))

    def invoke(self, context: Any) -> Any:
        try:
            result = super().invoke(context)
            sys.stdout.flush()
            return result
        except UserError as fault:
            _end(MISTAKE, f"error: {fault}")
        except SweepEnded as fault:
            _end(FAILED, f"error: {fault}")
        except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit from None
        except OSError as fault:
            where = f": {fault.filename}" if fault.filename else ""
            _end(MISTAKE, f"error: {fault.strerror or fault}{where}")
        except KeyboardInterrupt:
            _end(INTERRUPTED, f"\n{NOTHING_LOST}")


def _end(code: int, message: str) -> None:
    more = len(message) - MESSAGE_CHARACTERS
    if more > 0:
        message = f"{message[:MESSAGE_CHARACTERS]}\n… and {more:,} characters more"
    with contextlib.suppress(OSError):  # if even that cannot be written, the exit code still reports the error
        sys.stderr.write(f"{message}\n")
    raise typer.Exit(code)


def typer_application(cls: type[Group] = Group, **options: Any) -> typer.Typer:
    fixed: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}
    return Application(cls=cls, **fixed, **options)


app = typer_application(Commands, no_args_is_help=True)


@app.callback()
def sweep() -> None:
    """Run studies, from a YAML file to a paper's tables. Start with 'python -m sweep.run --help'."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit. Use the arguments of this process by default."""
    # A large study consists of many small, long-lived objects; scanning them for garbage took half of the run time.
    set_threshold(200_000, 50, 50)
    if threading.current_thread() is threading.main_thread():  # other threads cannot set signal handlers
        signal.signal(signal.SIGTERM, _interrupt)
    app(args=None if arguments is None else list(arguments), prog_name="sweep")


def _interrupt(kind: int, frame: Any) -> None:
    """Treat SIGTERM like Ctrl-C, with the same message and exit code, from the first moment on."""
    raise KeyboardInterrupt


StudyOption = Annotated[
    str, typer.Option("--study", help="A shipped study's name, a YAML file (my for my.yaml), or a name in the store.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="key=value on top of the study, e.g. train.epochs=2. Repeatable.")
]
MethodsOption = Annotated[str | None, typer.Option(help="Only these, comma-separated, e.g. at,sovr+awp.")]
SeedsOption = Annotated[str | None, typer.Option(help="Instead of the study's, e.g. 0,1 or 0-9.")]
PluginOption = Annotated[list[str] | None, typer.Option(help="A file with a method of your own. Repeatable.")]
StoreOption = Annotated[str, typer.Option(help="Folder, or s3://bucket/prefix?endpoint_override=…")]
DataOption = Annotated[str, typer.Option(help="Where data sets are, or are downloaded to.")]
AddressOption = Annotated[
    str | None, typer.Option(help="An existing Ray cluster (auto, or host:6379); otherwise this machine.")
]
BudgetOption = Annotated[
    str | None,
    typer.Option(help="Start nothing beyond this many device-hours of the study, all runs together, e.g. 500h."),
]
WaitOption = Annotated[
    float, typer.Option(min=1, help="Seconds that nodes of a cluster may take to answer or, if it scales, to come up.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, do nothing.")]
