"""The exit codes of the command: one for every kind of fault, for scripts."""

from __future__ import annotations

import sys

import typer

from petrov_client._values.exceptions import PetrovError, RequestError, ServiceError

WRONG_USE, REFUSED, FAILED, UNREACHABLE = 2, 3, 4, 5


def end(error: Exception, code: int) -> None:
    """End the command with an error in one line."""
    typer.echo(f"petrov: {' '.join(str(error).split())}", err=True)
    sys.exit(code)


def code_of(fault: PetrovError) -> int:
    """Return the exit code of a fault."""
    if isinstance(fault, RequestError):
        return REFUSED
    return FAILED if isinstance(fault, ServiceError) else UNREACHABLE
