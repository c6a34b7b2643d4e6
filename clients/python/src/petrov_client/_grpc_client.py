"""The two gRPC clients, synchronous and asynchronous, over the Open Inference Protocol. They need the extra `[grpc]`.

The protocol carries the names, shapes and versions of a model. The gateway puts what its card says of inputs,
parameters, outputs and grids into the configuration, and the vocabulary of a sequence model; a plain Triton has only
the vocabulary.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype

from petrov_client._async_client import AsyncPredictor
from petrov_client._client import SyncPredictor
from petrov_client._errors import (
    ConnectionFailed,
    DeadlineExceeded,
    InvalidInput,
    InvalidResponse,
    PetrovError,
    RateLimited,
    RequestError,
    ServerFault,
    TooLarge,
    Unauthorised,
    Unavailable,
    UnknownModel,
)
from petrov_client._flow import TIMEOUT_SECONDS, Call, perform
from petrov_client._http import trace_context
from petrov_client._models import COMPONENT, ModelInfo, ParameterInfo, TensorInfo, readable, signature, vocabulary
from petrov_client._quality import NAMES, NOVELTY, OUTSIDE, Options, Response

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping

    from petrov_client._arrays import Arrays, Fields
    from petrov_client._flow import Flow

#: The gateway's gRPC port. Triton's own port, 8001, checks neither keys nor values.
ADDRESS = "127.0.0.1:8081"
_LONGEST_MESSAGE = 2**31 - 1
#: A lost connection is tried again soon, as over HTTP; an attempt to connect ends after 5 s.
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
#: A server that responds "unavailable" and a server that is not there share a status; only gRPC's messages differ.
_NO_SERVER = re.compile(
    "failed to connect|errors resolving|DNS resolution|connections to all backends|socket closed|connection reset"
    "|broken pipe|recvmsg|sendmsg|GOAWAY|transport",
    re.IGNORECASE,
)
#: The trailing metadata that name the type of the service's problem details.
PROBLEM_TYPE = "petrov-problem-type"
#: A free size in the protocol.
ANY = -1
#: Triton's PyTorch backend numbers its outputs by position: `solution__0`.
_POSITION = re.compile(r"__\d+$")


@dataclass(frozen=True)
class GrpcRequest:
    """A method of the service and its message; of a stream, how many responses it has."""

    method: str
    message: Any
    responses: int = 1


class GrpcWire:
    """The calls of the protocol."""

    def names(self) -> Call[list[str]]:
        """Return the call `RepositoryIndex`, which lists the models that are ready."""

        def read(index: Any) -> list[str]:
            return sorted({str(model.name) for model in index.models if model.state == "READY"})

        return Call(GrpcRequest("RepositoryIndex", service_pb2.RepositoryIndexRequest()), read)

    def model(self, name: str, version: int | None, timeout: float) -> Flow[ModelInfo]:
        """Perform the calls `ModelMetadata` and `ModelConfig`."""
        which = {"name": name, "version": _text(version)}
        replies = []
        for method in ("ModelMetadata", "ModelConfig"):
            message = getattr(service_pb2, f"{method}Request")(**which)
            replies.append((yield from perform(Call(GrpcRequest(method, message), lambda reply: reply), timeout)))
        metadata, config = replies[0], replies[1].config
        versions = tuple(sorted(int(number) for number in metadata.versions))
        card, words = (_json(config.parameters, key) for key in ("signature", "vocabulary"))
        with readable("the signature of a model"):
            described = _tensors(metadata) if card is None else signature(card)
            known = None if words is None else vocabulary(words)
        return ModelInfo(
            name=str(metadata.name),
            version=max(versions, default=1),
            versions=versions,
            batch=max(1, int(config.max_batch_size)),
            vocabulary=known,
            **described,
        )

    def prediction(self, info: ModelInfo, version: int | None, inputs: Arrays, options: Options) -> Call[Response]:
        """Return the call `ModelInfer`."""
        request = GrpcRequest("ModelInfer", _message(info, version, inputs, options))
        return Call(request, lambda response: _response(response, info))

    def rollout(self, info: ModelInfo, version: int | None, inputs: Arrays, options: Options) -> Call[Response]:
        """Return the call `ModelStreamInfer`; it reads each response of the stream."""
        message = _message(info, version, inputs, options)
        request = GrpcRequest("ModelStreamInfer", message, 1 + (options.frames or 1))
        return Call(request, lambda response: _response(response, info))


class GrpcClient(SyncPredictor):
    """A client over gRPC (Open Inference Protocol) of the gateway, or of a Triton server.

    Args:
        address: `HOST:PORT` of the server; the gateway's gRPC port on this machine by default.
        api_key: Sent as a bearer token in the metadata, never shown.
        timeout: Seconds for each request, its repetitions included.
        tls: Whether to encrypt, with the certificates that the system trusts.

    Raises:
        ValueError: `address` is not HOST:PORT, or no header can carry the key.
    """

    def __init__(
        self,
        address: str = ADDRESS,
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        tls: bool = False,
    ) -> None:
        super().__init__(GrpcWire(), checked_address(address), api_key, timeout)
        self._channel = _channel(grpc, address, tls=tls)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _send(self, request: GrpcRequest, remaining: float) -> Any:
        try:
            return getattr(self._stub, request.method)(request.message, **_options(self._key, remaining))
        except grpc.RpcError as error:
            raise _fault(error, self._address) from error

    def _receive(self, request: GrpcRequest, seconds: float) -> Generator[Any]:
        options = _options(self._key, seconds * request.responses)
        call = self._stub.ModelStreamInfer(iter([request.message]), **options)
        try:
            for response in call:
                yield _frame(response)
        except grpc.RpcError as error:
            raise _fault(error, self._address) from error
        finally:
            call.cancel()


class AsyncGrpcClient(AsyncPredictor):
    """An asynchronous client over gRPC; arguments as `GrpcClient`."""

    def __init__(
        self,
        address: str = ADDRESS,
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        tls: bool = False,
    ) -> None:
        super().__init__(GrpcWire(), checked_address(address), api_key, timeout)
        self._channel = _channel(grpc.aio, address, tls=tls)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def _send(self, request: GrpcRequest, remaining: float) -> Any:
        try:
            return await getattr(self._stub, request.method)(request.message, **_options(self._key, remaining))
        except grpc.RpcError as error:
            raise _fault(error, self._address) from error

    async def _receive(self, request: GrpcRequest, seconds: float) -> AsyncGenerator[Any]:
        options = _options(self._key, seconds * request.responses)
        call = self._stub.ModelStreamInfer(iter([request.message]), **options)
        try:
            async for response in call:
                yield _frame(response)
        except grpc.RpcError as error:
            raise _fault(error, self._address) from error
        finally:
            call.cancel()


def checked_address(address: str) -> str:
    """Return the server's address, if it is HOST:PORT.

    Raises:
        ValueError: It is not.
    """
    host, _, port = address.rpartition(":")
    if not host or "/" in address or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f'expected an address such as "127.0.0.1:8081" but got "{address}"')
    return address


def _channel(library: Any, address: str, *, tls: bool) -> Any:
    if tls:
        return library.secure_channel(address, grpc.ssl_channel_credentials(), options=CHANNEL)
    return library.insecure_channel(address, options=CHANNEL)


def _options(key: Mapping[str, str], seconds: float) -> dict[str, Any]:
    """Return the arguments of every call: metadata, whose names are in lower case, and the time limit."""
    headers = {**key, **trace_context()}
    return {"metadata": tuple((name.lower(), value) for name, value in headers.items()), "timeout": seconds}


def _frame(response: Any) -> Any:
    """Return the frame in a response of a stream.

    Raises:
        ServerFault: The server reports an error instead.
    """
    if response.error_message:
        raise ServerFault(response.error_message)
    return response.infer_response


def _fault(error: grpc.RpcError, address: str) -> PetrovError:
    """Return the exception for a call that failed, here or on the server."""
    status = error.code().name
    message = str(error.details() or status)
    if status == "UNAVAILABLE" and _NO_SERVER.search(message):
        return ConnectionFailed(f"no response from {address}: {message}")
    if status == "DEADLINE_EXCEEDED":
        return DeadlineExceeded(f"no response from {address} in time")
    trailing = {str(name): str(value) for name, value in error.trailing_metadata() or ()}
    seconds = trailing.get("retry-after", "")
    wait = float(seconds) if seconds.isdecimal() else None
    if status == "RESOURCE_EXHAUSTED" and wait is not None:  # a request that is too large stays too large
        return RateLimited(message, retry_after=wait)
    problem = {"type": trailing[PROBLEM_TYPE]} if PROBLEM_TYPE in trailing else {}
    return _FAULTS.get(status, ServerFault)(message, retry_after=wait, problem=problem)


def _text(version: int | None) -> str:
    return "" if version is None else str(version)


def _json(parameters: Any, key: str) -> Any:
    """Return the JSON in a parameter of a model's configuration; None without it."""
    if key not in parameters:
        return None
    with readable(f"the {key} of a model"):
        return json.loads(parameters[key].string_value)


def _tensors(metadata: Any) -> dict[str, Any]:
    """Return the tensors as a plain Triton describes them; a parameter is a tensor `[batch, 1]`."""
    shapes = {str(tensor.name): tuple(tensor.shape) for tensor in metadata.inputs}
    outputs = [_tensor(_POSITION.sub("", tensor.name), tensor) for tensor in metadata.outputs]
    numbers = [name for name, shape in shapes.items() if shape in {(ANY,), (ANY, 1)}]
    return {
        "inputs": tuple(_tensor(tensor.name, tensor) for tensor in metadata.inputs if tensor.name not in numbers),
        "parameters": tuple(ParameterInfo(name, shape=(None, *shapes[name][1:])) for name in numbers),
        "outputs": tuple(tensor for tensor in outputs if tensor.name not in NAMES),
        "quality": tuple(tensor.name for tensor in outputs if tensor.name in NAMES),
    }


def _tensor(name: str, tensor: Any) -> TensorInfo:
    sizes = tuple(None if points < 0 else int(points) for points in list(tensor.shape)[1:])
    vector = (COMPONENT,) if sizes[0] is not None and None in sizes else ()  # only the grid's axes are free
    axes = (*vector, *(f"axis{number}" for number in range(1, len(sizes) + 1 - len(vector))))
    return TensorInfo(name=str(name), axes=("batch", *axes), shape=(None, *sizes), dtype=str(tensor.datatype))


def _message(info: ModelInfo, version: int | None, inputs: Arrays, options: Options) -> Any:
    shapes = {parameter.name: parameter.shape[1:] for parameter in info.parameters}
    tensors = {
        name: np.ascontiguousarray(array.reshape(len(array), *shapes.get(name, array.shape[1:])))
        for name, array in inputs.items()
    }
    return service_pb2.ModelInferRequest(
        model_name=info.name,
        model_version=_text(version),
        inputs=[
            {"name": name, "datatype": np_to_triton_dtype(array.dtype), "shape": array.shape}
            for name, array in tensors.items()
        ],
        raw_input_contents=[array.tobytes() for array in tensors.values()],
        parameters={name: {"string_param": text} for name, text in options.parameters.items()},
    )


def _response(response: Any, info: ModelInfo) -> Response:
    """Return the outputs of a model and their quality, each of exactly the bytes that its shape requires.

    Raises:
        InvalidResponse: An output is missing, its type is not FP32, or the number of bytes is another.
    """
    if not response.outputs or len(response.outputs) != len(response.raw_output_contents):
        raise InvalidResponse("expected outputs with binary contents but got none")
    found = {
        _POSITION.sub("", output.name): _array(output, content)
        for output, content in zip(response.outputs, response.raw_output_contents, strict=True)
    }
    if missing := [tensor.name for tensor in info.outputs if tensor.name not in found]:
        raise InvalidResponse(f"expected the output {missing[0]} but got {', '.join(found)}")
    numbers = {
        name: found[name] if found[name].shape[1:] != (1,) else found[name][:, 0]  # [batch], or [batch, frame]
        for name in info.quality
        if name in found
    }
    return Response(
        {tensor.name: found[tensor.name] for tensor in info.outputs},
        numbers,
        outside=bool((numbers.get(NOVELTY, np.ones(1)) < OUTSIDE).any()),
        solved_by=str(response.parameters["solved_by"].string_param)
        if "solved_by" in response.parameters
        else "network",
    )


def _array(output: Any, content: bytes) -> Fields:
    shape = tuple(int(points) for points in output.shape)
    if output.datatype != "FP32" or min(shape, default=0) < 1 or len(content) != 4 * math.prod(shape):
        raise InvalidResponse(f"expected FP32 {shape} but got {output.datatype} in {len(content)} bytes")
    return np.frombuffer(content, dtype="<f4").reshape(shape)
