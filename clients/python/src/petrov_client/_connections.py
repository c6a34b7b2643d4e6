"""The connections of a client, which belong to one process and, of an asynchronous client, to one event loop.

Two processes that share a socket read each other's responses, and a connection of one event loop hangs in another. So
a forked copy of a client opens connections of its own. It neither uses nor closes nor frees what it has inherited: that
may wait for a lock that a thread of the other process held at the fork, or for the thread itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from petrov_client._errors import ConnectionFailed

T = TypeVar("T")
CLOSED = "the client is closed: make another one"


@dataclass(frozen=True)
class Opened(Generic[T]):
    """What sends requests, how it is closed, and the process that has opened it."""

    sender: T
    close: Callable[[], Any]
    process: int = field(default_factory=os.getpid)

    @property
    def is_ours(self) -> bool:
        """Whether this process has opened it, and no process that this one was forked from."""
        return self.process == os.getpid()

    def check(self) -> None:
        """Check that it is ours, before more of a response is read.

        Raises:
            ConnectionFailed: It is not. The request can be sent again.
        """
        if not self.is_ours:
            raise ConnectionFailed("the rest of the response belongs to the process that this one was forked from")


class Connections(Generic[T]):
    """Those of a synchronous client, per process; several threads may use them at a time."""

    def __init__(self, connect: Callable[[], Opened[T]]) -> None:
        self._connect, self._closed = connect, False
        self._opened: dict[int, Opened[T]] = {}  # by process; without a lock, which a fork could copy while it is held

    @property
    def inherited(self) -> bool:
        """Whether there were connections before this process was forked."""
        return any(not each.is_ours for each in self._opened.values())

    def get(self) -> Opened[T]:
        """Return the connections of this process."""
        if self._closed:
            raise RuntimeError(CLOSED)
        return self._opened.get(os.getpid()) or self._opened.setdefault(os.getpid(), self._connect())

    def close(self) -> None:
        """Close the connections of this process."""
        self._closed = True
        if opened := self._opened.get(os.getpid()):
            opened.close()


class LoopConnections(Generic[T]):
    """Those of an asynchronous client, per process and event loop. A loop closes its own when it ends."""

    def __init__(self, connect: Callable[[], Opened[T]]) -> None:
        self._connect, self._closed = connect, False
        self._opened: dict[Any, tuple[Opened[T], AsyncGenerator[Opened[T]]]] = {}  # by event loop

    async def get(self) -> Opened[T]:
        """Return the connections of the running event loop."""
        if self._closed:
            raise RuntimeError(CLOSED)
        loop = asyncio.get_running_loop()
        if loop not in self._opened or not self._opened[loop][0].is_ours:
            # Loops of other threads do the same at the same time, so this is a copy, and another may have been first.
            for each, (opened, _) in list(self._opened.items()):
                if each.is_closed() and opened.is_ours:
                    self._opened.pop(each, None)
            holder = self._hold()
            self._opened[loop] = await anext(holder), holder  # it does not wait, so no other task opens more
        return self._opened[loop][0]

    async def _hold(self) -> AsyncGenerator[Opened[T]]:
        """Yield new connections, once: an event loop closes the asynchronous generators that are left at its end."""
        opened = self._connect()
        try:
            yield opened
        finally:
            if opened.is_ours:
                await opened.close()

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        self._closed = True
        opened = self._opened.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened[1].aclose()
