"""The command line: its verbs, and how their errors are reported.

The modules beside this one hold the verbs, which only speak; the work is done elsewhere. Heavy imports wait
until a verb needs them.
Exit codes: 0 done; 2 a user error, reported in one line; 130 stopped by Ctrl-C, resumable.
"""

import os
import sys
from typing import Annotated, Any

import click
import typer

from fedmux.cli.auction import auction
from fedmux.cli.data import data_app
from fedmux.cli.explain import explain, methods
from fedmux.cli.failing import fail, refuse, refuse_own_code
from fedmux.cli.flower import flower_app
from fedmux.cli.report import report
from fedmux.cli.reproduce import reproduce
from fedmux.cli.show import list_runs, show
from fedmux.cli.train import compare, init, resume, run
from fedmux.cli.ui import ui
from fedmux.errors import FedmuxError, Interrupted

app = typer.Typer(
    name="fedmux",
    help="Train many unrelated models over one fleet of clients (multi-model federated learning).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click suggests them too
)
for verb in (init, run, resume, compare, show, list_runs, report, ui, explain, methods, auction, reproduce):
    app.command("list" if verb is list_runs else None)(verb)
app.add_typer(data_app, name="data")
app.add_typer(flower_app, name="flower")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"fedmux {version('fedmux')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Train many unrelated models over one fleet of clients (multi-model federated learning)."""


def _app() -> Any:
    try:
        return app(standalone_mode=False, prog_name="fedmux")
    except click.exceptions.NoArgsIsHelpError as bare:
        typer.echo(bare.format_message())


def main() -> None:
    """Entry point: every expected failure becomes one line and an exit code."""
    try:
        if _app() == 130:  # how typer reports Ctrl-C
            raise KeyboardInterrupt
    except FedmuxError as error:
        refuse(error)
    except Interrupted as stopped:
        fail(str(stopped), 130)
    except (KeyboardInterrupt, click.exceptions.Abort):
        fail(
            "stopped at once; a run that had begun continues from its last checkpoint: `fedmux resume RUN`",
            130,
        )
    except click.ClickException as error:
        fail(f"{error.format_message()} (see fedmux --help)", 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        fail(f"{error.filename or 'output'}: {error.strerror}", 2)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        if "out of memory" not in reason:  # torch has several kinds
            refuse_own_code(error)
            raise
        fail(
            f"{reason}: others may use the GPU too; a run that had begun continues from its last checkpoint: "
            "`fedmux resume RUN`",
            2,
        )
    except MemoryError as error:
        fail(f"out of memory ({error}); take fewer clients, less data or a smaller model", 2)
    except (Exception, SystemExit) as error:
        refuse_own_code(error)
        raise
