"""Settings in; a local Triton that serves the model repository out: started, watched, restarted, drained.

Triton polls its repository. The alternative, loads on demand through its control API, would need a poller of our own
and an administrative interface that stays open; polling has one known danger, a version seen half-written, and export
publishes by a rename. What follows from it (observed): the versions in service answer on while a new one loads; a new
one that fails to load leaves them in place and is tried again at every poll; the control API refuses everybody.

Two readings of "ready": at the start every model has to load, or `start` fails with the reason, for then the operator
is looking. Later, a model that cannot be loaded is missing alone: one broken release must not keep the others from
coming back. That is why Triton's strict readiness, which falls at every load, is off; the gateway asks for each model.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from serving.triton import preflight
from serving.triton import runtime as triton_runtime
from serving.triton import supervisor as warden

if TYPE_CHECKING:
    from types import TracebackType

    from serving.settings import Settings

logger = logging.getLogger(__name__)

STABLE_SECONDS = 60.0  # a Triton that lived this long had started well: its death is the first of a new series
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 15.0
STARTS = 3  # Triton 2.51 crashes now and then as it starts, with many models on few cores
SIGNALLED = 128  # a status beyond it is a signal's
DEATHS = 8  # in one series, about a minute; then we end, and whoever supervises us sees it
QUOTED_LINES = 8
NOISE = "CudaDriverHelper has not been initialized"  # said at every start without a GPU


class TritonServerError(RuntimeError):
    """The local Triton could not start, or keeps dying; the message quotes its log."""


class TritonCrashError(TritonServerError):
    """A signal ended the local Triton before it was ready: it refused nothing, and may be tried again."""


class TritonServer:
    """A local Triton, as a process that does not outlive us.

    `async with TritonServer(settings) as triton` starts it and stops it; `watch` is to be run meanwhile.

    Args:
        settings: Repository, runtime folder, ports and deadlines.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.log = settings.triton_runtime / f"triton-{settings.triton_http_port}.log"
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Starts Triton and waits until every model of the repository is loaded and warm.

        Raises:
            PreflightError: Something is missing on this machine.
            TritonServerError: It ended, or was not ready in time; or it crashed `STARTS` times.
        """
        self._wheel = preflight.check(self.settings)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_bytes(b"")
        for start in range(1, STARTS):
            try:
                await self._launch(every_model=True)
            except TritonCrashError as crash:
                logger.warning("%s\nIt is started again (%d of %d)", crash, start, STARTS - 1)
            else:
                return
        await self._launch(every_model=True)

    async def ready(self) -> bool:
        """Whether Triton answers, which it does once it has loaded what it can."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(2.0):
                return await _healthy(self.settings.triton_http_port)
        return False

    async def watch(self) -> None:
        """Restarts Triton whenever it dies, after pauses that double; returns when it is stopped.

        Raises:
            TritonServerError: It died `DEATHS` times in a row, each time within `STABLE_SECONDS`.
        """
        deaths = 0
        while not self._stopping:
            lived = await self._lifetime()
            if self._stopping:
                return
            deaths = 1 if lived > STABLE_SECONDS else deaths + 1
            if deaths >= DEATHS:
                raise TritonServerError(f"Triton died {deaths} times in a row; its log ends:\n{self._last_lines()}")
            logger.warning("Triton died and is restarted (%d of %d)", deaths, DEATHS)
            await asyncio.sleep(min(FIRST_PAUSE * 2 ** (deaths - 1), LONGEST_PAUSE))
            await self._relaunch()

    async def stop(self) -> None:
        """Lets Triton finish the requests it has, for at most `drain_seconds`, then ends it. Safe to call again."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(TimeoutError):
            try:
                # Triton keeps to the same deadline; the addition is for the end of its processes.
                await asyncio.wait_for(process.wait(), self.settings.drain_seconds + 3.0)
            finally:
                await self._kill()

    async def _launch(self, *, every_model: bool) -> None:
        """Starts the process and waits until it answers; a process that does not is ended."""
        start = self.log.stat().st_size
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *_command(self._wheel, self.settings, every_model=every_model),
                stdin=asyncio.subprocess.PIPE,  # closes with us; the warden waits for that
                stdout=log,
                stderr=log,
                env=triton_runtime.environment(self._wheel),
                start_new_session=True,  # Ctrl-C is for us; Triton is told to stop when the gateway has drained
            )
        try:
            async with asyncio.timeout(self.settings.triton_start_seconds):
                await self._answers(self._process)
        except BaseException as error:
            await self._kill()
            if isinstance(error, TimeoutError):
                seconds = self.settings.triton_start_seconds
                raise TritonServerError(
                    f"Triton was not ready in {seconds:g} s; its log ends:\n{self._last_lines(start)}"
                ) from error
            raise

    async def _answers(self, process: asyncio.subprocess.Process) -> None:
        while not await self.ready() and not self._stopping:
            if process.returncode is not None:
                error = TritonCrashError if process.returncode > SIGNALLED else TritonServerError
                raise error(f"Triton ended with status {process.returncode}; its log ends:\n{self._last_lines()}")
            await asyncio.sleep(0.05)

    async def _relaunch(self) -> None:
        """One more attempt; a failure is the next death."""
        try:
            await self._launch(every_model=False)
        except TritonServerError as error:
            logger.error("%s", error)  # noqa: TRY400 - the message is the story; a traceback would bury it

    async def _lifetime(self) -> float:
        """Seconds until the process ended."""
        clock, process = asyncio.get_running_loop(), self._process
        start = clock.time()
        if process is not None:
            await process.wait()
        return clock.time() - start

    async def _kill(self) -> None:
        """Ends everything now: the warden kills Triton's processes when its standard input closes."""
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            await process.wait()

    def _last_lines(self, start: int = 0) -> str:
        """The errors at the end of the log or, without any, its last lines."""
        with self.log.open("rb") as log:
            log.seek(start)
            lines = log.read().decode(errors="replace").splitlines()
        errors = [line for line in lines if line.startswith("E") and NOISE not in line]
        return "\n".join((errors or lines)[-QUOTED_LINES:])


def _command(wheel: Path, settings: Settings, *, every_model: bool) -> list[str]:
    """The whole command line: the warden's, then Triton's."""
    prefix = f"petrov-{secrets.token_hex(8)}-"
    options: dict[str, object] = {
        "model-repository": settings.repository.resolve(),
        "backend-directory": triton_runtime.backend_directory(wheel, settings.triton_runtime),
        "model-control-mode": "poll",
        "repository-poll-secs": settings.triton_poll_seconds,
        "strict-readiness": "false",
        "exit-on-error": str(every_model).lower(),
        "exit-timeout-secs": max(1, round(settings.drain_seconds)),
        # The server of the wheel predates its security fixes: it is for us alone.
        "http-address": "127.0.0.1",
        "grpc-address": "127.0.0.1",
        "metrics-address": "127.0.0.1",
        "http-port": settings.triton_http_port,
        "grpc-port": settings.triton_grpc_port,
        "metrics-port": settings.triton_metrics_port,
        "log-info": str(settings.log_level == "debug").lower(),
    }
    return [
        *(sys.executable, "-I", str(Path(warden.__file__)), prefix),
        str(wheel / "bin" / "tritonserver"),
        *(f"--{name}={value}" for name, value in options.items()),
        *(f"--trace-config={setting}" for setting in _tracing(settings)),
        "--disable-auto-complete-config",  # what is served is what the repository says
        *(
            f"--backend-config={backend},shm-region-prefix-name={prefix}"
            for backend in ("onnxruntime", "pytorch", "python")
        ),
    ]


def _tracing(settings: Settings) -> list[str]:
    """Spans of the requests that carry the gateway's trace context, and of no others: that is what rate 0 means.

    They are not to be had under load: with 16 requests in flight, all of them traced, Triton 2.51 loses one trace in
    fifteen and crashes within a minute (triton-inference-server/server#7795).
    """
    if not (settings.traces and settings.triton_traces):
        return []
    export = [f"url={settings.traces}", "resource=service.name=triton"]
    return ["mode=opentelemetry", "level=TIMESTAMPS", "rate=0", *(f"opentelemetry,{setting}" for setting in export)]


async def _healthy(port: int) -> bool:
    """Asks Triton's readiness route, in plain HTTP: no client library for one status line."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return b" 200 " in await reader.readline()
    finally:
        writer.close()
