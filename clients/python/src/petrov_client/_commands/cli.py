"""The command line `petrov`: its commands, and how a fault ends them.

A fault ends the command with one line on standard error and an exit code for scripts:

    0  done
    2  wrong usage, or a wrong local file
    3  the service refused the request         (RequestError)
    4  the service failed or had no time       (ServiceError)
    5  no usable response arrived              (TransportError)
"""

from __future__ import annotations

import io
import re
import sys
import warnings
from importlib.metadata import version as installed
from typing import Annotated

import typer

from petrov_client._commands.predict import invert, predict, reference, score
from petrov_client._commands.rollout import rollout
from petrov_client._commands.show import example, model, models
from petrov_client._errors import ConnectionFailed, PetrovError, RequestError, ServiceError

ELSEWHERE = ": does a service run there? --url or PETROV_URL names another address"
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Predict with the models of a Petrov service: solutions of differential equations, and labels of texts.\n\n"
    "Begin with [bold]petrov models[/], which lists the models of the service, and [bold]petrov model darcy[/], which "
    "describes one of them. [bold]petrov example darcy permeability.npy[/] writes an input to try. "
    "Then [bold]petrov predict darcy permeability.npy pressure.npy[/] computes a file, "
    "[bold]petrov predict heat in.npz out.npz[/] one with several arrays, and [bold]petrov score[/] a file of any "
    "length, with several gateways. "
    "The environment variable PETROV_URL holds the address of the service, and PETROV_API_KEY the key if it needs one.",
    epilog="Exit codes: 0 done, 2 wrong usage or file, 3 refused by the service, 4 failed by it, 5 no usable response.",
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"petrov-client {installed('petrov-client')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Define the options of the command itself; `--version` acts in its callback."""
    del version


for command in (models, model, example, predict, rollout, reference, invert, score):
    app.command()(command)


def _line(message: Warning | str, *_: object, **__: object) -> str:
    """Return what a warning says as a line, without the code that it comes from."""
    return f"petrov: {message}\n"


def run() -> None:
    """Run the command line, print warnings as lines of its own, and end a fault with one line and an exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # Greek letters of a card, or a name of a file that is no UTF-8
        sys.stdout.reconfigure(errors="backslashreplace")
    usual, warnings.formatwarning = warnings.formatwarning, _line
    try:
        app(prog_name="petrov")
    except PetrovError as fault:
        code = 3 if isinstance(fault, RequestError) else 4 if isinstance(fault, ServiceError) else 5
        refused = isinstance(fault, ConnectionFailed) and re.search("refused|attempts failed", str(fault))
        message = f"{fault}{ELSEWHERE if refused else ''}"
    except (OSError, ValueError, ModuleNotFoundError) as error:
        code, message = 2, str(error)
    finally:
        warnings.formatwarning = usual
    typer.echo(f"petrov: {' '.join(message.split())}", err=True)
    sys.exit(code)
