"""A server of gRPC that is broken or malicious costs a client neither its memory nor its terminal."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from petrov_client import DeadlineExceeded, InvalidResponse, ServerFault
from tests.clients.conftest import AnyClient, served
from tests.clients.test_hostile_server import ESCAPES, STATE, growing, is_clean


@dataclass
class HostileGrpc(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # ships no types
    """A gRPC server of a model whose every text has escapes."""

    address: str = ""
    configured: str = "null"
    gone: threading.Event = field(default_factory=threading.Event)
    remaining: float = 0.0  # seconds that the client gives to the stream as a whole

    def ModelMetadata(self, request: Any, context: Any) -> Any:
        del request
        if self.configured == "compressed":
            context.set_compression(grpc.Compression.Gzip)
            return service_pb2.ModelMetadataResponse(name="\0" * 2**24)
        tensor = {"name": f"u{ESCAPES}", "datatype": "FP32", "shape": [-1, -1]}
        return service_pb2.ModelMetadataResponse(
            name=f"toy{ESCAPES}", versions=["1"], inputs=[tensor], outputs=[tensor]
        )

    def ModelConfig(self, request: Any, context: Any) -> Any:
        del request, context
        parameters = {"signature": {"string_value": self.configured}}
        return service_pb2.ModelConfigResponse(config={"max_batch_size": 8, "parameters": parameters})

    def RepositoryIndex(self, request: Any, context: Any) -> Any:
        del request, context
        return service_pb2.RepositoryIndexResponse(models=[{"name": f"toy{ESCAPES}", "state": "READY"}])

    def ModelInfer(self, request: Any, context: Any) -> Any:
        del request
        context.abort(grpc.StatusCode.INTERNAL, f"said{ESCAPES}")

    def ModelStreamInfer(self, requests: Any, context: Any) -> Any:
        self.remaining = context.time_remaining()
        infer = service_pb2.ModelInferResponse(
            id=next(requests).id,
            outputs=[{"name": "solution", "datatype": "FP32", "shape": [1, 16]}],
            raw_output_contents=[STATE.tobytes()],
        )
        yield service_pb2.ModelStreamInferResponse(infer_response=infer)
        self.gone.wait()


@pytest.fixture
def hostile_grpc() -> Iterator[HostileGrpc]:
    service = HostileGrpc()
    with served(service):
        yield service
        service.gone.set()


def test_names_over_grpc_have_no_escapes(grpc_client: AnyClient, hostile_grpc: HostileGrpc) -> None:
    [info] = grpc_client.call(hostile_grpc.address, "models")
    assert is_clean(repr([info.name, *(each.name for each in (*info.inputs, *info.outputs))]).replace("\\", ""))
    with pytest.raises(ServerFault, match="said") as caught:
        grpc_client.call(hostile_grpc.address, "predict", "toy", STATE)
    assert is_clean("".join(traceback.format_exception(caught.value)))


@pytest.mark.parametrize(
    "document", [f"[{'[],' * 1_000_000}[]]", "[" * 1000, " " * 2**25], ids=["wide", "deep", "long"]
)
def test_descriptions_over_grpc_are_bounded(grpc_client: AnyClient, hostile_grpc: HostileGrpc, document: str) -> None:
    hostile_grpc.configured = document
    with pytest.raises(InvalidResponse, match=r"not readable|too large"):
        grpc_client.call(hostile_grpc.address, "model", "toy")


def test_a_compressed_message_is_not_inflated(grpc_client: AnyClient, hostile_grpc: HostileGrpc) -> None:
    hostile_grpc.configured = "compressed"
    with pytest.raises(InvalidResponse, match="compressed"):
        grpc_client.call(hostile_grpc.address, "model", "toy")


def test_every_frame_over_grpc_has_the_time_limit(
    grpc_client: AnyClient, hostile_grpc: HostileGrpc, description: Callable[..., Any]
) -> None:
    hostile_grpc.configured = json.dumps(json.loads(growing(description)[2])["card"])
    with pytest.raises(DeadlineExceeded, match=r"did not arrive within 0\.\d+ s"):
        grpc_client.call(hostile_grpc.address, "rollout", "toy", STATE, 2, timeout=0.4)
    assert hostile_grpc.remaining > 1e6  # the time that a caller takes between two frames counts for none of them
