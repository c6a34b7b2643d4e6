"""The configuration of uvicorn, with limits on slow clients.

The head of a request is limited in time and size (408 and 431), and a response that the client does not read is dropped
after a time; `serving.protocols.over_http` limits the body. Uvicorn has no setting for either, granian and hypercorn
none for unread responses, so uvicorn's protocol class is extended here although it is not public. The methods below are
called as asyncio and httptools document them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving.settings import Settings

LINGER_BYTES = 256 * 2**20  # four times the largest body by default
LINGER_SECONDS, IDLE_SECONDS = 30.0, 5.0  # in all, and without a byte


class LingeringTransport:
    """A transport that can be used after its end, and that lingers: then what arrives is dropped.

    It lingers where, by `sending`, the client may be in the middle of a request.
    """

    def __init__(self, transport: asyncio.Transport, sending: Callable[[], bool]) -> None:
        self.transport, self._sending = transport, sending
        self.write, self.is_closing = transport.write, transport.is_closing
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self._dropped = 0
        self._timer: asyncio.TimerHandle | None = None
        self.lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def close(self) -> None:
        if self.is_closing():
            return
        if not self._sending():
            self.end()
            return
        self._disuse()
        self.lingers = True
        self._wait(LINGER_SECONDS)
        self.transport.resume_reading()
        self.transport.write_eof()

    def end(self) -> None:
        """Close it without lingering."""
        self._disuse()
        self.transport.close()

    def drop(self, count: int) -> None:
        """Count bytes that arrived while it lingers; end it after too many."""
        self._dropped += count
        if self._dropped > LINGER_BYTES:
            self.transport.abort()

    def _wait(self, left: float) -> None:
        """Linger on as long as bytes arrive and time is left."""
        before = self._dropped

        def look() -> None:
            if left > IDLE_SECONDS and self._dropped > before:
                self._wait(left - IDLE_SECONDS)
            else:
                self.transport.abort()

        self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, look)

    def lost(self) -> None:
        """Forget the time limit: the connection has ended."""
        self._disuse()
        if self._timer is not None:
            self._timer.cancel()

    def _disuse(self) -> None:
        """Let nothing that the server calls from now on reach the transport."""
        self.write = self.pause_reading = self.resume_reading = lambda *_: None  # type: ignore[assignment]
        self.is_closing = lambda: True


# Longer than clients and load balancers keep an idle connection; else it is closed while a request is on its way.
KEEP_ALIVE_SECONDS = 75
MAX_HEAD_BYTES = 64 * 2**10  # more than any browser sends; counted after the first read
BREAK_OFF = "petrov.break_off"  # an extension of ASGI: its `call` ends a response before its end
DRAINED = "petrov.drained"  # another: its `call` returns once the client has read what was sent, or the connection ends
SLOW, LARGE = "408 Request Timeout", "431 Request Header Fields Too Large"


class Connection(HttpToolsProtocol):
    """One connection of a client.

    A head may take so many `seconds` to arrive, and a response may lie so long without a byte of it being read.
    """

    seconds: ClassVar[float]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # so is uvicorn's
        self._lingering = LingeringTransport(transport, self._sending)
        super().connection_made(self._lingering)  # type: ignore[arg-type]  # all that it uses is there
        self._unread: asyncio.TimerHandle | None = None
        self._in_head, self._head_bytes = False, 0
        self._deadline = self.loop.call_later(self.seconds, self._refuse, SLOW)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._lingering.lost()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._lingering.lingers:
            self._lingering.drop(len(data))
            return
        self._head_bytes += len(data) * self._in_head
        super().data_received(data)
        if self._in_head:
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(LARGE)
        elif self._deadline.cancelled() and (self.cycle is None or self.cycle.response_complete):
            # Bytes that begin no request end uvicorn's own timer, too.
            self._deadline = self.loop.call_later(KEEP_ALIVE_SECONDS, self._refuse, SLOW)

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._deadline.cancel()
        self._deadline = self.loop.call_later(self.seconds, self._refuse, SLOW)
        super().on_message_begin()
        self.scope["extensions"] = {BREAK_OFF: {"call": self._break_off}, DRAINED: {"call": self.flow.drain}}

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._deadline.cancel()
        super().on_headers_complete()
        self.headers = deque(maxlen=0)  # type: ignore[assignment]  # what follows are trailers, which are ignored

    def shutdown(self) -> None:
        """End a connection without a response to wait for at once, whatever the client still sends."""
        if self.cycle is None or self.cycle.response_complete:
            self._lingering.end()
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def _break_off(self) -> None:
        """Close the connection in the middle of a response, once what is written has been sent.

        uvicorn does the same for a response that its application leaves incomplete, and logs it as an error.
        """
        self.cycle.disconnected = True
        self.transport.close()

    def _sending(self) -> bool:
        """Return whether the client may be in the middle of a request."""
        return self._in_head or (self.cycle is not None and self.cycle.more_body)

    def _refuse(self, status: str) -> None:
        """Close the connection, with a response to a client that has begun a request and waits for no other.

        Only a client that is not slow may still send for a while.
        """
        busy = self.transport.is_closing() or (self.cycle is not None and not self.cycle.response_complete)
        if self._in_head and not busy:
            self.transport.write(f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".encode())
        if status == SLOW:
            self._lingering.end()
        else:
            self.transport.close()

    def _expect_reading(self) -> None:
        """End the connection of a client that reads nothing of what is left for a while."""
        before = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() < before:
                self._expect_reading()
            else:
                self.transport.abort()

        self._unread = self.loop.call_later(self.seconds, look)


def configuration(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Return how uvicorn serves an application at the address of the settings."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=type("Connection", (Connection,), {"seconds": settings.receive_seconds}),  # uvicorn instantiates the class
        ws="none",  # an upgrade is ignored, as HTTP allows
        log_config=None,
        log_level="warning",
        access_log=False,  # the application writes its own log
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
    )
