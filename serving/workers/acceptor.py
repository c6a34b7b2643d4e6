"""Accepts connections from a socket that all workers listen on, so that each gets its share.

An event loop's own server accepts whatever waits, as fast as it can: clients that open sixteen connections at once and
keep them would all get the same worker. Here a worker accepts one connection at a time, and one that has more than the
others waits a moment first. With a socket per worker (SO_REUSEPORT) the kernel would choose by chance, and connections
that wait for a worker that has died would be lost.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)
BACKLOG = 2048  # as uvicorn's
PAUSE_SECONDS, MOST_PAUSES = 0.002, 25  # for a worker that has more connections than the others
LACK_SECONDS = 1.0  # after an error such as too many open files, as asyncio does


class Acceptor:
    """A server as uvicorn expects one, with one listening socket.

    Args:
        listener: The socket, which is bound and does not block.
        make: Makes the protocol of a connection.
        ahead: Whether this worker has more connections than another, beside so many that are being opened.
    """

    def __init__(
        self, listener: socket.socket, make: Callable[[], asyncio.Protocol], ahead: Callable[[int], bool]
    ) -> None:
        self._listener, self._make, self._ahead = listener, make, ahead
        self._loop = asyncio.get_running_loop()
        self._opening = set[asyncio.Task[None]]()
        self._timer: asyncio.TimerHandle | None = None
        self._pauses = 0
        listener.listen(BACKLOG)  # which changes nothing if another worker has done so
        self._loop.add_reader(listener, self._look)

    def close(self) -> None:
        """Accept no more connections; safe to call again."""
        if self._listener.fileno() < 0:
            return
        if self._timer is None:
            self._loop.remove_reader(self._listener)
        else:
            self._timer.cancel()
        self._listener.close()

    async def wait_closed(self) -> None:
        """Wait until every accepted connection has its protocol."""
        await asyncio.gather(*self._opening)

    def _look(self) -> None:
        """Accept a connection, or leave it to the others for a moment: they may be too busy to take it."""
        if self._pauses < MOST_PAUSES and self._ahead(len(self._opening)):
            self._pauses += 1
            self._pause(PAUSE_SECONDS)
        else:
            self._pauses = 0
            self._accept()

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._timer = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._listener, self._look)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):  # another worker was first
            return
        except OSError as error:
            logger.error("no connection can be accepted for a moment: %s", error.strerror)  # noqa: TRY400
            self._pause(LACK_SECONDS)
            return
        connection.setblocking(False)  # noqa: FBT003 - the standard library's signature
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._open(connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, connection)
        except OSError:  # the client has left already
            connection.close()
