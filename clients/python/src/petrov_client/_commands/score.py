"""`petrov score`: predictions for a file of any length."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from petrov_client._async_client import IN_FLIGHT
from petrov_client._commands.options import GATEWAY, Name, OutsideOption, Parameters, Tolerance, Version, numbers_of
from petrov_client._files import quality_columns
from petrov_client._score import PATIENCE_SECONDS
from petrov_client._score import score as score_file
from petrov_client._wire.retry import TIMEOUT_SECONDS


def score(
    model: Name,
    source: Annotated[Path, typer.Argument(metavar="IN", help="Batches of any length: .h5, .npz or .npy.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", dir_okay=False, help="The output file: .h5.")],
    url: Annotated[
        list[str] | None,
        typer.Option(envvar="PETROV_URL", help="A gateway, http(s)://HOST:PORT; repeat the option to use several."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="The dataset of IN, for a model that requires one input, or the group that holds the datasets."
        ),
    ] = None,
    parameter: Parameters = None,
    tolerance: Tolerance = None,
    outside: OutsideOption = "answer",
    in_flight: Annotated[int, typer.Option(min=1, help="Requests in flight per gateway.")] = IN_FLIGHT,
    version: Version = None,
    timeout: Annotated[float, typer.Option(help="Seconds for each request.")] = TIMEOUT_SECONDS,
    patience: Annotated[
        float, typer.Option(help="Seconds without a response from any gateway before the command fails.")
    ] = PATIENCE_SECONDS,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
) -> None:
    r"""Predict the outputs for a file of any length, and write them to OUT; the same command resumes.

    The datasets of IN have the names of the model's inputs and parameters,
    and the axes \[sample, ...], parameters \[sample]; those of OUT have the
    names of the outputs. A model that requires one input reads the only
    dataset of a file under any name.

    Memory holds a few requests per gateway. A gateway that is overloaded or
    gone is used again later, and the others take its share. Until OUT is
    complete it is called OUT.partial: after a kill or a power cut the same
    command resumes, and the complete file has the same bytes.

    Example: petrov score darcy fields.h5 pressures.h5 --url http://one:8080
    --url http://two:8080

    Example: petrov score heat simulations.h5 temperatures.h5 --dataset test
    """
    done = score_file(
        model,
        source,
        target,
        url or [GATEWAY],
        dataset=dataset,
        parameters=numbers_of(parameter),
        tolerance=tolerance,
        outside=outside,
        version=version,
        in_flight=in_flight,
        api_key=os.environ.get("PETROV_API_KEY"),
        timeout=timeout,
        patience=patience,
        progress=progress,
    )
    earlier = done.count - done.computed
    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in done.shapes.items())
    typer.echo(f"{shapes} -> {target}" + (f" ({earlier} computed earlier)" if earlier else ""))
    if done.quality:
        typer.echo(quality_columns.sentence(done.quality))
