"""Compressed bodies in both directions, where the setting allows them: gzip (RFC 9110) and zstd (RFC 8878).

A request's body is inflated in pieces, in threads, and counted as what it becomes: one that would become too large is
refused at the piece that passes the limit.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Any

from backports.zstd import DecompressionParameter, ZstdCompressor, ZstdDecompressor, ZstdError
from starlette.datastructures import Headers
from starlette.middleware.gzip import IdentityResponder
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.errors import Problem
from serving.limits import Ticket
from serving.settings import ENCODINGS

PIECE_BYTES = 2**20
_WINDOW_LOG = 23  # the largest that RFC 9659 lets HTTP have, 8 MiB
#: Memory to inflate a body beside the body itself, which is as much of it as was inflated last.
WINDOW = {"zstd": 2**_WINDOW_LOG, "gzip": 2**15}
MOST_PARTS = 4096  # one behind another: an empty one, of nine bytes, takes as long as 70 KB that are inflated
_LEAST_BYTES = 1024  # of a response that is worth compressing
_SMALL_BYTES = 2**17  # of what is compressed on the event loop, in a millisecond
_GZIP = 16 + zlib.MAX_WBITS
#: Memory of a compressor, once as much has passed as its window holds.
_COMPRESSOR = {"zstd": 7 * 2**19, "gzip": 2**18}


class _Gunzip:
    """Python's decompressor of gzip in the shape of its others."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP)
        self.needs_input = True

    def decompress(self, data: bytes, max_length: int) -> bytes:
        found = self._stream.decompress(self._stream.unconsumed_tail + data, max_length)
        self.needs_input = len(found) < max_length
        return found

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data


def _unzstd() -> ZstdDecompressor:
    return ZstdDecompressor(options={DecompressionParameter.window_log_max: _WINDOW_LOG})


_INFLATE: dict[str, Callable[[], _Gunzip | ZstdDecompressor]] = {"gzip": _Gunzip, "zstd": _unzstd}


async def inflated(encoding: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a body in pieces of at most `PIECE_BYTES`, or refuse it (`unreadable-body`)."""
    stream, parts = _INFLATE[encoding](), 1

    def pieces(data: bytes) -> Iterator[bytes]:
        nonlocal stream, parts
        while data or not (stream.eof or stream.needs_input):
            if stream.eof:
                stream, parts = _INFLATE[encoding](), parts + 1  # both formats may be several, one behind another
                if parts > MOST_PARTS:
                    raise Problem("unreadable-body", f"the body has more than {MOST_PARTS} parts of {encoding}")
            found = stream.decompress(data, PIECE_BYTES)
            data = stream.unused_data if stream.eof else b""
            if found:
                yield found

    try:
        async for chunk in chunks:
            found = pieces(chunk)
            while (piece := await asyncio.to_thread(next, found, None)) is not None:
                yield piece
    except (zlib.error, ZstdError) as error:
        raise Problem("unreadable-body", f"the body is not {encoding}: {error}") from error
    if not stream.eof:
        raise Problem("unreadable-body", f"the body ends within its {encoding}")


def field(headers: Headers, name: str, default: str = "") -> str:
    """Return the value of a header, whose lines are one list (RFC 9110, section 5.3)."""
    lines = headers.getlist(name)
    return ", ".join(lines) if lines else default


def weights(header: str) -> dict[str, float]:
    """Return the names that a header such as `Accept` prefers, each with its weight."""
    found: dict[str, float] = {}
    for part in header.split(",")[:32]:
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        texts = [parameter[2:] for parameter in parameters if parameter.startswith("q=")] or ["1"]
        try:
            found[name] = float(texts[0])
        except ValueError:
            found[name] = 0.0
    return found


class Compression:
    """ASGI middleware that compresses responses with the encoding that the client prefers among those allowed."""

    def __init__(self, app: ASGIApp, encodings: Collection[str]) -> None:
        self._app, self._encodings = app, [each for each in ENCODINGS if each in encodings]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            wanted = weights(field(Headers(scope=scope), "accept-encoding"))
            quality = {each: wanted.get(each, wanted.get("*", 0.0)) for each in self._encodings}
            best = max(self._encodings, key=lambda each: quality[each])
            if quality[best] > 0:
                app = _Compressed(app, best, scope["state"]["ticket"])
            else:
                app = IdentityResponder(app, _LEAST_BYTES)  # which says that there are others
        await app(scope, receive, send)


class _Compressed(IdentityResponder):
    """One response in an encoding; its compressor and the second copy of what is being compressed are counted, too."""

    def __init__(self, app: ASGIApp, encoding: str, ticket: Ticket) -> None:
        super().__init__(app, _LEAST_BYTES)
        self.content_encoding, self._ticket = encoding, ticket
        self._compress: Callable[[bytes, bool], bytes] | None = None

    async def apply_compression(self, body: bytes, *, more_body: bool) -> bytes:
        if self._compress is None:
            self._compress = _DEFLATE[self.content_encoding]()
            self._ticket.add(_COMPRESSOR[self.content_encoding])
        size = len(body)
        self._ticket.add(size)
        try:
            if size < _SMALL_BYTES:
                return self._compress(body, more_body)
            return await asyncio.to_thread(self._compress, body, more_body)
        finally:
            self._ticket.add(-size)
            if not more_body:  # the client may take long to read the rest
                self._compress = None
                self._ticket.add(-_COMPRESSOR[self.content_encoding])


def _zstd() -> Callable[[bytes, bool], bytes]:
    stream = ZstdCompressor()

    def compress(body: bytes, more: bool) -> bytes:
        return stream.compress(body, stream.FLUSH_BLOCK if more else stream.FLUSH_FRAME)

    return compress


def _gzip() -> Callable[[bytes, bool], bytes]:
    stream: Any = zlib.compressobj(
        1, zlib.DEFLATED, _GZIP
    )  # higher levels take several times as long for a few per cent
    return lambda body, more: stream.compress(body) + stream.flush(zlib.Z_SYNC_FLUSH if more else zlib.Z_FINISH)


_DEFLATE = {"zstd": _zstd, "gzip": _gzip}
