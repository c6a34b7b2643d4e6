"""The service's commands: `python -m serving` (Triton and gateway), `… gateway` (gateway alone), `… key` (an API key).

The end, after SIGTERM or Ctrl-C: readiness goes false, the gateway finishes what it has, then Triton drains.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
import uvicorn
import uvloop
from pydantic import ValidationError
from rich.console import Console

from serving.auth import key_file, keys
from serving.http.app import create_app
from serving.http.connection import configuration
from serving.observability import log, telemetry
from serving.settings import Settings
from serving.triton.client import TritonInference
from serving.triton.preflight import PreflightError, free
from serving.triton.server import TritonServer, TritonServerError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import FrameType

logger = logging.getLogger(__name__)
console = Console(stderr=True)
commands = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Host = Annotated[str | None, typer.Option(help="Address to listen on; else PETROV_HOST.", show_default=False)]
Port = Annotated[int | None, typer.Option(help="Port to listen on; else PETROV_PORT.", show_default=False)]
Triton = Annotated[
    str | None, typer.Option(help="HOST:PORT[,HOST:PORT…] of Triton's HTTP; else PETROV_TRITON.", show_default=False)
]
Scopes = Annotated[
    list[keys.Scope] | None, typer.Option(help="What it is for, may be given again; else infer.", show_default=False)
]
KeyFile = Annotated[
    Path | None, typer.Option(envvar="PETROV_KEYS", dir_okay=False, help="Where its hash is added.", show_default=False)
]


@commands.callback(invoke_without_command=True)
def serve(context: typer.Context, host: Host = None, port: Port = None) -> None:
    """Serve the model repository: a local Triton, and the gateway before it."""
    if context.invoked_subcommand is None:
        _run(_settings(host=host, port=port))


@commands.command()
def gateway(triton: Triton = None, host: Host = None, port: Port = None) -> None:
    """Serve through a Triton that runs elsewhere: the gateway alone."""
    settings = _settings(host=host, port=port, triton=triton)
    if settings.embedded:
        raise typer.BadParameter("expected HOST:PORT[,HOST:PORT…] of a running Triton", param_hint="--triton")
    _run(settings)


@commands.command()
def key(
    name: Annotated[str, typer.Argument(help="Whose key it is: in metrics, logs and refusals.")],
    scope: Scopes = None,
    rate: Annotated[float | None, typer.Option(help="Fields per second; else no limit.", show_default=False)] = None,
    burst: Annotated[int | None, typer.Option(help="Fields at once; else a second's.", show_default=False)] = None,
    file: KeyFile = None,
) -> None:
    """Make an API key: it is printed, this once, and its hash is added to the key file or, without one, shown."""
    try:
        secret, entry = keys.make(name, tuple(scope or [keys.Scope.INFER]), rate, burst)
        if file is not None:
            key_file.append(file, entry)
    except (keys.KeysError, OSError) as error:
        _fail(error)
    if file is None:
        console.print("Append this to the file that PETROV_KEYS names:\n")
        typer.echo(entry.text(), err=True)  # as it is, not wrapped
    typer.echo(secret)


class Gateway(uvicorn.Server):
    """The gateway's application on its port; it leaves in order, and hands the end on to its caller.

    Args:
        settings: The operator's choices.

    Raises:
        PreflightError: Its port is in use.
    """

    def __init__(self, settings: Settings) -> None:
        if not free(settings.host, settings.port):
            raise PreflightError(f"port {settings.port} is in use: set PETROV_PORT, or --port, to a free one")
        if settings.grpc_port and not free(settings.host, settings.grpc_port):
            raise PreflightError(f"port {settings.grpc_port} is in use: set PETROV_GRPC_PORT to a free one, or to 0")
        tritons = [TritonInference(address, settings.max_body_bytes) for address in settings.triton_addresses]
        app = create_app(settings, *tritons)
        super().__init__(configuration(app, settings))
        self.settings = settings
        self.state = app.state
        self.service = app.state.service
        self.loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signal handlers are called
        """On a signal. Uvicorn's own would raise the signal again at the end, before Triton has drained."""
        self.loop.call_soon_threadsafe(self.leave)

    def leave(self) -> None:
        """Readiness is false from now on; the last requests are taken `notice_seconds` later."""
        self.service.drain()
        self.loop.call_later(self.settings.notice_seconds, self._stop_listening)

    def _stop_listening(self) -> None:
        self.should_exit = True
        if self.state.grpc is not None:  # both sides finish side by side
            self.finishing = asyncio.create_task(self.state.grpc.stop())

    async def run_here(self) -> None:
        """Serves until told to leave."""
        announcing = asyncio.create_task(self._announce())
        try:
            await self.serve()
        finally:
            announcing.cancel()

    async def _announce(self) -> None:
        """Says where the service is, and then what it serves."""
        url = f"http://{self.settings.host}:{self.settings.port}"
        grpc = f" and speaks gRPC on port {self.settings.grpc_port}" if self.settings.grpc_port else ""
        while not self.started:  # noqa: ASYNC110 - uvicorn has a flag, no event
            await asyncio.sleep(0.05)
        logger.info("Petrov listens on %s%s, and loads its models …", url, grpc)
        while not self.service.catalogue.readiness().ready:  # noqa: ASYNC110 - a sentence for people may be late
            await asyncio.sleep(0.1)
        names = ", ".join(model.name for model in self.service.catalogue.models())
        logger.info("Ready: %s. Documentation: %s/docs", names, url)


def _settings(**given: object) -> Settings:
    try:
        return Settings.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise typer.BadParameter("; ".join(faults)) from error


def _run(settings: Settings) -> None:
    log.configure(settings, telemetry.trace_id if settings.traces else None)
    try:
        _until_done(_with_triton(settings) if settings.embedded else _alone(settings))
    except (PreflightError, TritonServerError, keys.KeysError) as error:
        logger.critical("%s", error)  # a traceback would bury the sentence
        raise typer.Exit(1) from error


def _fail(error: Exception) -> NoReturn:
    console.print(str(error), style="red", markup=False, highlight=False)
    raise typer.Exit(1) from error


def _until_done(service: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(service)


async def _alone(settings: Settings) -> None:
    await Gateway(settings).run_here()


async def _with_triton(settings: Settings) -> None:
    """Side by side, so that liveness answers at once; a Triton that cannot run takes the gateway along."""
    server, triton = Gateway(settings), TritonServer(settings)
    keeping = asyncio.create_task(_keep(triton))
    keeping.add_done_callback(lambda _: server.leave())
    try:
        await server.run_here()
    finally:
        await triton.stop()
        await keeping


async def _keep(triton: TritonServer) -> None:
    await triton.start()
    await triton.watch()


if __name__ == "__main__":
    commands(prog_name="python -m serving")
