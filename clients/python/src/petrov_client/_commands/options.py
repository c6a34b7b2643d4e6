"""The options and arguments that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from petrov_client._values.quality import Outside

GATEWAY = "http://127.0.0.1:8080"
Url = Annotated[
    str,
    typer.Option(
        envvar="PETROV_URL",
        help="The address of the service: http(s)://HOST:PORT of the gateway, or grpc://HOST:PORT of its gRPC port.",
    ),
]
Timeout = Annotated[float, typer.Option(help="Seconds for each request, its repetitions included.")]
Name = Annotated[str, typer.Argument(help="A model of the list that `petrov models` prints.")]
Version = Annotated[int | None, typer.Option(min=1, help="A version of the model; the newest by default.")]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        "-p",
        metavar="NAME=NUMBER",
        help="A parameter of the model, the same for all fields; repeat the option to set several.",
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        help="The largest error bound. A field with a larger one is computed again with more iterations, then by the "
        "classical solver, and refused where neither meets it."
    ),
]
OutsideOption = Annotated[
    Outside,
    typer.Option(
        metavar="CHOICE",
        help="What happens to a field that is unlike the training data: answer (predict it like any other), solve (use "
        "the classical solver) or refuse.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def numbers_of(options: list[str] | None) -> dict[str, float]:
    """Return the parameters of the command line by name.

    Raises:
        BadParameter: One is not NAME=NUMBER.
    """
    numbers = {}
    for option in options or ():
        name, _, number = option.partition("=")
        try:
            numbers[name.strip()] = float(number)
        except ValueError as error:
            raise typer.BadParameter(f"expected NAME=NUMBER but got {option}", param_hint="--parameter") from error
    return numbers
