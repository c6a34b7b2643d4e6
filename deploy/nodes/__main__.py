"""The command `python -m deploy.nodes`: several nodes on this machine behind one Envoy, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from pydantic import ValidationError

from deploy.nodes.cluster import Cluster, ClusterError
from serving.settings import Settings


class _Ended(Exception):  # noqa: N818  not an error
    """SIGTERM has arrived."""


def main(
    nodes: Annotated[int, typer.Option(min=1, max=60, help="How many nodes.")] = 3,
    folder: Annotated[Path, typer.Option(help="For their logs.")] = Path(".runtime/nodes"),
    networks: Annotated[
        bool | None,
        typer.Option("--networks/--ports", help="Give each a network of its own; by default where root may."),
    ] = None,
) -> None:
    """Serve the model repository on several nodes; PETROV_* settings hold for all, addresses and ports for Envoy."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise _Ended

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    try:
        settings = Settings.model_validate({})
        with Cluster(settings, folder, nodes, networks=networks, reports=typer.echo) as cluster:
            typer.echo(f"Ready: {settings.url}; Envoy's figures are at http://127.0.0.1:{cluster.front.admin_port}")
            signal.pause()
    except _Ended:
        pass
    except (ClusterError, ValidationError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
