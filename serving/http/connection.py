"""Settings and an application in, uvicorn's configuration out, with an end to what uvicorn lets go on for ever.

The head of a request may take so long and hold so much (else 408 and 431), and an answer that nobody reads may lie for
so long; then the connection is closed. How long a body may take is for `serving.http.body` to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

    from starlette.types import ASGIApp

    from serving.settings import Settings

# Longer than clients and load balancers keep an idle connection: else it is closed under a request that is on its way.
KEEP_ALIVE_SECONDS = 75
MAX_HEAD_BYTES = 64 * 2**10  # more than any browser sends, behind what arrived along with its first byte
SLOW, LARGE = "408 Request Timeout", "431 Request Header Fields Too Large"


class Connection(HttpToolsProtocol):
    """A connection, from the first byte to the last.

    Attributes:
        seconds: How long a head may take to arrive, or an answer lie without a byte of it being read.
    """

    seconds: ClassVar[float]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # so is uvicorn's
        super().connection_made(transport)
        self._unread: asyncio.TimerHandle | None = None
        self._in_head, self._head_bytes = False, 0
        self._deadline = self.loop.call_later(self.seconds, self._refuse, SLOW)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data) * self._in_head
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(LARGE)

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._wait(self.seconds)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # or it is a trailer, which nobody reads
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._deadline.cancel()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:  # and no further request is here already
            self._wait(KEEP_ALIVE_SECONDS)  # uvicorn waits as long, until anything arrives, were it no request

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def _wait(self, seconds: float) -> None:
        """For a head."""
        self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self._refuse, SLOW)

    def _refuse(self, status: str) -> None:
        """Close the connection; with a word to whoever has begun a request and waits for no other."""
        busy = self.transport.is_closing() or (self.cycle is not None and not self.cycle.response_complete)
        if self._in_head and not busy:
            self.transport.write(f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".encode())
        self.transport.close()

    def _expect_reading(self, left: int) -> None:
        """Look again after a while whether fewer bytes are left to be read."""
        self._unread = self.loop.call_later(self.seconds, self._look, left)

    def _look(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._expect_reading(left)
        else:
            self.transport.abort()


def configuration(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """How uvicorn serves an application where the settings say."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=type("Connection", (Connection,), {"seconds": settings.receive_seconds}),  # made by uvicorn itself
        log_config=None,
        log_level="warning",  # the story is ours to tell
        access_log=False,  # the application writes its own
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
    )
