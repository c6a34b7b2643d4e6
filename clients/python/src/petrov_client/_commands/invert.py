"""`petrov invert`: an input of a model from measurements of its output at sensors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from petrov_client._commands.connections import connected_over_http
from petrov_client._commands.options import GATEWAY, Name, Timeout, Url
from petrov_client._commands.reports import report
from petrov_client._files import local
from petrov_client._wire import inversion
from petrov_client._wire.retry import TIMEOUT_SECONDS


def invert(
    model: Name,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN",
            exists=True,
            dir_okay=False,
            help="A .csv file with a line per sensor: row, column, value and, unless --noise is set, its noise. Rows "
            "and columns are positions in sides of the domain, from 0 to 1.",
        ),
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT", dir_okay=False, help="A .npz file.")],
    noise: Annotated[
        float | None, typer.Option(help="Standard deviation of all errors, in units of the values.")
    ] = None,
    prior: Annotated[str | None, typer.Option(help="log-normal or two-materials.")] = None,
    solver: Annotated[bool, typer.Option("--solver", help="Use the classical solver instead of the network.")] = False,
    points: Annotated[tuple[int, int] | None, typer.Option(metavar="ROWS COLUMNS", help="Grid of the model.")] = None,
    url: Url = GATEWAY,
    timeout: Timeout = TIMEOUT_SECONDS,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = False,
) -> None:
    """Infer an input of a model from its output at sensors, and write it with its uncertainty to OUT.

    Example: petrov invert darcy sensors.csv permeability.npz --noise 1e-4
    """
    local.check_output(target, frozenset({".npz"}))
    sensors = inversion.sensors(source, noise)
    with connected_over_http(url, timeout, "invert") as client:
        found = client.invert(
            model,
            *sensors,
            prior=None if prior is None else {"kind": prior},
            forward="solver" if solver else None,
            grid=points,
            progress=progress,
        )
    arrays = {**found.inputs, **{name: getattr(found, name) for name in (*inversion.FIELDS, *inversion.VECTORS)}}
    np.savez(target, **arrays)
    report(arrays, target)
    typer.echo(f"misfit {found.misfit:.2f} after {found.iterations} steps, {found.seconds:.1f} s")
