"""The workers' parent: it starts them, replaces those that end, and ends them together.

The parent binds the port and keeps the sockets, so a connection that no worker has accepted waits for the
next one. A worker whose parent is gone sees the end of its standard input, and drains.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from serving.child_process import ChildProcess
from serving.startup_error import StartupError
from serving.workers import metric_files
from serving.workers.table import Table
from serving.workers.worker import METRICS, Order, private_socket

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from serving.settings import Settings

logger = logging.getLogger(__name__)
CANNOT_START = 78  # the exit status of a worker whose settings cannot be met (EX_CONFIG)
STABLE_SECONDS = 60.0  # after that long a start counts as good, and the next end is the first of a new series
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 15.0
MAX_ENDS = 8  # of one slot in a series, about a minute; then the service ends, for its own supervisor to see
LOOK_SECONDS, MAX_SILENT_LOOKS = 1.0, 30  # for a sign of life of each worker, ten of which are due between two looks
LATE_SECONDS = 10.0  # beyond its deadlines, until a worker that does not end is killed


class Processes:
    """The worker processes.

    Args:
        settings: The service's settings.
        folder: An empty folder for what they share; its path has to be short, for Unix sockets.

    Raises:
        StartupError: The port is in use, or the folder has too little space.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self._table = _fill(folder, settings.workers)
        self._listeners = bind(settings.host, settings.port)
        self._running: dict[int, ChildProcess] = {}
        self._stopping = asyncio.Event()

    def shut_down(self) -> None:
        """Let every worker drain and end; safe to call again."""
        self._stopping.set()
        for listener in self._listeners:
            listener.close()
        for process in self._running.values():
            process.terminate()

    async def run(self) -> None:
        """Run the workers until `shut_down`.

        Raises:
            StartupError: A worker could not start for the first time, or one keeps ending.
        """
        keeping = [asyncio.create_task(self._keep(slot)) for slot in range(self._settings.workers)]
        try:
            await asyncio.gather(*keeping)
        finally:
            self.shut_down()
            await asyncio.gather(*keeping, return_exceptions=True)
            self._table.close()

    async def _keep(self, slot: int) -> None:
        """Run a worker in a slot, again whenever it ends, after pauses that double."""
        clock, starts, ends = asyncio.get_running_loop(), 0, 0
        while not self._stopping.is_set():
            starts, begun = starts + 1, clock.time()
            status = await self._run_once(slot, starts)
            if self._stopping.is_set():
                return
            if status == CANNOT_START and starts == 1:
                raise StartupError("the workers cannot start; the reason is above")
            ends = 1 if clock.time() - begun > STABLE_SECONDS else ends + 1
            if ends >= MAX_ENDS:
                raise StartupError(f"worker {slot} ended {ends} times in a row, the last time with status {status}")
            logger.warning("worker %d ended with status %d and is replaced (%d of %d)", slot, status, ends, MAX_ENDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), min(FIRST_PAUSE * 2 ** (ends - 1), LONGEST_PAUSE))

    async def _run_once(self, slot: int, start: int) -> int:
        """Run one worker to its end, and forget what it had in flight; return its exit status."""
        self._table.begin(slot, start)
        private_socket(self._folder, slot).unlink(missing_ok=True)
        process = self._spawn(slot, start)
        self._running[slot] = process
        try:
            if self._stopping.is_set():  # since it was started
                process.terminate()
            return await self._end(slot, process)
        finally:
            del self._running[slot]
            self._table.clear(slot)
            metric_files.forget(self._folder / METRICS, slot)

    def _spawn(self, slot: int, start: int) -> ChildProcess:
        descriptors = tuple(listener.fileno() for listener in self._listeners)
        order = Order(
            slot=slot,
            start=start,
            folder=self._folder,
            listeners=descriptors,
            settings=json.loads(self._settings.model_dump_json()),
        )
        process = ChildProcess(  # the end of its standard input is ours
            [sys.executable, "-m", "serving", "worker"],
            pass_fds=descriptors,
            start_new_session=True,  # Ctrl-C is for us
        )
        process.write(order.model_dump_json().encode() + b"\n")
        return process

    async def _end(self, slot: int, process: ChildProcess) -> int:
        """Wait until a worker ends; kill one that is frozen, or late."""
        waits = [asyncio.ensure_future(each) for each in (process.wait(), self._stopping.wait(), self._silence(slot))]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        silent = waits[-1].done()
        for each in waits:
            each.cancel()
        patience = self._settings.notice_seconds + self._settings.drain_seconds + LATE_SECONDS
        if silent or not await process.ends_within(patience if self._stopping.is_set() else 0):
            logger.warning(
                "worker process %d %s, and is killed", process.pid, "is frozen" if silent else "does not end"
            )
            process.kill()
        return await process.wait()

    async def _silence(self, slot: int) -> None:
        """Return when a worker that has given a sign of life gives none any more."""
        alive, last, silent = self._table.columns["alive"], 0, 0
        while silent < MAX_SILENT_LOOKS:
            await asyncio.sleep(LOOK_SECONDS)
            silent = silent + 1 if last and alive[slot] == last else 0
            last = alive[slot]


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Return a context with an empty folder for what the workers share, which is removed at the end.

    Raises:
        StartupError: There is no folder for temporary files.
    """
    try:
        folder = TemporaryDirectory(prefix="petrov-")
    except OSError as error:
        raise StartupError(
            f"no folder for temporary files can be used ({error.strerror}): set TMPDIR to one"
        ) from error
    with folder as name:
        yield Path(name)


def _fill(folder: Path, workers: int) -> Table:
    """Make what the workers share.

    Raises:
        StartupError: The folder has too little space.
    """
    try:
        (folder / METRICS).mkdir()
        for slot in range(workers):
            metric_files.reserve(folder / METRICS, slot)
        return Table.create(folder)
    except OSError as error:
        needed = workers * sum(metric_files.SIZES.values()) / 2**20 + 1
        raise StartupError(
            f"{folder.parent} cannot hold what {workers} workers share ({error.strerror}): set TMPDIR to a folder with "
            f"{needed:.0f} MB"
        ) from error


def bound(family: int, address: Any) -> socket.socket:
    """Return a socket that is bound to an address, and that does not block.

    Raises:
        OSError: It cannot be bound.
    """
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.bind(address)
        found.setblocking(False)  # noqa: FBT003 - the standard library's signature
    except OSError:
        found.close()
        raise
    return found


def bind(host: str, port: int) -> Sequence[socket.socket]:
    """Return sockets bound to every address of a host, as a single gateway would; the first worker listens on them.

    Raises:
        StartupError: The port is in use.
    """
    found = dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))
    listeners = list[socket.socket]()
    try:
        for family, _, _, _, address in found:
            listeners.append(bound(family, address))
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise StartupError(f"port {port} cannot be used: {error.strerror}") from error
    return listeners
