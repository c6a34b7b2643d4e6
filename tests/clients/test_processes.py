"""Clients in several processes and event loops: connections of their own, copies by pickle, and ids of requests."""

from __future__ import annotations

import asyncio
import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from petrov_client import AsyncClient, AsyncGrpcClient, Client, GrpcClient, InvalidResponse
from petrov_client._codecs import encode_npy
from petrov_client._connections import LoopConnections, Opened
from petrov_client.jax import operator
from petrov_client.torch import Operator
from tests.clients.conftest import KINDS, AnyClient, HttpService, address_for
from tests.conftest import Gateway

FIELD = np.ones((4, 4), np.float32)


def test_one_client_serves_forked_and_spawned_processes(gateway: Gateway) -> None:
    program = Path(__file__).with_name("processes.py")
    command = [sys.executable, str(program), gateway.url, address_for("GrpcClient", gateway)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


@pytest.mark.parametrize("kind", [Client, GrpcClient, AsyncClient, AsyncGrpcClient])
def test_a_copy_is_made_with_the_same_arguments(kind: Callable[..., Any], gateway: Gateway) -> None:
    client = kind(address_for(kind.__name__, gateway), "secret", 7.0)
    for made in (pickle.loads(pickle.dumps(client)), copy.deepcopy(client)):  # noqa: S301  our own bytes
        assert repr(made) == repr(client)
        assert "secret" not in repr(made)
        assert (made._key, made._operations.timeout) == ({"authorization": "Bearer secret"}, 7.0)
        assert made._connections is not client._connections


@pytest.mark.parametrize("make", [Operator, operator])
def test_an_operator_of_a_framework_is_pickled_with_its_client(make: Callable[..., Any], gateway: Gateway) -> None:
    again = pickle.loads(pickle.dumps(make(Client(gateway.url), "blur")))  # noqa: S301  our own bytes
    batched = again._operator if make is Operator else again.args[0]
    with batched.client:
        np.testing.assert_allclose(batched.predict(("coefficient",), [np.ones((8, 8))])[0][4, 4], 1.0)


def test_connections_of_an_ended_loop_are_dropped_by_several_threads_at_a_time() -> None:
    async def close() -> None:
        """Close nothing."""

    made: LoopConnections[str] = LoopConnections(lambda: Opened("sender", close))

    class Dropped(asyncio.SelectorEventLoop):
        """A loop whose connections another thread drops while one looks whether it has ended."""

        def is_closed(self) -> bool:
            if ended := super().is_closed():
                made._opened.pop(self, None)
            return ended

    for _ in range(2):
        with asyncio.Runner(loop_factory=Dropped) as runner:
            assert runner.run(made.get()).sender == "sender"
    assert asyncio.run(made.get()).sender == "sender"
    assert len(made._opened) == 1


def test_a_closed_client_says_so(any_client: AnyClient, gateway: Gateway) -> None:
    client = KINDS[any_client.kind](address_for(any_client.kind, gateway))

    async def close_and_ask() -> None:
        await client.close()
        await client.model("blur")

    with pytest.raises(RuntimeError, match="the client is closed"):  # noqa: PT012  both belong to one event loop
        if "Async" in any_client.kind:
            asyncio.run(close_and_ask())
        else:
            client.close()
            client.model("blur")


@pytest.mark.parametrize(("name", "accepted"), [("petrov-client-0123", False), ("id-of-a-proxy", True)])
def test_a_response_to_another_request_is_refused(
    http_client: AnyClient, http_service: HttpService, description: Any, name: str, *, accepted: bool
) -> None:
    reply = (200, {"Content-Type": "application/x-npy", "X-Request-Id": name}, encode_npy(FIELD[np.newaxis]))
    http_service.replies = {"/v1/models/toy": [description()], "/v1/models/toy/predict": [reply]}
    if accepted:
        np.testing.assert_array_equal(http_client.call(http_service.address, "predict", "toy", FIELD), FIELD)
    else:
        with pytest.raises(InvalidResponse, match="expected the response to request petrov-client-"):
            http_client.call(http_service.address, "predict", "toy", FIELD)
    assert http_service.seen[-1][2]["x-request-id"].startswith("petrov-client-")
