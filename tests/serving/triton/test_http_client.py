"""The client's connections against servers that split their replies, send garbage, hang and disconnect."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise

import numpy as np
import onnx.helper as make
import onnxruntime
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from serving import system
from serving.document import JSON_BYTES
from serving.failures import lack
from serving.http_client import HttpClient, InvalidReplyError
from serving.local_triton.server import TritonServer
from serving.triton import Run, Triton
from tests.refusals import refused

Behaviour = Callable[["Server", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

MAX_BYTES = 2**20
REPLY = b"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 5\r\nContent-Length: 13\r\n\r\nwhat:12345678"


class Server:
    """A server that follows a script.

    Attributes:
        connections: How many have been opened.
        requests: How many have come.
        disconnected: Set when a client has closed its connection.
    """

    def __init__(self, behave: Behaviour) -> None:
        self.connections = self.requests = 0
        self.disconnected = asyncio.Event()
        self._behave = behave

    async def receive(self, reader: asyncio.StreamReader) -> None:
        """Wait for a request without a body.

        Raises:
            asyncio.IncompleteReadError: The client has disconnected.
        """
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._behave(self, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.disconnected.set()
        finally:
            writer.close()


@asynccontextmanager
async def serving(behave: Behaviour) -> AsyncIterator[tuple[Server, HttpClient]]:
    server = Server(behave)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        client = HttpClient(f"{host}:{port}", MAX_BYTES)
        try:
            yield server, client
        finally:
            await client.close()


def always(reply: bytes, *, then_close: bool = False) -> Behaviour:
    """Send the same reply to every request."""

    async def behave(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.receive(reader)
            writer.write(reply)
            await writer.drain()
            if then_close:
                return

    return behave


@given(cuts=st.lists(st.integers(0, len(REPLY)), max_size=5))
@settings(max_examples=25, deadline=None)
def test_a_reply_is_the_same_wherever_it_is_cut(cuts: list[int]) -> None:
    async def behave(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.receive(reader)
        for start, end in pairwise([0, *sorted(cuts), len(REPLY)]):
            writer.write(REPLY[start:end])
            await writer.drain()
            await asyncio.sleep(0)
        await server.receive(reader)

    async def check() -> None:
        async with serving(behave) as (_, client):
            reply = await client.request("GET", "/", {})
            assert (reply.status, reply.head, reply.data) == (200, b"what:", b"12345678")
            assert np.frombuffer(reply.data, np.float64).flags.aligned

    asyncio.run(check())


async def test_a_large_reply_is_joined_while_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    apart, to_thread = list[object](), asyncio.to_thread

    async def watched(function: Callable[..., object], *args: object) -> object:
        apart.append(function)
        return await to_thread(function, *args)

    monkeypatch.setattr("serving.http_client._APART_BYTES", 12)
    monkeypatch.setattr(asyncio, "to_thread", watched)
    async with serving(always(REPLY)) as (_, client):  # of 13 bytes
        assert (await client.request("GET", "/", {})).data == b"12345678"
    async with serving(always(REPLY.replace(b"13", b"12")[:-1])) as (_, client):
        assert (await client.request("GET", "/", {})).data == b"1234567"
    assert len(apart) == 1


async def test_a_chunked_reply_is_read() -> None:
    chunked = REPLY.partition(b"\r\nContent-Length")[0] + (
        b"\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nwhat:12\r\n6\r\n345678\r\n0\r\n\r\n"
    )
    async with serving(always(chunked)) as (_, client):
        reply = await client.request("GET", "/", {})
        assert (reply.head, reply.data) == (b"what:", b"12345678")


@pytest.mark.parametrize("values", [300, 200_000])
async def test_buffers_arrive_one_after_another(values: int) -> None:
    buffers = [b"head", memoryview(np.arange(values, dtype=np.float32).view(np.uint8)), b""]
    sent = b"".join(bytes(buffer) for buffer in buffers)

    async def behave(_: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        assert lines[0] == "POST /path HTTP/1.1"
        assert {f"Content-Length: {len(sent)}", "Inference-Header-Content-Length: 4"} <= set(lines)
        echo = await reader.readexactly(len(sent))
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(echo)}\r\n\r\n".encode() + echo)
        await writer.drain()
        await reader.read()

    async with serving(behave) as (_, client):
        assert (await client.request("POST", "/path", {"Inference-Header-Content-Length": "4"}, buffers)).data == sent


async def test_connections_are_kept_and_as_many_as_there_are_concurrent_requests() -> None:
    async with serving(always(REPLY)) as (server, client):
        for _ in range(3):
            await client.request("GET", "/", {})
        assert (server.connections, server.requests) == (1, 3)
        for _ in range(2):
            await asyncio.gather(*(client.request("POST", "/", {}) for _ in range(2)))
        assert (server.connections, server.requests) == (2, 7)


async def test_a_kept_connection_that_the_server_closes_costs_nothing() -> None:
    async def behave(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.receive(reader)
        writer.write(REPLY)
        await writer.drain()
        await server.receive(reader)
        if server.connections > 1:  # the first connection ends in place of the second reply
            writer.write(REPLY)
            await writer.drain()

    async with serving(behave) as (server, client):
        await client.request("POST", "/", {})
        assert (await client.request("POST", "/", {})).status == 200
        assert (server.connections, server.requests) == (2, 3)


async def test_a_request_is_repeated_on_a_new_connection_since_all_kept_ones_may_be_lost() -> None:
    async def behave(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.receive(reader)
        writer.write(REPLY)
        await writer.drain()
        await server.receive(reader)  # each connection ends in place of its second reply

    async with serving(behave) as (server, client):
        await asyncio.gather(*(client.request("POST", "/", {}) for _ in range(2)))
        assert (await client.request("POST", "/", {})).status == 200
        assert (server.connections, server.requests) == (3, 4)


async def test_a_server_that_never_replies_is_not_tried_for_ever() -> None:
    async def behave(server: Server, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await server.receive(reader)

    async with serving(behave) as (server, client):
        with pytest.raises(ConnectionError):
            await client.request("POST", "/", {})
        assert server.requests == 2


async def test_half_a_reply_is_an_error_and_the_request_is_not_repeated() -> None:
    async with serving(always(REPLY[:-1], then_close=True)) as (server, client):
        with pytest.raises(ConnectionError, match="not completed"):
            await client.request("POST", "/", {})
        assert server.requests == 1


async def test_a_connection_that_the_server_wants_closed_is_not_kept() -> None:
    last = REPLY.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
    async with serving(always(last)) as (server, client):
        for _ in range(2):
            assert (await client.request("GET", "/", {})).data == b"12345678"
        assert server.connections == 2


async def test_a_second_reply_is_never_the_next_requests() -> None:
    async with serving(always(REPLY + REPLY.replace(b"1234", b"abcd"))) as (server, client):
        for _ in range(3):
            assert (await client.request("GET", "/", {})).data == b"12345678"
        assert server.connections == 3


@pytest.mark.parametrize(
    "reply",
    [
        b"\x00\x00\x18\x04\x00\x00\x00\x00\x00" + bytes(24),  # how gRPC begins
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\n" + bytes(2**20 + 1) + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2**17,
    ],
    ids=["grpc", "ssh", "negative", "too large", "chunked", "long header"],
)
async def test_an_invalid_reply_is_refused(reply: bytes) -> None:
    async with serving(always(reply)) as (_, client):
        with pytest.raises(InvalidReplyError):
            await client.request("GET", "/", {})


async def test_a_connection_that_does_not_carry_http_is_closed() -> None:
    async with serving(always(b"SSH-2.0-OpenSSH_9.2\r\n")) as (server, client):
        with pytest.raises(InvalidReplyError):
            await client.request("GET", "/", {})
        await asyncio.wait_for(server.disconnected.wait(), 10)


async def test_a_head_that_is_longer_than_a_chunked_body_is_refused() -> None:
    head = b"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    short = head + b"2\r\nwh\r\n0\r\n\r\n"
    async with serving(always(short)) as (_, client):
        with pytest.raises(InvalidReplyError, match="larger than the reply"):
            await client.request("GET", "/", {})


@pytest.mark.parametrize("count", ["14", "-1", "x"])
async def test_a_head_that_does_not_fit_the_body_is_refused(count: str) -> None:
    async with serving(always(REPLY.replace(b"-Length: 5", b"-Length: " + count.encode()))) as (_, client):
        with pytest.raises(InvalidReplyError, match=f"header {JSON_BYTES}"):
            await client.request("GET", "/", {})


async def test_a_cancelled_request_closes_its_connection() -> None:
    async def behave(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.receive(reader)
        if server.connections > 1:
            writer.write(REPLY)
        await server.receive(reader)

    async with serving(behave) as (server, client):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.request("GET", "/", {})
        await asyncio.wait_for(server.disconnected.wait(), 10)
        assert (await client.request("GET", "/", {})).status == 200
        assert server.connections == 2


async def test_a_reply_is_freed_with_its_last_reference() -> None:
    large = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % MAX_BYTES + b"x" * MAX_BYTES
    process = psutil.Process()
    gc.disable()
    try:
        async with serving(always(large)) as (_, client):
            await client.request("GET", "/", {})
            before = process.memory_info().rss
            for _ in range(64):
                assert len((await client.request("GET", "/", {})).data) == MAX_BYTES
            assert process.memory_info().rss - before < 32 * MAX_BYTES
    finally:
        gc.enable()


def test_what_lacks_memory_is_recognised_by_what_libraries_say() -> None:
    """Each library is asked for more than a machine has: 4 PiB."""
    node = make.make_node("ConstantOfShape", ["sizes"], ["field"])
    sizes = make.make_tensor_value_info("sizes", TensorProto.INT64, [1])
    field = make.make_tensor_value_info("field", TensorProto.FLOAT, [None])
    graph = make.make_graph([node], "large", [sizes], [field])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    calls: tuple[Callable[[], object], ...] = (
        lambda: np.empty(2**50, np.float32),
        lambda: torch.empty(2**50),
        lambda: session.run(None, {"sizes": np.array([2**50])}),
    )
    for call in calls:
        with pytest.raises(Exception, match="allocate") as caught:
            call()
        assert lack(str(caught.value)) == "out-of-memory"
    assert lack(MemoryError.__name__) == "out-of-memory"
    assert lack("a tensor of another shape was expected") is None


async def test_no_probe_waits_for_a_triton_that_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_: Server, reader: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await reader.read()

    monkeypatch.setattr("serving.triton._PROBE_SECONDS", 0.1)
    monkeypatch.setattr("serving.triton._UNLOAD_SECONDS", 0.1)
    monkeypatch.setattr("serving.triton._LOAD_SECONDS", 0.1)
    async with serving(hang) as (_, client), asyncio.timeout(30), Triton(client.address, MAX_BYTES) as inference:
        assert await inference.last_use("blur") is None
        with refused("deadline-exceeded"):
            await inference.unload("blur")
        with refused("deadline-exceeded"):
            await inference.load("blur")
        with refused("deadline-exceeded"):
            await inference.ready_versions()


async def test_a_model_that_another_gateway_loads_again_is_not_waited_for() -> None:
    """It is while Triton unloads it; then it may be ready again, or not be there."""
    replies = iter([b"", b'[{"name": "blur", "version": "1", "state": "UNLOADING"}]'])

    async def behave(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.receive(reader)
            reply = next(replies, b'[{"name": "blur", "version": "1", "state": "READY"}]')
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(reply), reply))
            await writer.drain()

    async with serving(behave) as (server, client), Triton(client.address, MAX_BYTES) as inference:
        async with asyncio.timeout(30):
            assert await inference.unload("blur", 60.0)
        assert server.requests == 3
        assert await inference.ready_versions() == {"blur": {1}}


async def test_a_port_that_another_user_has_taken_is_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the key nor an input: it listens until the local Triton does, and again whenever that has ended."""
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"
    async with serving(always(reply)) as (server, client), asyncio.timeout(30):
        address = client.address
        async with Triton(address, MAX_BYTES, "secret", address, own=True) as inference:
            assert await inference.ready_versions() == {}
        seen = server.connections
        monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
        async with Triton(address, MAX_BYTES, "secret", address, own=True) as inference:
            with refused("triton-unavailable"):
                await inference.ready_versions()
            with refused("triton-unavailable"):
                await inference.load("blur")
            with refused("triton-unavailable"):
                await inference.infer("blur", 1, {"field": np.ones((1, 2), np.float32)}, Run.within(5.0))
        assert server.connections == seen
        async with Triton(address, MAX_BYTES) as elsewhere:
            assert await elsewhere.ready_versions() == {}


async def test_a_port_that_another_user_takes_from_triton_is_sent_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before a Triton that this gateway has not started, of any user: one may listen while it restarts."""
    closing = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]"
    async with serving(always(closing)) as (server, client), asyncio.timeout(30):
        address, real = client.address, system._listening
        users = {1000}

        def listening(port: int, places: Mapping[str, Collection[str]]) -> set[int] | None:
            return users if real(port, places) == {os.geteuid()} else None

        monkeypatch.setattr(system, "_listening", listening)
        async with Triton(address, MAX_BYTES, "secret", address) as inference:
            assert await inference.ready_versions() == {}
            seen, users = server.connections, {2000}
            for _ in range(2):
                with refused("triton-unavailable"):
                    await inference.ready_versions()
                with refused("triton-unavailable"):
                    await inference.load("blur")
            assert server.connections == seen
            assert caplog.text.count("another user than before listens on port") == 1
            for allowed in ({1000}, {0}, {os.geteuid()}):
                users = allowed
                assert await inference.ready_versions() == {}
        async with Triton(address, MAX_BYTES) as another:
            users = {2000}
            assert await another.ready_versions() == {}


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("[::1]", True), ("localhost", True), ("10.0.0.1", False)]
)
def test_what_this_machine_is_called(host: str, *, local: bool) -> None:
    assert system.is_loopback(host) == local


async def test_grpc_in_place_of_http_is_named(triton: TritonServer, caplog: pytest.LogCaptureFixture) -> None:
    async with Triton(f"127.0.0.1:{triton.settings.triton_grpc_port}", MAX_BYTES) as inference:
        for _ in range(2):
            with refused("triton-unavailable", match="is not Triton's HTTP endpoint"):
                await inference.ready_versions()
    assert caplog.text.count("is not Triton's HTTP endpoint") == 1
