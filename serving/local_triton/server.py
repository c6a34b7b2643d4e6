"""A local Triton that serves the model repository: started, supervised, restarted and drained.

Triton polls its repository. The alternative, loads on demand through its control API, would need a poller of our own
and an administrative interface that stays open; polling has one known danger, a version read half-written, and export
publishes by a rename. Consequences (observed): served versions stay available while a new one loads; a new version that
fails to load leaves them in place and is tried again at every poll; the control API refuses every caller.

"Ready" has two meanings. At the start every model must load, or `start` fails with the reason, since the operator is
present. Later, a model that cannot be loaded is missing alone: one broken release must not keep the others from coming
back. Triton's strict readiness, which is false during every load, is therefore off; the gateway checks each model.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import subprocess
from typing import TYPE_CHECKING, Self

from serving.child_process import ChildProcess
from serving.triton import preflight
from serving.triton import runtime as triton_runtime

if TYPE_CHECKING:
    from types import TracebackType

    from serving.settings import Settings

logger = logging.getLogger(__name__)

STABLE_SECONDS = 60.0  # after that long a start counts as good, and the next crash is the first of a new series
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 15.0
PROGRESS_SECONDS = 10.0  # between two lines about a long start
MAX_STARTS = 3  # Triton 2.51 crashes occasionally as it starts, with many models on few cores
SIGNALLED = 128  # higher exit statuses mean a signal
MAX_CRASHES = 8  # in one series, about a minute; then the service ends, for its own supervisor to see
PROBE_SECONDS = 5.0  # between two looks whether a running Triton responds
MAX_SILENT_PROBES = 12  # about a minute, longer than a busy machine delays a response; then it is ended
QUOTED_LINES, QUOTED_BYTES = 8, 2**16  # of the end of its log
NOISE = "CudaDriverHelper has not been initialized"  # logged at every start without a GPU


class TritonServerError(RuntimeError):
    """The local Triton could not start or keeps crashing; the message quotes its log."""


class TritonCrashError(TritonServerError):
    """A signal ended the local Triton before it was ready: no model was refused, and the start may be repeated."""


class TritonServer:
    """A local Triton, as a process that does not outlive ours.

    `async with TritonServer(settings) as triton` starts and stops it; run `watch` meanwhile.

    Args:
        settings: Repository, runtime folder, ports and deadlines.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.log = triton_runtime.log_file(settings)
        self._process: ChildProcess | None = None
        self._stopping = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start Triton and wait until every model of the repository is loaded.

        Raises:
            StartupError: The machine or the repository lacks something.
            TritonServerError: Triton ended, or was not ready in time; or it crashed `MAX_STARTS` times.
        """
        self._wheel = preflight.check(self.settings)
        with contextlib.suppress(OSError):  # a full disk does not keep an old log from being emptied
            self.log.write_bytes(b"")
        for start in range(1, MAX_STARTS):
            try:
                await self._launch(every_model=True)
            except TritonCrashError as crash:
                logger.warning("%s\nTriton is started again (%d of %d)", crash, start, MAX_STARTS - 1)
            else:
                return
        await self._launch(every_model=True)

    async def ready(self) -> bool:
        """Return whether Triton responds, which it does once it has loaded what it can."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(2.0):
                return await _healthy(self.settings.triton_http_port)
        return False

    async def watch(self) -> None:
        """Restart Triton whenever it ends, after pauses that double; return when it is stopped.

        Raises:
            TritonServerError: It ended `MAX_CRASHES` times in a row, each time within `STABLE_SECONDS`.
        """
        crashes = 0
        while not self._stopping:
            lifetime = await self._lifetime()
            if self._stopping:
                return
            crashes = 1 if lifetime > STABLE_SECONDS else crashes + 1
            if crashes >= MAX_CRASHES:
                raise TritonServerError(f"Triton ended {crashes} times in a row; its log ends:\n{self._last_lines()}")
            logger.warning("Triton ended and is restarted (%d of %d)", crashes, MAX_CRASHES)
            await asyncio.sleep(min(FIRST_PAUSE * 2 ** (crashes - 1), LONGEST_PAUSE))
            await self._relaunch()

    async def stop(self) -> None:
        """Let Triton finish its requests, for at most `drain_seconds`, then end it. Safe to call again."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        with contextlib.suppress(TimeoutError):
            try:
                # Triton has the same deadline; the addition is for the end of its processes.
                await asyncio.wait_for(process.wait(), self.settings.drain_seconds + 3.0)
            finally:
                await self._kill()

    async def _launch(self, *, every_model: bool) -> None:
        """Start the process and wait until it responds; end a process that does not."""
        try:
            start = self._log_bytes()
            self._process = self._spawn(every_model=every_model)
        except OSError as error:
            folder = self.settings.triton_runtime
            raise TritonServerError(f"Triton cannot be started from {folder}: {_reason(error)}") from error
        seconds = self.settings.triton_start_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._until_ready(self._process)
        except BaseException as error:
            await self._kill()
            if isinstance(error, TimeoutError):
                raise TritonServerError(
                    f"Triton was not ready in {seconds:g} s (PETROV_TRITON_START_SECONDS); its log ends:\n"
                    f"{self._last_lines(start)}"
                ) from error
            raise

    def _spawn(self, *, every_model: bool) -> ChildProcess:
        command = triton_runtime.command(self._wheel, self.settings, every_model=every_model)
        with self.log.open("ab") as log:
            return ChildProcess(  # whose standard input closes with our process, which the supervisor notices
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=triton_runtime.environment(self._wheel),
                start_new_session=True,  # Ctrl-C is for us: Triton is stopped when the gateway has drained
            )

    async def _until_ready(self, process: ChildProcess) -> None:
        clock = asyncio.get_running_loop()
        start = said = clock.time()
        while not await self.ready() and not self._stopping:
            if process.returncode is not None:
                error = TritonCrashError if process.returncode > SIGNALLED else TritonServerError
                raise error(f"Triton ended with status {process.returncode}; its log ends:\n{self._last_lines()}")
            if clock.time() - said > PROGRESS_SECONDS:
                said = clock.time()
                logger.info("Triton has been loading models for %.0f s …", said - start)
            await asyncio.sleep(0.05)

    async def _relaunch(self) -> None:
        """Try one more start; a failure counts as the next crash."""
        try:
            await self._launch(every_model=False)
        except TritonServerError as error:
            logger.error("%s", error)  # noqa: TRY400 - the message quotes the log; a traceback adds nothing

    async def _lifetime(self) -> float:
        """Wait for the end of the process, and end one that is silent; return the seconds until then."""
        clock, process, silent = asyncio.get_running_loop(), self._process, 0
        start = clock.time()
        while process is not None and not await process.ends_within(PROBE_SECONDS):
            silent = 0 if self._stopping or await self.ready() else silent + 1
            if silent >= MAX_SILENT_PROBES:
                logger.error("Triton runs but has not responded to %d probes, and is ended", silent)
                await self._kill()
        return clock.time() - start

    async def _kill(self) -> None:
        """End everything now: the supervisor kills Triton's processes when its standard input closes."""
        process = self._process
        if process is not None:
            process.hang_up()
            await process.wait()

    def _last_lines(self, start: int = 0) -> str:
        """Return the errors at the end of the log or, without any, its last lines."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(start, self._log_bytes() - QUOTED_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError as error:
            return f"{self.log} cannot be read: {error.strerror}"
        errors = [line for line in lines if line.startswith("E") and NOISE not in line]
        return "\n".join((errors or lines)[-QUOTED_LINES:])

    def _log_bytes(self) -> int:
        """Return the size of the log; 0 if it was removed."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        return self.log.stat().st_size if self.log.exists() else 0


async def _healthy(port: int) -> bool:
    """Request Triton's readiness route, in plain HTTP: a status line needs no client library."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return b" 200 " in await reader.readline()
    finally:
        writer.close()


def _reason(error: OSError) -> str:
    """Return what the system says; a copy of a folder reports its first file as text."""
    return error.strerror or str(error.args[0][0][2] if isinstance(error, shutil.Error) else error)
