"""Batches longer than memory: outputs as they arrive, while both sides hold one piece at a time."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import httpx2
import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from petrov_client import AsyncClient, Client, InvalidInput, ServerFault
from petrov_client._codecs import decode_npy, encode_npy
from tests import toy_rollouts
from tests.clients.conftest import KINDS, address_for

MEBIBYTE = 2**20


async def streamed(kind: str, gateway: Any, take: Callable[[Any], None], *args: Any, **named: Any) -> None:
    """Consume the whole stream of one of the four clients, over HTTP or gRPC, from one gateway."""
    address = address_for(kind, gateway)
    if kind.startswith("Async"):
        async with KINDS[kind](address) as client:
            async for fields in client.stream(*args, **named):
                take(fields)
    else:
        with KINDS[kind](address) as client:
            for fields in client.stream(*args, **named):
                take(fields)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_pieces_together_are_the_output(gateway: Any, blur: Any, kind: str) -> None:
    batch = np.random.default_rng(5).uniform(3, 12, (59, 12, 9))
    pieces, seen = list[Any](), list[tuple[int, int]]()
    await streamed(kind, gateway, pieces.append, "blur", batch, progress=lambda *count: seen.append(count))
    assert [len(piece) for piece in pieces] == [8] * 7 + [3]
    np.testing.assert_allclose(np.concatenate(pieces), blur(batch), rtol=1e-5)
    assert seen[-1] == (59, 59)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_field_is_a_piece_of_one(gateway: Any, blur: Any, kind: str) -> None:
    field, pieces = np.random.default_rng(5).uniform(3, 12, (12, 9)), list[Any]()
    await streamed(kind, gateway, pieces.append, "blur", field)
    np.testing.assert_allclose(pieces, [blur(field[None])], rtol=1e-5)


def test_a_bad_batch_is_refused_before_the_first_piece(gateway: Any) -> None:
    with Client(gateway.url) as client, pytest.raises(InvalidInput, match=r"\[50,0,0\]"):
        client.stream("blur", np.concatenate([np.ones((50, 9, 9)), np.zeros((1, 9, 9))]))


class OnDisk:
    """An array that notes the threads which read it, of which there must be one at a time."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.shape, self.dtype, self.threads = array.shape, array.dtype, set[int]()
        self._array, self._reading = array, threading.Lock()

    def __getitem__(self, index: Any) -> NDArray[Any]:
        assert self._reading.acquire(blocking=False)
        self.threads.add(threading.get_ident())
        time.sleep(0.01)  # as a disk
        self._reading.release()
        return np.asarray(self._array[index])


class Doubling(httpx2.AsyncBaseTransport):
    """A service of a model that doubles its input, and computes no rollouts."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(200, json=self._document)
        if request.url.path.endswith("rollout"):
            return httpx2.Response(500)
        content = encode_npy(2 * decode_npy(await request.aread()))
        return httpx2.Response(200, headers={"content-type": "application/x-npy"}, content=content)


async def test_an_event_loop_reads_no_large_pieces(description: Callable[..., Any]) -> None:
    batch = OnDisk(np.ones((10, 512, 512), np.float32))  # a mebibyte each, and two in a piece
    async with AsyncClient("http://toy", transport=Doubling(json.loads(description(batch=2)[2]))) as client:
        found = await client.predict("toy", batch)
    assert (found == 2).all()
    states = OnDisk(np.ones((3, 100_000), np.float32))
    document = {"name": "growth", "version": 1, "versions": [1], "card": toy_rollouts.card()}
    async with AsyncClient("http://toy", transport=Doubling(document)) as client:
        with pytest.raises(ServerFault):
            await client.rollout("growth", states, 3)
    for each in (batch, states):
        assert each.threads
        assert threading.get_ident() not in each.threads


async def test_a_stream_may_be_left_early(gateway: Any) -> None:
    batch = np.broadcast_to(np.float32(3), (10_000, 9, 9))
    with Client(gateway.url) as client:
        assert next(client.stream("blur", batch)).shape == (8, 9, 9)
        assert client.predict("blur", batch[0]).shape == (9, 9)
    async with AsyncClient(gateway.url) as asynchronous:
        async with aclosing(asynchronous.stream("blur", batch)) as pieces:
            assert (await anext(pieces)).shape == (8, 9, 9)
        assert (await asynchronous.predict("blur", batch[0])).shape == (9, 9)


@pytest.mark.deep
async def test_a_long_batch_leaves_memory_where_it_was(gateway: Any, blur: Any) -> None:
    field = np.random.default_rng(5).uniform(3, 12, (64, 64)).astype(np.float32)
    batch = np.broadcast_to(field, (2_500, 64, 64))  # 39 MiB to send, and as much to receive
    output, seen, grown = blur(field[None]), list[tuple[int, int]](), list[int]()
    with Client(gateway.url) as client:
        list(client.stream("blur", batch[:125]))  # what is allocated once
        before = resident()
        for fields in client.stream("blur", batch, progress=lambda *count: seen.append(count)):
            assert np.abs(fields - output).max() < 1e-4
            if len(seen) % 60 == 0:
                grown.append(resident() - before)
    assert seen[-1] == (2_500, 2_500)
    assert max(*grown, resident() - before) < 16 * MEBIBYTE


def resident() -> int:
    """Return the bytes of this process: the client, and the gateway, which runs in a thread of it."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)
