"""`petrov models`, `petrov model` and `petrov example`: what a service has, and an input to try."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from petrov_client._commands import labelled_texts, tables
from petrov_client._commands.connections import connected, connected_over_http
from petrov_client._commands.options import GATEWAY, AsJson, Name, Timeout, Url
from petrov_client._commands.reports import document, print_json, write_sample
from petrov_client._wire.retry import TIMEOUT_SECONDS


def models(as_json: AsJson = False, url: Url = GATEWAY, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """List the models that are ready: versions, inputs with their defaults, outputs, and sizes of the grid.

    Example: petrov models --url http://127.0.0.1:8080
    """
    with connected(url, timeout) as client:
        infos = client.models()
    if as_json:
        print_json([document(info) for info in infos])
    else:
        Console().print(tables.models(infos))


def model(
    name: Name,
    as_json: AsJson = False,
    url: Url = GATEWAY,
    timeout: Timeout = TIMEOUT_SECONDS,
) -> None:
    """Describe one model: its equation, its inputs, parameters and outputs, and its measured errors.

    The names in the tables are those of the arrays in a file for
    [bold]petrov predict[/]. The errors of the classical solver stand below
    those of the model. For a sequence model: its task, vocabulary, labels
    and accuracy.

    Example: petrov model darcy
    """
    with connected(url, timeout) as client:
        info = client.model(name)
    if as_json:
        print_json({**document(info), "card": info.card, "certificate": info.certificate})
    else:
        Console().print(tables.model(info))


def example(
    model: Name,
    target: Annotated[
        Path | None,
        typer.Argument(metavar="OUT", dir_okay=False, help="The file for the inputs: .npy, .npz or .h5."),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Argument(metavar="TRUTH", dir_okay=False, help="A file for the true outputs, where they are known."),
    ] = None,
    index: Annotated[
        int | None, typer.Option(min=0, help="A stored test sample, whose true outputs are known.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="A new sample of the training distribution.")] = None,
    grid: Annotated[int | None, typer.Option(min=1, help="Points per axis of a new sample.")] = None,
    url: Url = GATEWAY,
    timeout: Timeout = TIMEOUT_SECONDS,
) -> None:
    """Write an input of the model to OUT, for [bold]petrov predict[/].

    Without options it is a new sample, where the problem has a sampler, or the first stored test sample. For a sequence
    model OUT may be left out: the text and its label are printed.

    Example: petrov example darcy permeability.npy

    Example: petrov example heat in.npz truth.npz --index 2
    """
    with connected_over_http(url, timeout, "example") as client:
        info = client.model(model)
        if target is None and info.vocabulary is None:
            raise typer.BadParameter("expected a file for the inputs", param_hint="OUT")
        found = client.example(model, index, seed=seed, grid=grid)
    if target is None:
        typer.echo(labelled_texts.example(info, found))
        return
    write_sample(target, found.inputs, info.arguments)
    if truth is not None:
        if not found.outputs:
            raise ValueError("the true outputs of a new sample are not known: --index chooses one whose outputs are")
        write_sample(truth, found.outputs, info.outputs)
