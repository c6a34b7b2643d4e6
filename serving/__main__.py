"""The service's commands: `python -m serving` (Triton and gateway), `… gateway` (gateway alone), `… key` (an API key).

After SIGTERM, SIGHUP or Ctrl-C, readiness becomes false, the gateway finishes its requests, then Triton drains.
"""

from __future__ import annotations

import asyncio
import difflib
import itertools
import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from pydantic import ValidationError
from rich.console import Console

from serving import auth, observe, running, system
from serving.app import serve as run_gateway
from serving.catalogue.repository import Repository
from serving.local_triton import environment
from serving.local_triton.server import TritonServerError
from serving.settings import GONE, OTHERS, Settings
from serving.system import StartupError

logger = logging.getLogger(__name__)
console = Console(stderr=True)
commands = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Host = Annotated[str | None, typer.Option(help="Address to listen on; else PETROV_HOST.", show_default=False)]
Port = Annotated[int | None, typer.Option(help="Port to listen on; else PETROV_PORT.", show_default=False)]
Triton = Annotated[str | None, typer.Option(help="HOST:PORT of Triton's HTTP; else PETROV_TRITON.", show_default=False)]
Scopes = Annotated[
    list[auth.Scope] | None, typer.Option(help="A scope of the key, repeatable; else infer.", show_default=False)
]
KeyFile = Annotated[
    Path | None,
    typer.Option(envvar="PETROV_KEYS", dir_okay=False, help="File to which its hash is added.", show_default=False),
]


@commands.callback(invoke_without_command=True)
def serve(context: typer.Context, host: Host = None, port: Port = None) -> None:
    """Serve the model repository: a local Triton, and the gateway in front of it.

    Settings are environment variables, PETROV_…; docs/operate.md lists them.
    """
    if context.invoked_subcommand is None:
        _run(_settings(host=host, port=port))


@commands.command()
def gateway(triton: Triton = None, host: Host = None, port: Port = None) -> None:
    """Serve through a Triton that runs elsewhere: the gateway alone."""
    settings = _settings(host=host, port=port, triton=triton)
    if settings.embedded:
        raise typer.BadParameter("expected HOST:PORT of a running Triton", param_hint="--triton")
    _run(settings)


@commands.command()
def key(
    name: Annotated[str, typer.Argument(help="Owner of the key, shown in metrics, logs and refusals.")],
    scope: Scopes = None,
    rate: Annotated[float | None, typer.Option(help="Samples per second; else no limit.", show_default=False)] = None,
    burst: Annotated[int | None, typer.Option(help="Samples at one time; else a second's.", show_default=False)] = None,
    file: KeyFile = None,
) -> None:
    """Make an API key: print it, once, and add its hash to the key file or, without a file, print that too."""
    try:
        secret, entry = auth.make_key(name, tuple(scope or [auth.Scope.INFER]), rate, burst)
        if file is not None:
            auth.append_key(file, entry)
    except (auth.KeysError, OSError) as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        raise typer.Exit(1) from error
    if file is None:
        console.print("Append this to the file that PETROV_KEYS names:\n")
        typer.echo(entry.text(), err=True)  # as it is, not wrapped
    typer.echo(secret)


def _settings(**options: object) -> Settings:
    """Return the settings, or end with the status 2 and a line of the log for each fault."""
    faults, chosen = list(_unknown_variables()), {name: value for name, value in options.items() if value is not None}
    try:
        settings = Settings.model_validate(chosen)
    except ValidationError as error:
        for fault in error.errors():
            message = fault["msg"].removeprefix("Value error, ")
            faults.append(f"PETROV_{str(fault['loc'][0]).upper()}: {message}")
    if not faults:
        return settings
    handler = observe.log_handler(os.environ.get("PETROV_LOG_FORMAT", ""))
    for sentence in faults:
        handler.handle(logger.makeRecord(logger.name, logging.CRITICAL, "", 0, sentence, (), None))
    raise typer.Exit(2)


def _unknown_variables() -> Iterator[str]:
    """Yield what is wrong with variables of our prefix that are no settings, or say nothing."""
    known = [f"PETROV_{name.upper()}" for name in Settings.model_fields]
    for name in sorted(each for each in os.environ if each.startswith("PETROV_") and each not in {*known, *OTHERS}):
        near = difflib.get_close_matches(name, known, 1)
        if name in GONE:
            yield f"{name} is no longer a setting: {GONE[name]}"
        else:
            yield f"{name} is no setting{f'; did you mean {near[0]}?' if near else ''}"
    if os.environ.get("PETROV_KEYS") == "":
        yield "PETROV_KEYS is empty: name a file of keys, or unset it to serve without keys"


def _run(settings: Settings) -> None:
    observe.configure_log(settings)
    try:
        system.raise_open_files(settings.max_requests_in_flight)
        ports = [(settings.port, "PETROV_PORT, or --port,"), (settings.grpc_port, "PETROV_GRPC_PORT")]
        found = [system.port_fault(settings.host, port, variable) for port, variable in ports if port]
        faults = [*filter(None, dict.fromkeys(found)), *(environment.choices(settings) if settings.embedded else ())]
        faults += _shared_ports(settings)
        if faults and settings.embedded and (url := running.address(settings.triton_runtime, settings.repository)):
            repository = Repository(settings.repository)
            repository.read()
            logger.info("%s", running.wait_for_models(url, repository.newest))
            return
        if faults:
            raise StartupError("\n".join(faults))  # noqa: TRY301 - all reasons, before anything is started
        system.keep_freed_memory()
        system.collect_garbage_seldom()
        system.switch_threads_often()
        with _recorded(settings), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_gateway(settings))
        logger.info("The service has ended")
    except (StartupError, TritonServerError, auth.KeysError) as error:
        logger.critical("%s", error)  # the sentence alone: a traceback would add nothing
        raise typer.Exit(1) from error


def _shared_ports(settings: Settings) -> Iterator[str]:
    """Yield which settings name one port: each of them is free before the other listens there."""
    names = ["port", "grpc_port", *(f"triton_{api}_port" for api in ("http", "grpc", "metrics") if settings.embedded)]
    variables = [(f"PETROV_{name.upper()}", getattr(settings, name)) for name in names]
    for (one, port), (other, same) in itertools.combinations(variables, 2):
        if port == same:
            yield f"{one} and {other} are both {port}: give each a port of its own"


def _recorded(settings: Settings) -> AbstractContextManager[None]:
    """Let a second start find this service by its repository; one whose Triton runs elsewhere is not a machine's."""
    if not settings.embedded:
        return nullcontext()
    return running.recorded(settings.triton_runtime, settings.url, settings.repository)


if __name__ == "__main__":
    commands(prog_name="python -m serving")
