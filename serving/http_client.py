"""The connections to Triton's port for HTTP: a request of buffers, and its reply as one piece of aligned memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from serving.document import JSON_BYTES

Buffer = bytes | memoryview
_JOINED_BYTES = 2**18  # up to here one copy and one write are cheaper than one write per buffer
_APART_BYTES = 2**20  # from here on `bytes.join` lets other threads run


class InvalidReplyError(ConnectionError):
    """The reply is not HTTP, or larger than allowed."""


class LargeReplyError(InvalidReplyError):
    """The reply is larger than allowed."""


@dataclass(frozen=True)
class Reply:
    """A complete reply; `head` is the part of the body that the header `JSON_BYTES` counts, `data` what follows.

    These are in memory that is aligned for arrays of any type.
    """

    status: int
    head: bytes
    data: bytes


class HttpClient:
    """Keep-alive connections to one address, as many as there are concurrent requests, by aiohttp.

    A client of our own on `httptools` saved a fifth of the gateway's time per request, for 110 lines. The body of a
    reply has at most `max_bytes`. Before each connection, `check` may raise an OSError.
    """

    def __init__(self, address: str, max_bytes: int, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self.on_retry: Callable[[], object] = lambda: None
        self.address = address
        self._max_bytes = max_bytes
        self._urls: dict[str, URL] = {}
        self._sessions: dict[bool, aiohttp.ClientSession] = {}  # by whether every call has a new connection

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()

    def _socket(self, target: tuple[Any, ...]) -> socket.socket:
        """Return a socket for a new connection, where one may be made now."""
        self._check()
        return socket.socket(*target[:3])

    async def request(self, method: str, path: str, headers: Mapping[str, str], body: Sequence[Buffer] = ()) -> Reply:
        """Send a request and read the whole reply; once more if its connection is lost: Triton's calls are repeatable.

        The path is quoted already; the buffers make up the body. A ConnectionError: the address cannot be reached, or
        the connection ended before the reply did; an InvalidReplyError: the reply is not HTTP or too large.
        """
        try:
            try:
                return await self._send(method, path, headers, body)
            except aiohttp.ClientConnectorError:
                raise
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                self.on_retry()  # on a new connection: where one that was kept is lost, the others may be, too
                return await self._send(method, path, headers, body, new=True)
        except aiohttp.ClientResponseError as error:
            raise InvalidReplyError(f"the reply is not HTTP: {error.message}") from error
        except asyncio.IncompleteReadError as error:
            raise InvalidReplyError(f"header {JSON_BYTES} is larger than the reply") from error
        except aiohttp.ClientError as error:
            raise ConnectionError(str(error)) from error

    async def _send(
        self, method: str, path: str, headers: Mapping[str, str], body: Sequence[Buffer], *, new: bool = False
    ) -> Reply:
        if new not in self._sessions:  # without limits: the gateway bounds requests, their time and their size
            self._sessions[new] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=new, socket_factory=self._socket),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                read_bufsize=2**22,  # of a body that has arrived: at 64 KiB, reading would pause many times a field
            )
        size = sum(map(len, body))
        data = (b"".join(body) if size <= _JOINED_BYTES else _each(body)) if body else None
        headers = {**headers, "Content-Length": str(size)}  # else what is sent piece by piece would have none
        url = self._urls.get(path) or self._urls.setdefault(path, URL(f"http://{self.address}{path}", encoded=True))
        async with self._sessions[new].request(method, url, headers=headers, data=data) as response:
            try:
                count, length = int(response.headers.get(JSON_BYTES, 0)), response.content_length
            except ValueError as error:
                raise InvalidReplyError(f"header {JSON_BYTES}: {error}") from error
            if not 0 <= count <= (self._max_bytes if length is None else length):
                raise InvalidReplyError(f"header {JSON_BYTES} is {count} in a reply of {length} bytes")
            size, blocks = length or count, list[bytes]()
            head = await response.content.readexactly(count) if size <= self._max_bytes else b""
            while size <= self._max_bytes:
                if not (block := await response.content.readany()):
                    large = size > _APART_BYTES  # the event loop serves others meanwhile
                    joined = await asyncio.to_thread(b"".join, blocks) if large else b"".join(blocks)
                    return Reply(response.status, head, joined)  # a copy, aligned unlike a slice
                blocks.append(block)
                size = len(head) + sum(map(len, blocks))
            raise LargeReplyError(f"the reply has {size} bytes or more; the limit is {self._max_bytes}")


async def _each(buffers: Sequence[Buffer]) -> AsyncIterator[Buffer]:
    for buffer in buffers:
        yield buffer
