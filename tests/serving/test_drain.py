"""The end under load: readiness false first, then everything that was begun is answered, over HTTP and gRPC."""

from __future__ import annotations

import http.client
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.serving.test_commands import command, settings, status, wait_for
from tests.serving.test_endpoints import NPY, npy
from tests.serving.test_grpc import question

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from serving.settings import Settings
    from serving.triton_server import TritonServer

__all__ = ["settings"]  # a fixture
FIELD = np.ones((1, 21, 23), np.float32)


@contextmanager
def over_http(settings: Settings) -> Iterator[Callable[[], bool]]:
    """A prediction on a connection that stays, which the gateway may close after an answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", settings.port, timeout=60)) as connection:

        def ask() -> bool:
            connection.request("POST", "/v1/models/blur/predict", npy(FIELD), NPY)
            answer = connection.getresponse()
            return answer.status == 200 and len(answer.read()) > FIELD.nbytes

        yield ask


@contextmanager
def over_grpc(settings: Settings) -> Iterator[Callable[[], bool]]:
    with grpc.insecure_channel(f"127.0.0.1:{settings.grpc_port}") as channel:
        stub: Any = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        yield lambda: bool(stub.ModelInfer(question(FIELD)).raw_output_contents)


@contextmanager
def as_a_stream(settings: Settings) -> Iterator[Callable[[], bool]]:
    """The same call as a stream of one message, which is how it may be sent, too."""
    message = question(FIELD).SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{settings.grpc_port}") as channel:
        call = channel.stream_unary("/inference.GRPCInferenceService/ModelInfer")
        yield lambda: bool(service_pb2.ModelInferResponse.FromString(call(iter([message]))).raw_output_contents)


def test_who_leaves_when_readiness_does_loses_nothing(triton: TritonServer, settings: Settings) -> None:
    given = settings.model_copy(update={"notice_seconds": 3.0})
    leave, answers = threading.Event(), list[bool]()

    def ask(road: Callable[[Settings], AbstractContextManager[Callable[[], bool]]]) -> None:
        with road(given) as one:
            while not leave.is_set():
                answers.append(one())

    with (
        command(given, "gateway", "--triton", triton.settings.triton_addresses[0]) as (service, _),
        ThreadPoolExecutor() as pool,
    ):
        wait_for(lambda: status(given, "/health/ready") == 200)
        asking = [pool.submit(ask, road) for road in (over_http, over_grpc, as_a_stream) for _ in range(2)]
        try:
            wait_for(lambda: len(answers) > 60)
            service.terminate()
            wait_for(lambda: status(given, "/health/ready") == 503)
            noticed = len(answers)
            wait_for(lambda: len(answers) > noticed + 30)  # still answered, while load balancers take notice
        finally:
            leave.set()
        for each in asking:
            each.result()
        assert service.wait(30) == 0
    assert all(answers)
