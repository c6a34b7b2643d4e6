"""A local Triton on the model repository: started, supervised, restarted and drained.

The binary needs a backend directory in which the Python backend has the stub of the running Python beside it, and in
which `onnxruntime/model.py` and `pytorch/model.py` replace the C++ backends that the wheel leaves out.

It starts without a model and responds at once; the gateway's catalogue loads models one by one. The APIs for that, and
those for shared memory, traces and the log, take a key that the gateway alone knows; everything listens on the loopback
only, since the wheel's server predates current security fixes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Self

from serving import system, timing
from serving.device import Device
from serving.local_triton import environment, memory, supervisor
from serving.local_triton.device import Machine, choose
from serving.settings import Settings
from serving.triton import KEY_HEADER

logger = logging.getLogger(__name__)
BACKENDS = Path(__file__).with_name("backends")
RESTRICTED = "model-repository,shared-memory,trace,logging"
# Environment variables of Triton's process: options that hold a key, or an address with a password.
RESTRICTION, TRACES = "PETROV_TRITON_RESTRICTION", "PETROV_TRITON_TRACES_URL"
DEVICE = "TRITON_DEVICE"  # one that the backends read: where their models belong

RESTART_SECONDS = 60.0  # between two restarts on request: too large requests cost the others one a minute
STABLE_SECONDS = 60.0  # after that long a start counts as good, and the next crash is the first of a new series
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 15.0
MAX_STARTS = 3  # Triton 2.51 crashes occasionally as it starts
SIGNALLED = 128  # higher exit statuses mean a signal
MAX_CRASHES = 8  # in one series, about a minute; then the service ends, for its own supervisor to see
PROBE_SECONDS = 5.0  # between two looks whether a running Triton responds
MAX_SILENT_PROBES = 12  # about a minute, longer than a busy machine delays a response; then it is ended
QUOTED_LINES, QUOTED_BYTES = 8, 2**16  # of the end of its log
NOISE = "CudaDriverHelper has not been initialized"  # logged at every start without a GPU


class TritonServerError(RuntimeError):
    """The local Triton could not start or keeps crashing; the message quotes its log."""


class TritonCrashError(TritonServerError):
    """A signal ended the local Triton before it responded: the start may be repeated."""


class TritonServer:
    """A local Triton, as a process that does not outlive ours.

    `async with TritonServer(settings) as triton` starts and stops it; run `watch` meanwhile. The `key` is for the
    restricted APIs; empty leaves them open. `device` is what it computes on, once it has been started.
    """

    def __init__(self, settings: Settings, key: str = "") -> None:
        self.settings = settings
        self.log = environment.log_file(settings)
        self.device: Device | None = None
        self._key = key
        self._process: _Process | None = None
        self._stopping = self._restarting = False
        self._restarted = -math.inf

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start Triton and wait until it responds.

        A StartupError: the machine or the repository lacks something. A TritonServerError: it ended, did not respond in
        time, or crashed `MAX_STARTS` times.
        """
        self._wheel = await asyncio.to_thread(environment.prepare, self.settings)
        machine = Machine(self.settings.triton_environment)
        self.device = await asyncio.to_thread(choose, self.settings.device, machine)
        await asyncio.to_thread(environment.bound_log, self.log, 0)  # that of the last start may say why it ended
        for start in range(1, MAX_STARTS):
            try:
                return await self._launch()
            except TritonCrashError as crash:
                logger.warning("%s\nTriton is started again (%d of %d)", crash, start, MAX_STARTS - 1)
        return await self._launch()

    async def _launch(self) -> None:
        """Start the process and wait until it responds; end a process that does not."""
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            start = self.log.stat().st_size if self.log.exists() else 0
            backends = await asyncio.to_thread(backend_directory, self._wheel, self.settings.triton_runtime)
            arguments = command(self._wheel, backends, self.settings, restricted=bool(self._key))
            with environment.open_log(self.log) as log:
                process = self._process = _Process(
                    arguments, log, variables(self._wheel, self.settings, self._key, self.device)
                )
        except OSError as error:
            # A copy of a folder reports its first file as text.
            text = error.strerror or str(error.args[0][0][2] if isinstance(error, shutil.Error) else error)
            raise TritonServerError(f"Triton cannot be started from {self.settings.triton_runtime}: {text}") from error
        seconds = self.settings.triton_start_seconds
        try:
            async with asyncio.timeout(seconds):
                while not await self.ready() and not self._stopping:
                    if (status := process.poll()) is not None:
                        kind = TritonCrashError if status > SIGNALLED else TritonServerError
                        detail = f"Triton ended with status {status}; its log ends:\n{self._last_lines(start)}"
                        raise kind(detail)  # noqa: TRY301 - the process is ended below, whatever the reason
                    await asyncio.sleep(0.05)
        except BaseException as error:
            await process.end()
            if isinstance(error, TimeoutError):
                detail = f"Triton was not ready in {seconds:g} s (PETROV_TRITON_START_SECONDS)"
                raise TritonServerError(f"{detail}; its log ends:\n{self._last_lines(start)}") from error
            raise

    async def ready(self) -> bool:
        """Return whether Triton responds, in plain HTTP: a status line needs no client library."""
        with contextlib.suppress(OSError, TimeoutError):
            system.require_own(f"127.0.0.1:{self.settings.triton_http_port}")  # else it is not this one that responds
            async with asyncio.timeout(2.0):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.settings.triton_http_port)
                try:
                    writer.write(b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    return b" 200 " in await reader.readline()
                finally:
                    writer.close()
        return False

    async def watch(self) -> None:
        """Restart Triton whenever it ends, after pauses that double; return when it is stopped.

        A TritonServerError: it ended `MAX_CRASHES` times in a row, each time within `STABLE_SECONDS`.
        """
        crashes = 0
        while not self._stopping:
            lifetime = await self._lifetime()
            if self._stopping:
                return
            if self._restarting:
                self._restarting = False
            else:
                crashes = 1 if lifetime > STABLE_SECONDS else crashes + 1
                if crashes >= MAX_CRASHES:
                    fault = f"Triton ended {crashes} times in a row; its log ends:"
                    raise TritonServerError(f"{fault}\n{self._last_lines()}")
                logger.warning("Triton ended and is restarted (%d of %d)", crashes, MAX_CRASHES)
                await asyncio.sleep(min(FIRST_PAUSE * 2 ** (crashes - 1), LONGEST_PAUSE))
            try:
                await self._launch()
            except TritonServerError as error:  # which counts as the next crash
                logger.error("%s", error)  # noqa: TRY400 - the message quotes the log; a traceback adds nothing

    def restart(self) -> bool:
        """End Triton, so that it starts anew with empty shared memory; False within `RESTART_SECONDS` of the last."""
        now, process = asyncio.get_running_loop().time(), self._process
        if now - self._restarted < RESTART_SECONDS:
            return False
        if process is not None and process.poll() is None:
            logger.warning("Triton has run out of shared memory and is restarted")
            self._restarted, self._restarting = now, True
            process.close()
        return True

    def memory(self) -> dict[str, int]:
        """Return the bytes that each model takes, of the card or of the machine; empty while Triton does not run."""
        if self._process is None or self.device is None:
            return {}
        with contextlib.suppress(OSError, IndexError):  # Triton is the child of its supervisor
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text("ascii")
            return memory.by_model(int(children.split()[0]), self.device.kind)
        return {}

    async def _lifetime(self) -> float:
        """Wait for the end of the process, and end one that is silent; return the seconds until then."""
        clock, process, silent = asyncio.get_running_loop(), self._process, 0
        start = clock.time()
        while process is not None and not await process.ends_within(PROBE_SECONDS):
            await asyncio.to_thread(environment.bound_log, self.log)
            silent = 0 if self._stopping or await self.ready() else silent + 1
            if silent >= MAX_SILENT_PROBES:
                logger.error("Triton runs but has not responded to %d probes, and is ended", silent)
                await process.end()
        return clock.time() - start

    async def stop(self) -> None:
        """Let Triton finish its requests, for at most `drain_seconds`, then end it. Safe to call again."""
        self._stopping = True
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                # Triton has the same deadline; the addition is for the end of its processes.
                await self._process.ends_within(self.settings.drain_seconds + 3.0)
            finally:
                await self._process.end()

    def _last_lines(self, start: int = 0) -> str:
        """Return the errors at the end of the log or, without any, its last lines."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(start, self.log.stat().st_size - QUOTED_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError as error:
            return f"{self.log} cannot be read: {error.strerror}"
        errors = [line for line in lines if line.startswith("E") and NOISE not in line]
        return "\n".join((errors or lines)[-QUOTED_LINES:])


class _Process(subprocess.Popen[bytes]):
    """A running program whose end can be awaited, with a pipe as its standard input, which closes with our process.

    The event loop's own subprocesses run the fork handlers of Python and of gRPC in the child; while other threads are
    in the middle of a call, those fail (seen) or wait for ever. The standard library's start nothing of ours between.
    """

    def __init__(self, arguments: list[str], log: IO[bytes], variables: dict[str, str]) -> None:
        super().__init__(
            arguments,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=variables,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for us: Triton is stopped when the gateway has drained
        )
        self._ended, loop, descriptor = asyncio.Event(), asyncio.get_running_loop(), os.pidfd_open(self.pid)

        def reap() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self.wait()
            self.close()
            self._ended.set()

        loop.add_reader(descriptor, reap)

    async def ends_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)
        return self._ended.is_set()

    async def end(self) -> None:
        self.close()
        await self._ended.wait()

    def close(self) -> None:
        """Begin to end everything: the supervisor kills Triton's processes when its standard input closes."""
        if self.stdin is not None:
            self.stdin.close()


def variables(wheel: Path, settings: Settings, key: str, device: Device | None = None) -> dict[str, str]:
    """Return the variables of Triton's process: ours, with what Triton needs in front, and options that are secret.

    The stub embeds Python and finds its packages through the first `python3` on PATH, which must be that of Triton's
    own environment; PYTHONPATH is ignored.
    """
    libraries = [*map(str, environment.library_folders(wheel)), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    programs = [str(wheel.parents[4] / "bin"), os.environ.get("PATH", os.defpath)]
    paths = {"LD_LIBRARY_PATH": os.pathsep.join(libraries), "PATH": os.pathsep.join(programs)}
    secret = {RESTRICTION: f"{RESTRICTED}:{KEY_HEADER}={key}", TRACES: f"opentelemetry,url={settings.traces}"}
    others = {"PYTHONDONTWRITEBYTECODE": "1", timing.VARIABLE: str(timing.path(settings))}
    if device is not None:
        others[DEVICE] = device.kind
        # Triton places models on every card that it sees.
        others |= {"CUDA_VISIBLE_DEVICES": ""} if device.kind == "cpu" else {}
    return os.environ | paths | secret | others


def command(wheel: Path, backends: Path, settings: Settings, *, restricted: bool) -> list[str]:
    """Return the command line: the supervisor's, then Triton's; the key of its `restricted` APIs is not in it."""
    prefix = f"petrov-{secrets.token_hex(8)}-"
    options = {
        "model-repository": settings.repository.absolute(),  # a link may lead to another release later
        "backend-directory": backends,
        "model-control-mode": "explicit",
        "strict-readiness": "false",  # it would be false during every load
        "exit-timeout-secs": max(1, round(settings.drain_seconds)),
        **{f"{api}-address": "127.0.0.1" for api in ("http", "grpc", "metrics")},
        "http-port": settings.triton_http_port,
        "grpc-port": settings.triton_grpc_port,
        "metrics-port": settings.triton_metrics_port,
        "log-info": str(settings.log_level == "debug").lower(),
    }
    apis = ("http-restricted-api", "grpc-restricted-protocol") if restricted else ()
    tracing = list[str]()
    if settings.traces and settings.triton_traces:
        # Spans of those requests alone that carry the gateway's trace context (rate 0). They do not work under load:
        # with 16 requests in flight, all of them traced, Triton 2.51 loses one trace in fifteen and crashes within a
        # minute (triton-inference-server/server#7795).
        export = [f"${TRACES}", "opentelemetry,resource=service.name=triton"]
        tracing = ["mode=opentelemetry", "level=TIMESTAMPS", "rate=0", *export]
    return [
        *(sys.executable, "-I", str(Path(supervisor.__file__)), prefix),
        str(wheel / "bin" / "tritonserver"),
        *(f"--{name}={value}" for name, value in options.items()),
        *(part for api in apis for part in (f"--{api}", f"${RESTRICTION}")),  # which the supervisor replaces
        *(part for setting in tracing for part in ("--trace-config", setting)),
        "--disable-auto-complete-config",  # the repository's configs are complete
        *(f"--backend-config={name},shm-region-prefix-name={prefix}" for name in ("onnxruntime", "pytorch", "python")),
    ]


def backend_directory(wheel: Path, runtime: Path) -> Path:
    """Return the absolute path for `--backend-directory`, a folder in `runtime` that is built if it is missing.

    Its name is a digest of its sources, and it appears by a rename: two servers that start together share it, and a new
    release of a backend never changes the files of a running one.
    """
    sources = [*BACKENDS.rglob("*.py"), environment.stub(wheel), *(wheel / "backends").rglob("*.[ps][yo]")]
    digest = hashlib.sha256()
    for file in sorted(sources):
        digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    target = runtime.resolve() / f"backends-{digest.hexdigest()[:12]}"
    if target.exists():
        return target
    runtime.mkdir(parents=True, exist_ok=True)
    hidden = Path(tempfile.mkdtemp(prefix=".backends-", dir=runtime))
    try:
        # Without bytecode: the stub would trust what another Python has compiled.
        without_bytecode = shutil.ignore_patterns("__pycache__")
        shutil.copytree(wheel / "backends" / "python", hidden / "python", ignore=without_bytecode)
        shutil.copy2(environment.stub(wheel), hidden / "python")
        for model in BACKENDS.glob("*/model.py"):
            shutil.copytree(model.parent, hidden / model.parent.name, ignore=without_bytecode)
            for shared in BACKENDS.glob("*.py"):
                shutil.copy2(shared, hidden / model.parent.name)
        hidden.rename(target)
    except OSError:
        shutil.rmtree(hidden, ignore_errors=True)
        if not target.exists():  # else another start was first, with the same bytes
            raise
    return target
