"""Models of trajectories by Triton's own clients, over HTTP and gRPC: `frames` as a parameter of the request."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

import petrov_client
from serving.limits import Ticket
from tests import toy_rollouts
from tests.conftest import Gateway, wait_until
from tests.serving.conftest import RunGateway

MODEL = toy_rollouts.NAME
U = np.linspace(1, 2, 2 * 16, dtype=np.float32).reshape(2, 16)
RATES = np.array([1.1, 1.0], np.float32)
EXPECTED = np.concatenate([toy_rollouts.compute(u[None], rate, 14) for u, rate in zip(U, RATES, strict=True)])


@pytest.fixture(scope="module", params=[triton_http, triton_grpc], ids=["http", "grpc"])
def library(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def client(gateway: Gateway, library: Any) -> Iterator[Any]:
    port = gateway.settings.grpc_port if library is triton_grpc else gateway.settings.port
    with library.InferenceServerClient(f"127.0.0.1:{port}") as found:
        yield found


def tensors(library: Any) -> list[Any]:
    return [
        library.InferInput(name, list(array.shape), "FP32").set_data_from_numpy(array)
        for name, array in (("u", U), ("rate", RATES))
    ]


@pytest.mark.parametrize("frames", [1, 14])
def test_frames_is_a_parameter_of_the_request(client: Any, library: Any, frames: int) -> None:
    result = client.infer(MODEL, tensors(library), parameters={"frames": frames})
    np.testing.assert_allclose(result.as_numpy("state"), EXPECTED[:, :frames], rtol=1e-5)
    estimates = [*toy_rollouts.ESTIMATES, np.nan, np.nan][:frames]
    np.testing.assert_allclose(result.as_numpy("error_estimate"), [estimates] * 2, rtol=1e-6)
    assert result.as_numpy("novelty").shape == (2, frames)


def test_without_it_a_training_trajectory_s_follow(client: Any, library: Any) -> None:
    assert client.infer(MODEL, tensors(library)).as_numpy("state").shape == (2, toy_rollouts.TRAINED, 16)


@pytest.mark.parametrize("frames", [0, -1, 1001, "many"])
def test_no_such_number_of_frames_is_refused(client: Any, library: Any, frames: Any) -> None:
    with pytest.raises(InferenceServerException, match="frames: expected"):
        client.infer(MODEL, tensors(library), parameters={"frames": frames})


def test_over_http_the_query_has_it_too(gateway: Gateway) -> None:
    with triton_http.InferenceServerClient(gateway.url.removeprefix("http://")) as client:
        result = client.infer(MODEL, tensors(triton_http), query_params={"frames": 3})
        np.testing.assert_allclose(result.as_numpy("state"), EXPECTED[:, :3], rtol=1e-5)
        field = triton_http.InferInput("coefficient", [1, 9, 9], "FP32")
        field.set_data_from_numpy(np.ones((1, 9, 9), np.float32))
        with pytest.raises(InferenceServerException, match="computes no trajectories"):
            client.infer("blur", [field], parameters={"frames": 2})


def test_a_stream_of_triton_s_client_has_a_response_per_frame(gateway: Gateway) -> None:
    arrived: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{gateway.settings.grpc_port}") as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        client.async_stream_infer(MODEL, tensors(triton_grpc), parameters={"frames": 14})
        found = [arrived.get(timeout=60) for _ in range(14)]
        client.stop_stream()
    assert [error for _, error in found] == [None] * 14
    states = np.stack([result.as_numpy("state") for result, _ in found], axis=1)
    np.testing.assert_allclose(states, EXPECTED, rtol=1e-5)
    parameters = [result.get_response().parameters for result, _ in found]
    assert [each["frame"].int64_param for each in parameters] == list(range(1, 15))
    assert [each["triton_final_response"].bool_param for each in parameters] == [False] * 13 + [True]


def test_rollouts_over_grpc_have_half_of_the_requests_as_over_http(gateway: Gateway) -> None:
    arrived: queue.Queue[tuple[Any, Any]] = queue.Queue()
    admission = gateway.service.admission
    half = -(-admission.max_requests // 2)
    tickets = [Ticket(admission) for _ in range(half)]
    for ticket in tickets:
        ticket.enter(rollout=True)
    try:
        with triton_grpc.InferenceServerClient(f"127.0.0.1:{gateway.settings.grpc_port}") as client:
            client.start_stream(lambda result, error: arrived.put((result, error)))
            client.async_stream_infer(MODEL, tensors(triton_grpc), parameters={"frames": 2})
            _, error = arrived.get(timeout=60)
            client.stop_stream()
            assert f"{half} rollouts are in flight" in str(error)
            client.infer(MODEL, tensors(triton_grpc), parameters={"frames": 2})  # is none that lasts
    finally:
        for ticket in tickets:
            ticket.end()
    wait_until(lambda: admission.requests == 0)


@pytest.mark.parametrize("kind", [petrov_client.Client, petrov_client.GrpcClient])
def test_a_client_that_has_read_nothing_for_some_time_goes_on(run_before_triton: RunGateway, kind: Any) -> None:
    """The service ends a rollout whose frames lie too long, and its client asks for those behind them."""
    u = np.ones(40_000, np.float32)
    with run_before_triton(receive_seconds=1.0) as gateway:
        address = gateway.url if kind is petrov_client.Client else f"127.0.0.1:{gateway.settings.grpc_port}"
        with kind(address) as client:
            frames = client.rollout_stream(toy_rollouts.NAME, u, 400)  # more bytes than sockets hold
            next(frames)
            wait_until(lambda: gateway.service.admission.requests == 0)
            assert sum(np.array_equal(frame, u) for frame in frames) == 399
