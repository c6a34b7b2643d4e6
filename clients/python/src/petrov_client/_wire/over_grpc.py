"""The wire format of gRPC (Open Inference Protocol): inputs to calls, replies to arrays and exceptions. No sockets.

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

import numpy as np
from tritonclient.grpc import InferInput, service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from petrov_client._values.exceptions import (
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
from petrov_client._values.models import (
    COMPONENT,
    ModelInfo,
    ParameterInfo,
    TensorInfo,
    frames_info,
    grid_info,
    parameter_info,
    tensor_info,
)
from petrov_client._values.quality import NAMES, NOVELTY, OUTSIDE, Response
from petrov_client._values.vocabulary import vocabulary
from petrov_client._wire import trace
from petrov_client._wire.interface import PLAIN, Call

if TYPE_CHECKING:
    from collections.abc import Mapping

    import grpc
    import numpy.typing as npt

    from petrov_client._values.arrays import Fields
    from petrov_client._values.quality import Options
    from petrov_client._values.vocabulary import Vocabulary
    from petrov_client._wire.interface import Arrays, Flow

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
    """A method of `tritonclient.grpc.InferenceServerClient`, or of its async twin, and its arguments."""

    method: str
    arguments: Mapping[str, Any]


class GrpcWire:
    """The calls of the protocol."""

    def names(self) -> Call[list[str]]:
        """Return the call `RepositoryIndex`, which lists the models that are ready."""
        return Call(GrpcRequest("get_model_repository_index", {}), _ready)

    def model(self, name: str, version: int | None) -> Flow[ModelInfo]:
        """Yield the calls `ModelMetadata` and `ModelConfig`."""
        which = {"model_name": name, "model_version": _text(version)}
        metadata = yield Call(GrpcRequest("get_model_metadata", which), _itself)
        config = yield Call(GrpcRequest("get_model_config", which), lambda reply: reply.config)
        return _info(metadata, config)

    def prediction(
        self, info: ModelInfo, version: int | None, inputs: Arrays, options: Options = PLAIN
    ) -> Call[Response]:
        """Return the call `ModelInfer`."""
        shapes = {parameter.name: parameter.shape[1:] for parameter in info.parameters}
        tensors = [
            _input(name, array.reshape(len(array), *shapes.get(name, array.shape[1:])))
            for name, array in inputs.items()
        ]
        arguments: dict[str, Any] = {"model_name": info.name, "model_version": _text(version), "inputs": tensors}
        if options.parameters:
            arguments["parameters"] = options.parameters
        return Call(GrpcRequest("infer", arguments), lambda result: _response(result.get_response(), info))

    def rollout(self, info: ModelInfo, version: int | None, inputs: Arrays, options: Options) -> Call[Response]:
        """Return the call `ModelStreamInfer`; it reads each response of the stream."""
        tensors = [(name, np.ascontiguousarray(array)) for name, array in inputs.items()]
        message = service_pb2.ModelInferRequest(
            model_name=info.name,
            model_version=_text(version),
            inputs=[
                {"name": name, "datatype": np_to_triton_dtype(array.dtype), "shape": array.shape}
                for name, array in tensors
            ],
            raw_input_contents=[array.tobytes() for _, array in tensors],
            parameters={name: {"string_param": text} for name, text in options.parameters.items()},
        )
        request = GrpcRequest("ModelStreamInfer", {"message": message, "frames": options.frames or 1})
        return Call(request, lambda response: _response(response, info))


def arguments(request: GrpcRequest, metadata: Mapping[str, str], remaining: float) -> dict[str, Any]:
    """Return the arguments of `tritonclient` for a call.

    Args:
        request: The call.
        metadata: Metadata of every call of the client, such as its key.
        remaining: Seconds until the call's deadline.
    """
    return {**request.arguments, "headers": {**metadata, **trace.context()}, "client_timeout": remaining}


def stream(channel: Any, request: GrpcRequest, metadata: Mapping[str, str], seconds: float) -> Any:
    """Return the call of a stream on a channel, synchronous or asynchronous as that is.

    Args:
        channel: To the server.
        request: The call.
        metadata: Metadata of every call of the client, such as its key.
        seconds: How long one frame may take.
    """
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    about = tuple((name.lower(), value) for name, value in {**metadata, **trace.context()}.items())
    sent = request.arguments
    return stub.ModelStreamInfer(iter([sent["message"]]), metadata=about, timeout=seconds * (1 + sent["frames"]))


def frame(response: Any) -> Any:
    """Return the frame in a response of a stream.

    Raises:
        ServerFault: The server reports an error in its place.
    """
    if response.error_message:
        raise ServerFault(response.error_message)
    return response.infer_response


def broken(error: grpc.RpcError, address: str) -> PetrovError:
    """Return the exception for a stream that failed, here or on the server."""
    raised = InferenceServerException(msg=str(error.details()), status=str(error.code()))
    raised.__context__ = error  # which has the trailing metadata
    return fault(raised, address)


def checked_address(address: str) -> str:
    """Return the server's address, if it is HOST:PORT.

    Raises:
        ValueError: It is not.
    """
    host, _, port = address.rpartition(":")
    if not host or "/" in address or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f'expected an address such as "127.0.0.1:8081" but got "{address}"')
    return address


def fault(error: InferenceServerException, address: str) -> PetrovError:
    """Return the exception for a call that failed, here or on the server."""
    status = str(error.status()).removeprefix("StatusCode.")
    message = str(error.message() or status)
    if status == "UNAVAILABLE" and _NO_SERVER.search(message):
        return ConnectionFailed(f"no response from {address}: {message}")
    if status == "DEADLINE_EXCEEDED":
        return DeadlineExceeded(f"no response from {address} in time")
    trailing = _trailing(error)
    seconds = trailing.get("retry-after", "")
    wait = float(seconds) if seconds.isdecimal() else None
    if status == "RESOURCE_EXHAUSTED" and wait is not None:  # a request that is too large stays too large
        return RateLimited(message, retry_after=wait)
    problem = {"type": trailing[PROBLEM_TYPE]} if PROBLEM_TYPE in trailing else {}
    return _FAULTS.get(status, ServerFault)(message, retry_after=wait, problem=problem)


def _trailing(error: InferenceServerException) -> dict[str, str]:
    """Return the trailing metadata, which `tritonclient` keeps on the error that it replaces."""
    read = getattr(error.__context__, "trailing_metadata", None)
    return {str(name): str(value) for name, value in (read and read()) or ()}


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
        batch=max(1, int(config.max_batch_size)),
        vocabulary=_vocabulary(config.parameters),
        **(_signature(config.parameters) or _tensors(metadata)),
    )


def _signature(parameters: Any) -> dict[str, Any]:
    """Return what the gateway's card says of tensors and grids; empty for a plain Triton."""
    if "signature" not in parameters:
        return {}
    try:
        card = json.loads(parameters["signature"].string_value)
        return {
            "inputs": tuple(tensor_info(tensor) for tensor in card["inputs"]),
            "parameters": tuple(parameter_info(parameter) for parameter in card["parameters"]),
            "outputs": tuple(tensor_info(tensor) for tensor in card["outputs"]),
            "title": str(card["title"]),
            "grid": grid_info(card["grid"]),
            "quality": tuple(str(name) for name in card.get("quality", ())),
            "frames": frames_info(card.get("frames")),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidResponse(f"the signature of a model is not readable: {error!r}") from error


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


def _vocabulary(parameters: Any) -> Vocabulary | None:
    """Return the vocabulary, which Triton's configuration of a sequence model holds as JSON among its parameters."""
    if "vocabulary" not in parameters:
        return None
    try:
        return vocabulary(json.loads(parameters["vocabulary"].string_value))
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidResponse(f"the vocabulary of a model is not readable: {error!r}") from error


def _input(name: str, array: npt.NDArray[Any]) -> InferInput:
    tensor = InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array)
    return tensor


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
    numbers = {name: _numbers(found[name]) for name in info.quality if name in found}
    return Response(
        {tensor.name: found[tensor.name] for tensor in info.outputs},
        numbers,
        outside=bool((numbers.get(NOVELTY, np.ones(1)) < OUTSIDE).any()),
        solved_by=str(response.parameters["solved_by"].string_param)
        if "solved_by" in response.parameters
        else "network",
    )


def _numbers(array: Fields) -> Fields:
    """Return `[batch]`, or `[batch, frame]` of several frames."""
    return array if array.shape[1:] != (1,) else array[:, 0]


def _array(output: Any, content: bytes) -> Fields:
    shape = tuple(int(points) for points in output.shape)
    if output.datatype != "FP32" or min(shape, default=0) < 1 or len(content) != 4 * math.prod(shape):
        raise InvalidResponse(f"expected FP32 {shape} but got {output.datatype} in {len(content)} bytes")
    return np.frombuffer(content, dtype="<f4").reshape(shape)
