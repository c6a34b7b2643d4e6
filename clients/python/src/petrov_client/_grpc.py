"""Triton's gRPC (Open Inference Protocol): questions become calls, replies become arrays and exceptions. No sockets.

gRPC knows names, shapes and versions of a model, the words of one of sequences, and no more of its card: no units, no
meaning, no grid limits, no sign.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tritonclient.grpc import InferInput

from petrov_client import _trace
from petrov_client._exceptions import (
    ConnectionFailed,
    DeadlineExceeded,
    InvalidInput,
    PetrovError,
    RateLimited,
    RequestError,
    ServerFault,
    TooLarge,
    Unauthorised,
    Unavailable,
    UnknownModel,
    UnreadableAnswer,
)
from petrov_client._models import ModelInfo, TensorInfo
from petrov_client._vocabulary import vocabulary
from petrov_client._wire import Call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tritonclient.utils import InferenceServerException

    from petrov_client._arrays import Fields
    from petrov_client._vocabulary import Vocabulary
    from petrov_client._wire import Flow

_LONGEST_MESSAGE = 2**31 - 1
#: A lost connection is tried again soon, as over HTTP, and one that does not come about is given up after 5 s.
CHANNEL = [
    ("grpc.max_send_message_length", _LONGEST_MESSAGE),
    ("grpc.max_receive_message_length", _LONGEST_MESSAGE),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 5000),
]

_FAULTS: Mapping[str, type[PetrovError]] = {
    "INVALID_ARGUMENT": InvalidInput,
    "OUT_OF_RANGE": InvalidInput,
    "NOT_FOUND": UnknownModel,
    "RESOURCE_EXHAUSTED": TooLarge,
    "UNAUTHENTICATED": Unauthorised,
    "PERMISSION_DENIED": Unauthorised,
    "FAILED_PRECONDITION": RequestError,
    "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
}
#: A server that says "unavailable" and one that is not there share a status; gRPC's own sentences tell them apart.
_NOT_THERE = re.compile(
    "failed to connect|errors resolving|DNS resolution|connections to all backends|socket closed|connection reset"
    "|broken pipe|recvmsg|sendmsg|GOAWAY|transport",
    re.IGNORECASE,
)
#: Triton's PyTorch backend numbers its outputs by position: `solution__0`.
_POSITION = re.compile(r"__\d+$")


@dataclass(frozen=True)
class GrpcRequest:
    """A method of `tritonclient.grpc.InferenceServerClient`, or of its async twin, and its arguments."""

    method: str
    arguments: Mapping[str, Any]


class GrpcWire:
    """The protocol's methods."""

    def names(self) -> Call[list[str]]:
        """`RepositoryIndex`: the models that are ready."""
        return Call(GrpcRequest("get_model_repository_index", {}), _ready)

    def model(self, name: str, version: int | None) -> Flow[ModelInfo]:
        """`ModelMetadata` and `ModelConfig`."""
        which = {"model_name": name, "model_version": _text(version)}
        metadata = yield Call(GrpcRequest("get_model_metadata", which), _itself)
        config = yield Call(GrpcRequest("get_model_config", which), lambda reply: reply.config)
        return _info(metadata, config)

    def prediction(self, info: ModelInfo, version: int | None, fields: Fields) -> Call[Fields]:
        """`ModelInfer`."""
        tensor = InferInput(info.inputs[0].name, list(fields.shape), info.inputs[0].dtype)
        tensor.set_data_from_numpy(fields)
        arguments = {"model_name": info.name, "model_version": _text(version), "inputs": [tensor]}
        return Call(GrpcRequest("infer", arguments), _solution)


def arguments(request: GrpcRequest, metadata: Mapping[str, str], remaining: float) -> dict[str, Any]:
    """What `tritonclient` wants to send a call that has `remaining` seconds."""
    return {**request.arguments, "headers": {**metadata, **_trace.context()}, "client_timeout": remaining}


def checked_address(address: str) -> str:
    """The server's address.

    Raises:
        ValueError: It is not HOST:PORT.
    """
    host, _, port = address.rpartition(":")
    if not host or "/" in address or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f'expected an address such as "127.0.0.1:8001" but got "{address}"')
    return address


def fault(error: InferenceServerException, address: str) -> PetrovError:
    """The exception for a call that failed, here or on the server."""
    status = str(error.status()).removeprefix("StatusCode.")
    message = str(error.message() or status)
    if status == "UNAVAILABLE" and _NOT_THERE.search(message):
        return ConnectionFailed(f"no answer from {address}: {message}")
    if status == "DEADLINE_EXCEEDED":
        return DeadlineExceeded(f"no answer from {address} in time")
    seconds = _retry_after(error)
    if status == "RESOURCE_EXHAUSTED" and seconds is not None:  # what is too large is so at any time
        return RateLimited(message, retry_after=seconds)
    return _FAULTS.get(status, ServerFault)(message, retry_after=seconds)


def _retry_after(error: InferenceServerException) -> float | None:
    """Seconds that the server named in its trailing metadata; `tritonclient` leaves them on the fault it replaces."""
    read = getattr(error.__context__, "trailing_metadata", None)
    seconds = str(dict((read and read()) or ()).get("retry-after", ""))
    return float(seconds) if seconds.isdecimal() else None


def _text(version: int | None) -> str:
    return "" if version is None else str(version)


def _itself(reply: Any) -> Any:
    return reply


def _ready(index: Any) -> list[str]:
    return sorted({str(model.name) for model in index.models if model.state == "READY"})


def _info(metadata: Any, config: Any) -> ModelInfo:
    versions = tuple(sorted(int(version) for version in metadata.versions))
    return ModelInfo(
        name=str(metadata.name),
        version=max(versions, default=1),
        versions=versions,
        inputs=tuple(_tensor(str(tensor.name), tensor) for tensor in metadata.inputs),
        outputs=tuple(_tensor(_POSITION.sub("", tensor.name), tensor) for tensor in metadata.outputs),
        batch=max(1, int(config.max_batch_size)),
        vocabulary=_words(config.parameters),
    )


def _tensor(name: str, tensor: Any) -> TensorInfo:
    grid = tuple(None if points < 0 else int(points) for points in list(tensor.shape)[1:])
    axes = tuple(f"axis{number}" for number in range(1, len(grid) + 1))
    return TensorInfo(name=name, axes=("batch", *axes), shape=(None, *grid), dtype=str(tensor.datatype))


def _words(parameters: Any) -> Vocabulary | None:
    """The vocabulary, which the configuration of a model of sequences has among its parameters, as JSON."""
    if "vocabulary" not in parameters:
        return None
    try:
        return vocabulary(json.loads(parameters["vocabulary"].string_value))
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableAnswer(f"the vocabulary of a model is not readable: {error!r}") from error


def _solution(result: Any) -> Fields:
    """The first output, read by hand: its bytes have to be exactly those that its shape promises."""
    response = result.get_response()
    if not response.outputs or not response.raw_output_contents:
        raise UnreadableAnswer("expected an output with binary contents but got none")
    [output, *_], [content, *_] = response.outputs, response.raw_output_contents
    shape = tuple(int(points) for points in output.shape)
    if output.datatype != "FP32" or min(shape, default=0) < 1 or len(content) != 4 * math.prod(shape):
        raise UnreadableAnswer(f"expected FP32 {shape} but got {output.datatype} in {len(content)} bytes")
    return np.frombuffer(content, dtype="<f4").reshape(shape)
