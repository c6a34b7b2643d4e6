"""The configuration of uvicorn, with limits on slow clients.

The head of a request is limited in time and size (408 and 431), connections by the files that may be open (503), and a
response that the client does not read is dropped after a time; `serving.protocols.over_http` limits the body. Uvicorn
has no setting for these, granian and hypercorn none for unread responses, so uvicorn's protocol class is extended here
although it is not public. The methods below are called as asyncio and httptools document them. Uvicorn's other classes
are no more public, and need the same. That for h11 reads the body of a request that offers an upgrade, but takes ten
times as long for one of 30 kB, and zttp has no stable version yet.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, ClassVar

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving import system
from serving.errors import MEDIA_TYPE, Problem
from serving.settings import Settings

logger = logging.getLogger(__name__)
LINGER_BYTES = 256 * 2**20  # four times the largest body by default
LINGER_SECONDS, IDLE_SECONDS = 30.0, 5.0  # in all, and without a byte
LINGER_PAUSE = 0.002  # between two reads of what is dropped, some 250 KB each
# Longer than clients and load balancers keep an idle connection; else it is closed while a request is on its way.
KEEP_ALIVE_SECONDS = 75
MAX_HEAD_BYTES = 64 * 2**10  # more than any browser sends; counted after the first read
BREAK_OFF = "petrov.break_off"  # an extension of ASGI: its `call` ends a response before its end
DRAINED = "petrov.drained"  # another: its `call` returns once the client has read what was sent, or the connection ends
SLOW, LARGE = "408 Request Timeout", "431 Request Header Fields Too Large"
FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
FULL_SECONDS = 60.0  # between two warnings that no file is left for another client
MOST_AHEAD = 100  # requests of a connection that wait for the responses to earlier ones, 3 KB each


class Outlet:
    """The transport as uvicorn uses it: `close` is the connection's own, and nothing that follows it has an effect."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.close, self.get_extra_info = close, transport.get_extra_info
        self.write, self.is_closing = transport.write, transport.is_closing
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading

    def disuse(self) -> None:
        self.write = self.pause_reading = self.resume_reading = lambda *_: None  # type: ignore[assignment]
        self.is_closing = lambda: True


class Parser(httptools.HttpRequestParser):
    """The parser of a connection's requests, to which an offer to upgrade is no end of HTTP.

    httptools skips the body of a request that offers one, which a server may ignore (RFC 9110, section 7.8). The
    connection keeps how that body is framed, and the parser reads on as behind a head that says only this.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._connection = connection

    def feed_data(self, data: bytes | bytearray | memoryview) -> None:  # type: ignore[override]  # no arrays are fed
        rest = memoryview(data)
        while rest:
            try:
                super().feed_data(rest)
            except httptools.HttpParserError as error:
                if self._connection.fault is None:
                    detail = f"the request is not HTTP/1.1: {error}"
                    self._connection.fault = Problem("unreadable-request", detail)
                raise
            except httptools.HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
                if self._connection.framing:
                    self._connection.repeats = True
                    super().feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % self._connection.framing)
            else:
                return


class Connection(HttpToolsProtocol):
    """One connection of a client.

    A head may take so many `seconds` to arrive, and a response may lie so long without a byte of it being read. A
    connection that ends while the client may be in the middle of a request lingers: what arrives is dropped for a
    while, so that the client reads the response. One whose descriptor is none of the first `files` is refused: those
    behind are for the gateway, which would lose Triton and its repository if clients had them all. Of requests that are
    sent ahead of responses, `MOST_AHEAD` are answered; uvicorn keeps all that a client sends.
    """

    seconds: ClassVar[float]
    files: ClassVar[float]
    warned: ClassVar[float] = -math.inf
    framing = b""  # headers of the body of a request that offers an upgrade
    repeats = False  # whether a head is parsed that only repeats them
    fault: Problem | None = None  # why what arrived is not read

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.parser = Parser(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # so is uvicorn's
        self._wire, self._outlet = transport, Outlet(transport, self._close)
        super().connection_made(self._outlet)  # type: ignore[arg-type]  # all that it uses is there
        self._lingers, self._dropped, self._ignores = False, 0, False
        self._in_head, self._head_bytes = False, 0
        self._deadline = self.loop.call_later(self.seconds, self._refuse, SLOW)
        self._progress: asyncio.TimerHandle | None = None
        if transport.get_extra_info("socket").fileno() >= self.files:
            self._outlet.write(FULL)
            self._end()
            if self.loop.time() > type(self).warned + FULL_SECONDS:
                type(self).warned = self.loop.time()
                logger.warning("clients are refused: of the files that may be open, %d are (ulimit -n)", self.files)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        if self._progress is not None:
            self._progress.cancel()
        self._outlet.disuse()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._lingers:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self._wire.abort()
            elif not self._wire.is_closing():  # libuv reads up to 32 times before it turns to another connection
                self._wire.pause_reading()
                self.loop.call_later(LINGER_PAUSE, self._resume)
            return
        if self._ignores:
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
        if self.repeats:
            return
        if len(self.pipeline) >= MOST_AHEAD:
            self.fault = Problem("unreadable-request", f"more than {MOST_AHEAD} requests wait for their responses")
            raise self.fault  # which ends the parser
        self._in_head, self._head_bytes = True, 0
        self._deadline.cancel()
        self._deadline = self.loop.call_later(self.seconds, self._refuse, SLOW)
        super().on_message_begin()
        self.scope["extensions"] = {BREAK_OFF: {"call": self._break_off}, DRAINED: {"call": self.flow.drain}}

    def on_url(self, url: bytes) -> None:
        if not self.repeats:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.repeats:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.repeats:
            self.repeats, self.framing = False, b""
            return
        self._deadline.cancel()
        said = b",".join(value for name, value in self.headers if name == b"transfer-encoding").decode("latin-1")
        codings = [each for each in map(str.strip, said.lower().split(",")) if each]
        if len(codings) > 1 and codings[-1] == "chunked":  # else the parser refuses it, since the body has no end
            detail = f'expected Transfer-Encoding chunked but got "{", ".join(codings)[:64]}"'
            self.fault = Problem("unknown-coding", detail)
            raise self.fault  # which ends the parser
        self._in_head = False
        super().on_headers_complete()
        if self.parser.should_upgrade():
            framing = {b"content-length", b"transfer-encoding"}
            self.framing = b"".join(b"%b: %b\r\n" % header for header in self.headers if header[0] in framing)
        self.headers = deque(maxlen=0)  # type: ignore[assignment]  # what follows are trailers, which are ignored

    def on_message_complete(self) -> None:
        if not self.framing:  # else the body is still to come
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  which is the same for every fault
        """Close the connection of a client that does not speak HTTP, behind a response that has begun or a problem.

        Whole requests before it that still wait are answered first.
        """
        if self.pipeline:
            self._deadline.cancel()
            self.cycle.keep_alive, self._ignores = False, True
            self._in_head = True  # so that the connection lingers behind the last response
            return
        unanswered = self.cycle is None or self.cycle.response_complete or not self.cycle.response_started
        if self.fault is not None and unanswered:
            status, body = HTTPStatus(self.fault.status), self.fault.details().model_dump_json(exclude_none=True)
            about = f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            self._outlet.write(f"HTTP/1.1 {status} {status.phrase}\r\n{about}{body}".encode())
        self._close()

    def shutdown(self) -> None:
        """End a connection without a response to wait for at once, whatever the client still sends."""
        if self.cycle is None or self.cycle.response_complete:
            self._end()
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect(lambda: -self._wire.get_write_buffer_size(), self.seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._progress is not None:
            self._progress.cancel()

    def _break_off(self) -> None:
        """Close the connection in the middle of a response, once what is written has been sent.

        uvicorn does the same for a response that its application leaves incomplete, and logs it as an error.
        """
        self.cycle.disconnected = True
        self._close()

    def _refuse(self, status: str) -> None:
        """Close the connection, with a response to a client that has begun a request and waits for no other.

        Only a client that is not slow may still send for a while.
        """
        busy = self._outlet.is_closing() or (self.cycle is not None and not self.cycle.response_complete)
        if self._in_head and not busy:
            self._outlet.write(f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".encode())
        if status == SLOW:
            self._end()
        else:
            self._close()

    def _close(self) -> None:
        """Close the connection, at once or after lingering."""
        if self._outlet.is_closing():
            return
        if not self._in_head and (self.cycle is None or not self.cycle.more_body):
            self._end()
            return
        self._outlet.disuse()
        self._lingers = True
        self._expect(lambda: self._dropped, IDLE_SECONDS, LINGER_SECONDS)
        self._wire.resume_reading()
        self._wire.write_eof()

    def _resume(self) -> None:
        if not self._wire.is_closing():
            self._wire.resume_reading()

    def _end(self) -> None:
        self._outlet.disuse()
        self._wire.close()

    def _expect(self, count: Callable[[], int], seconds: float, left: float = math.inf) -> None:
        """End the connection when a count has not grown for so many seconds, or when no time is left."""
        before = count()

        def look() -> None:
            if left > seconds and count() > before:
                self._expect(count, seconds, left - seconds)
            else:
                self._wire.abort()

        self._progress = self.loop.call_later(seconds, look)


def configuration(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Return how uvicorn serves an application at the address of the settings."""
    of_connections = {"seconds": settings.receive_seconds, "files": system.files_of_clients()}
    return uvicorn.Config(
        app,
        host="" if settings.host == "::" else settings.host,  # asyncio's name for all addresses of both families
        port=settings.port,
        http=type("Connection", (Connection,), of_connections),  # uvicorn instantiates the class
        ws="none",  # an upgrade is ignored, as HTTP allows
        log_config=None,
        log_level="warning",
        access_log=False,  # the application writes its own log
        server_header=False,
        proxy_headers=False,  # `serving.address` reads them
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
    )
