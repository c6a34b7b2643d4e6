"""Kept connections, held against servers that split, lie, hang and leave."""

from __future__ import annotations

import asyncio
import gc
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.problem_details import TritonUnavailable
from serving.triton.client import TritonInference
from serving.triton.http_connection import MAX_HEAD_BYTES, BrokenConnectionError, HttpConnections, NotHttpError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from serving.triton.server import TritonServer

    Behaviour = Callable[["Server", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

SPLIT = b"head-bytes"
MOST = 2**20
ANSWER = b"HTTP/1.1 200 OK\r\nHead-Bytes: 5\r\nContent-Length: 13\r\n\r\nwhat:12345678"


class Server:
    """Speaks by a script.

    Attributes:
        connections: How many have been opened.
        requests: How many have come.
        left: Set when a client has closed its connection.
    """

    def __init__(self, behave: Behaviour) -> None:
        self.connections = self.requests = 0
        self.left = asyncio.Event()
        self._behave = behave

    async def listen(self, reader: asyncio.StreamReader) -> None:
        """Until a request without a body has come.

        Raises:
            asyncio.IncompleteReadError: The client has left.
        """
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._behave(self, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            writer.close()


@asynccontextmanager
async def serving(behave: Behaviour) -> AsyncIterator[tuple[Server, HttpConnections]]:
    server = Server(behave)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        connections = HttpConnections(f"{host}:{port}", SPLIT, MOST)
        try:
            yield server, connections
        finally:
            connections.close()


def always(answer: bytes, *, then_leave: bool = False) -> Behaviour:
    """Give the same answer to every request."""

    async def behave(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.listen(reader)
            writer.write(answer)
            await writer.drain()
            if then_leave:
                return

    return behave


@given(cuts=st.lists(st.integers(0, len(ANSWER)), max_size=5))
@settings(max_examples=50, deadline=None)
def test_an_answer_is_the_same_wherever_it_is_cut(cuts: list[int]) -> None:
    async def behave(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.listen(reader)
        places = [0, *sorted(cuts), len(ANSWER)]
        for start, end in pairwise(places):
            writer.write(ANSWER[start:end])
            await writer.drain()
            await asyncio.sleep(0)

    async def ask() -> None:
        async with serving(behave) as (_, connections):
            answer = await connections.ask("GET", "/", {})
            assert (answer.status, bytes(answer.head), bytes(answer.data)) == (200, b"what:", b"12345678")
            assert np.frombuffer(answer.data, np.float32).flags.aligned

    asyncio.run(ask())


async def test_what_is_sent_arrives_piece_after_piece() -> None:
    pieces = [b"head", memoryview(np.arange(300_000, dtype=np.float32).view(np.uint8)), b""]
    said = b"".join(bytes(piece) for piece in pieces)

    async def behave(_: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        assert lines[0] == "POST /path HTTP/1.1"
        assert {f"Content-Length: {len(said)}", "Head-Bytes: 4"} <= set(lines)
        echo = await reader.readexactly(len(said))
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(echo)}\r\n\r\n".encode() + echo)
        await writer.drain()

    async with serving(behave) as (server, connections):
        roomy = HttpConnections(connections.address, SPLIT, len(said))
        answer = await roomy.ask("POST", "/path", {"Head-Bytes": 4}, pieces)
        assert bytes(answer.data) == said
        assert server.connections == 1


async def test_one_connection_carries_request_after_request_and_two_carry_two_at_a_time() -> None:
    async with serving(always(ANSWER)) as (server, connections):
        for _ in range(3):
            await connections.ask("GET", "/", {})
        assert (server.connections, server.requests) == (1, 3)
        await asyncio.gather(*(connections.ask("GET", "/", {}) for _ in range(2)))
        await asyncio.gather(*(connections.ask("GET", "/", {}) for _ in range(2)))
        assert (server.connections, server.requests) == (2, 7)


async def test_a_kept_connection_that_the_server_has_left_costs_nothing() -> None:
    left = asyncio.Event()

    async def behave(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.listen(reader)
        writer.write(ANSWER)
        await writer.drain()
        if server.connections == 1:
            await server.listen(reader)  # and leaves in place of the second answer
            left.set()
        else:
            await server.listen(reader)

    async with serving(behave) as (server, connections):
        await connections.ask("GET", "/", {})
        answer = await connections.ask("GET", "/", {})
        assert left.is_set()
        assert answer.status == 200
        assert server.connections == 2


async def test_a_new_connection_that_breaks_is_not_tried_for_ever() -> None:
    async def behave(server: Server, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await server.listen(reader)

    async with serving(behave) as (server, connections):
        with pytest.raises(BrokenConnectionError):
            await connections.ask("GET", "/", {})
        assert server.requests == 1


async def test_half_an_answer_is_none_and_is_not_asked_for_again() -> None:
    async with serving(always(ANSWER[:-1], then_leave=True)) as (server, connections):
        with pytest.raises(BrokenConnectionError, match="closed"):
            await connections.ask("GET", "/", {})
        assert server.requests == 1


async def test_a_server_that_says_it_leaves_is_not_asked_again_there() -> None:
    last = ANSWER.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
    async with serving(always(last)) as (server, connections):
        for _ in range(2):
            assert bytes((await connections.ask("GET", "/", {})).data) == b"12345678"
        assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x00\x18\x04\x00\x00\x00\x00\x00" + bytes(24),  # how gRPC begins
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nHead-Bytes: 6\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.1 200 OK\r\nHead-Bytes: x\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + bytes(2 * MAX_HEAD_BYTES).replace(b"\0", b"x"),
        ANSWER + ANSWER,
    ],
    ids=["grpc", "ssh", "negative", "too large", "head beyond the body", "no number", "chunked", "no end", "twice"],
)
async def test_what_is_no_answer_is_refused_and_the_connection_with_it(answer: bytes) -> None:
    async with serving(always(answer)) as (server, connections):
        with pytest.raises(NotHttpError):
            await connections.ask("GET", "/", {})
        await asyncio.wait_for(server.left.wait(), 10)


async def test_who_waits_no_longer_closes_the_connection() -> None:
    async def behave(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.listen(reader)
        if server.connections > 1:
            writer.write(ANSWER)
        await server.listen(reader)

    async with serving(behave) as (server, connections):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await connections.ask("GET", "/", {})
        await asyncio.wait_for(server.left.wait(), 10)
        assert (await connections.ask("GET", "/", {})).status == 200
        assert server.connections == 2


async def test_an_answer_is_forgotten_with_its_last_holder() -> None:
    large = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % MOST + b"x" * MOST
    process = psutil.Process()
    gc.disable()
    try:
        async with serving(always(large)) as (_, connections):
            await connections.ask("GET", "/", {})
            before = process.memory_info().rss
            for _ in range(64):
                assert len((await connections.ask("GET", "/", {})).data) == MOST
            assert process.memory_info().rss - before < 32 * MOST
    finally:
        gc.enable()


async def test_grpc_in_place_of_http_is_named(triton: TritonServer, caplog: pytest.LogCaptureFixture) -> None:
    async with TritonInference(f"127.0.0.1:{triton.settings.triton_grpc_port}", MOST) as inference:
        for _ in range(2):
            with pytest.raises(TritonUnavailable, match="is no Triton; its HTTP port is expected"):
                await inference.loaded()
    assert caplog.text.count("is no Triton") == 1
