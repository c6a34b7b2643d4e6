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
from typing import TYPE_CHECKING, Any

from prometheus_client import multiprocess

from serving.startup_error import StartupError
from serving.workers.table import Table
from serving.workers.worker import METRICS, Order, private_socket

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from serving.settings import Settings

logger = logging.getLogger(__name__)
CANNOT_START = 78  # the exit status of a worker whose settings cannot be met (EX_CONFIG)
STABLE_SECONDS = 60.0  # after that long a start counts as good, and the next end is the first of a new series
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 15.0
MAX_ENDS = 8  # of one slot in a series, about a minute; then the service ends, for its own supervisor to see
LATE_SECONDS = 10.0  # beyond its deadlines, until a worker that does not end is killed


class Processes:
    """The worker processes.

    Args:
        settings: The service's settings.
        folder: An empty folder for what they share; its path has to be short, for Unix sockets.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self._listeners = bind(settings.host, settings.port)
        (folder / METRICS).mkdir()
        self._table = Table.create(folder)
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()

    def shut_down(self) -> None:
        """Let every worker drain and end; safe to call again."""
        self._stopping.set()
        for listener in self._listeners:
            listener.close()
        for process in self._running.values():
            _terminate(process)

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
        process = await self._spawn(slot, start)
        self._running[slot] = process
        try:
            if self._stopping.is_set():  # since it was started
                _terminate(process)
            return await self._end(process)
        finally:
            del self._running[slot]
            self._table.clear(slot)
            multiprocess.mark_process_dead(slot, str(self._folder / METRICS))

    async def _spawn(self, slot: int, start: int) -> asyncio.subprocess.Process:
        descriptors = tuple(listener.fileno() for listener in self._listeners)
        order = Order(
            slot=slot,
            start=start,
            folder=self._folder,
            listeners=descriptors,
            settings=json.loads(self._settings.model_dump_json()),
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "serving", "worker"),
            stdin=asyncio.subprocess.PIPE,  # its end is ours
            pass_fds=descriptors,
            start_new_session=True,  # Ctrl-C is for us
        )
        if process.stdin is not None:
            process.stdin.write(order.model_dump_json().encode() + b"\n")
        return process

    async def _end(self, process: asyncio.subprocess.Process) -> int:
        """Wait until a worker ends; kill one that is late."""
        ending = asyncio.ensure_future(process.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((ending, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        patience = self._settings.notice_seconds + self._settings.drain_seconds + LATE_SECONDS
        try:
            return await asyncio.wait_for(asyncio.shield(ending), patience)
        except TimeoutError:
            logger.warning("worker process %d does not end, and is killed", process.pid)
            process.kill()
            return await ending


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


def _terminate(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
