"""An address in, answers to HTTP requests out: kept connections that carry arrays without a copy of their own.

A gateway that asks for a field and passes it on spends its time in moving bytes; here they go from the array to the
socket, and from the socket to the memory that the answering array keeps. `httptools`, on which uvicorn stands, reads
the heads. A connection carries one request at a time, and one whose answer is not waited for is closed, by which the
server learns that nobody does.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import httptools

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Buffer = bytes | memoryview

LENGTH, ALIGNMENT = b"content-length", 64
MAX_HEAD_BYTES = 64 * 2**10


class BrokenConnectionError(ConnectionError):
    """The connection ended before the answer did.

    Attributes:
        unheard: Whether not a byte of it had come, as when the server had closed the connection before it was asked.
    """

    def __init__(self, what: str, *, unheard: bool) -> None:
        super().__init__(what)
        self.unheard = unheard


class NotHttpError(ConnectionError):
    """Something came that is no answer in HTTP, or none that we take."""


@dataclass(frozen=True)
class Answer:
    """What came back.

    Attributes:
        status: Of HTTP.
        headers: By their names in lower case.
        head: The first bytes of the body, as many as `split` says.
        data: Those after them; their memory is aligned for arrays of any type.
    """

    status: int
    headers: Mapping[bytes, bytes]
    head: memoryview
    data: memoryview


class _Reader:
    """An answer while it arrives; its methods are called by the parser, which takes any error of theirs for its own.

    Args:
        split: The header that says how many bytes of the body come before its data.
        max_bytes: The largest body.

    Attributes:
        answer: Once it is complete.
        heard: Bytes that have come.
        in_head: Whether it has not got as far as its body.
        last: Whether the server closes the connection behind it.
    """

    def __init__(self, split: bytes, max_bytes: int) -> None:
        self.answer: Answer | None = None
        self.heard = 0
        self.in_head = True
        self.last = False
        self._split = split
        self._max_bytes = max_bytes
        self._headers = dict[bytes, bytes]()
        self._parser = httptools.HttpResponseParser(self)

    def read(self, data: bytes) -> None:
        """Go on with what has arrived.

        Raises:
            NotHttpError: It is no answer, or too large a one.
        """
        self.heard += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise NotHttpError(f"what came is no answer in HTTP: {error.__context__ or error}") from error
        if self.in_head and self.heard > MAX_HEAD_BYTES:
            raise NotHttpError(f"{self.heard} bytes came, and no end of the head")
        if self.answer:
            del self._parser  # which holds us: the body would wait for the garbage collector

    def on_message_begin(self) -> None:
        if self.answer:
            raise ValueError("another answer behind the one that was asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        length, head = (int(self._headers.get(name, b"0")) for name in (LENGTH, self._split))
        if not 0 <= head <= length <= self._max_bytes:
            raise ValueError(f"{length} bytes of body, {head} of them its head; the limit is {self._max_bytes}")
        self.in_head = False
        self._at = self._start = -head % ALIGNMENT
        self._data = self._start + head
        self._body = bytearray(self._start + length)

    def on_body(self, body: bytes) -> None:
        end = self._at + len(body)
        if end > len(self._body):
            raise ValueError("more bytes of body than Content-Length says")
        self._body[self._at : end] = body
        self._at = end

    def on_message_complete(self) -> None:
        body, status = memoryview(self._body), self._parser.get_status_code()
        self.last = not self._parser.should_keep_alive()
        self.answer = Answer(status, self._headers, body[self._start : self._data], body[self._data :])


class HttpConnection(asyncio.Protocol):
    """One connection; its methods besides `ask` and `close` are called by the event loop.

    Args:
        split: The header that says how many bytes of a body come before its data.
        max_bytes: The largest body.

    Attributes:
        closed: Whether it can be asked no more.
    """

    def __init__(self, split: bytes, max_bytes: int) -> None:
        self.closed = False
        self._limits = split, max_bytes
        self._answer: asyncio.Future[Answer] | None = None

    async def ask(self, head: bytes, parts: Sequence[Buffer]) -> Answer:
        """Send a request, wait for its answer.

        Args:
            head: Request line and headers, with the length of the body.
            parts: The body, piece after piece.

        Raises:
            BrokenConnectionError: The connection ended.
            NotHttpError: What came is no answer, or too large a one.
        """
        self._reader = _Reader(*self._limits)
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.writelines((head, *parts))
        try:
            return await self._answer
        finally:
            self._answer = None
            del self._reader

    def close(self) -> None:
        """At once, whatever is under way."""
        self.closed = True
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's is none by its class

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._answer is not None:
            unheard = not self._reader.heard
            self._fail(BrokenConnectionError(f"the server closed the connection ({exc})", unheard=unheard))

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():  # what it says unasked could not be told from the next answer
            self.close()
            return
        try:
            self._reader.read(data)
        except NotHttpError as error:
            self._fail(error)
            self.close()
            return
        if self._reader.answer:
            self._answer.set_result(self._reader.answer)
            if self._reader.last:
                self.close()

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


class HttpConnections:
    """Connections to one address; as many as there are requests at one time.

    Args:
        address: `HOST:PORT`.
        split: The header that says how many bytes of a body come before its data.
        max_bytes: The largest body of an answer.
    """

    def __init__(self, address: str, split: bytes, max_bytes: int) -> None:
        self.address = address
        self._split = split
        self._max_bytes = max_bytes
        self._idle: list[HttpConnection] = []

    def close(self) -> None:
        """Those that carry no request."""
        while self._idle:
            self._idle.pop().close()

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str | int], parts: Sequence[Buffer] = ()
    ) -> Answer:
        """The answer to a request that may be made twice.

        Args:
            method: Of HTTP.
            path: As it goes into the request line.
            headers: Besides `Host` and `Content-Length`.
            parts: The body.

        Raises:
            OSError: Nobody answers, or not in HTTP.
        """
        lines = {"Host": self.address, "Content-Length": sum(len(part) for part in parts), **headers}
        fields = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        head = f"{method} {path} HTTP/1.1\r\n{fields}\r\n".encode("latin-1")
        while kept := self._kept():
            try:
                return await self._ask(kept, head, parts)
            except BrokenConnectionError as error:
                if not error.unheard:
                    raise
        return await self._ask(await self._connect(), head, parts)

    async def _ask(self, connection: HttpConnection, head: bytes, parts: Sequence[Buffer]) -> Answer:
        """Ask, and keep the connection unless it is closed or its answer is still to come."""
        try:
            answer = await connection.ask(head, parts)
        except BaseException:
            connection.close()
            raise
        if not connection.closed:
            self._idle.append(connection)
        return answer

    def _kept(self) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return None

    async def _connect(self) -> HttpConnection:
        host, _, port = self.address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: HttpConnection(self._split, self._max_bytes), host.strip("[]"), int(port)
        )
        return connection
