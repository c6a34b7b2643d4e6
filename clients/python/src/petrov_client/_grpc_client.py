"""The two gRPC clients, synchronous and asynchronous, over the Open Inference Protocol. They need the extra `[grpc]`.

The protocol carries the names, shapes and versions of a model. The gateway puts what its card says of inputs,
parameters, outputs and grids into the configuration, and the vocabulary of a sequence model; a plain Triton has only
the vocabulary.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype

from petrov_client._arrays import Arrays
from petrov_client._client import AsyncPredictor, SyncPredictor
from petrov_client._connections import Connections, LoopConnections, Opened
from petrov_client._descriptions import readable, signature, vocabulary
from petrov_client._environment import RootCertificates, authorities, checked_roots, over_grpc, remedy
from petrov_client._errors import ConnectionFailed, DeadlineExceeded, InvalidResponse, ServerFault, service_fault
from petrov_client._flow import TIMEOUT_SECONDS, AsyncDriver, Call, Deadline, Perform, SyncDriver
from petrov_client._http import LONGEST_RESPONSE, check_id, new_id, trace_context
from petrov_client._models import ModelInfo
from petrov_client._operations import Operations
from petrov_client._quality import INTERVALS, NAMES, NOVELTY, OUTSIDE, Options, Response, version_number
from petrov_client._schema import COMPONENT, ParameterInfo, TensorInfo
from petrov_client._untrusted import LONGEST_JSON, parsed, printable

#: The gateway's gRPC port. Triton's own port, 8001, checks neither keys nor values.
ADDRESS = "127.0.0.1:8081"
#: Bytes of the longest response without arrays: the longest JSON document, and the message around it.
_LONGEST_DESCRIPTION = LONGEST_JSON + 2**20
_DESCRIPTIONS = [
    {"service": "inference.GRPCInferenceService", "method": method}
    for method in ("RepositoryIndex", "ModelMetadata", "ModelConfig")
]
#: A lost connection is tried again soon, as over HTTP; an attempt to connect ends after 5 s. Compressed responses are
#: refused, since the limits hold for what is sent, and not for what it becomes.
CHANNEL = [
    ("grpc.max_send_message_length", 2**31 - 1),
    ("grpc.max_receive_message_length", LONGEST_RESPONSE),
    (
        "grpc.service_config",
        json.dumps({"methodConfig": [{"name": _DESCRIPTIONS, "maxResponseMessageBytes": _LONGEST_DESCRIPTION}]}),
    ),
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.per_message_decompression", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 5000),
]
#: A server that responds "unavailable" and a server that is not there share a status; only gRPC's messages differ.
_NO_SERVER = re.compile(
    "failed to connect|errors resolving|DNS resolution|connections to all backends|socket closed|connection reset"
    "|broken pipe|recvmsg|sendmsg|GOAWAY|transport",
    re.IGNORECASE,
)
#: What gRPC says where a proxy breaks off a stream, because its server has gone; the status may be any.
_BROKEN_OFF = "Received RST_STREAM with error code"
#: What gRPC says of a response that it has not read, because of `CHANNEL`.
_REFUSED_HERE = ("CLIENT: Received message larger", "Compression algorithm")
#: The trailing metadata that name the type of the service's problem details.
PROBLEM_TYPE = "petrov-problem-type"
#: The process that uses `grpc.aio`, if one does, and its channels.
_aio_process: list[int] = []
_aio_channels: WeakSet[Any] = WeakSet()
#: Triton's PyTorch backend numbers its outputs by position: `solution__0`.
_POSITION = re.compile(r"__\d+$")


@dataclass(frozen=True)
class GrpcRequest:
    """A method of the service and its message; of a stream, the seconds for each response behind the first, else 0."""

    method: str
    message: Any
    further: float = 0.0


class GrpcWire:
    """The calls of the protocol."""

    def names(self) -> Call[list[str]]:
        """Return the call `RepositoryIndex`, which lists the models that are ready."""

        def read(index: Any) -> list[str]:
            return sorted({printable(model.name) for model in index.models if model.state == "READY"})

        return Call(GrpcRequest("RepositoryIndex", service_pb2.RepositoryIndexRequest()), read)

    async def model(self, name: str, version: int | None, perform: Perform) -> ModelInfo:
        """Perform the calls `ModelMetadata` and `ModelConfig`."""
        replies = []
        for method in ("ModelMetadata", "ModelConfig"):
            message = getattr(service_pb2, f"{method}Request")(name=name, version=_text(version))
            replies.append(await perform(Call(GrpcRequest(method, message), lambda reply: reply)))
        metadata, config = replies[0], replies[1].config
        with readable("the signature of a model"):
            versions = tuple(sorted(int(number) for number in metadata.versions))
            known = {
                key: parsed(config.parameters[key].string_value)
                for key in ("signature", "vocabulary")
                if key in config.parameters
            }
            return ModelInfo(
                name=printable(metadata.name),
                version=max(versions, default=1),
                versions=versions,
                batch=max(1, int(config.max_batch_size)),
                vocabulary=vocabulary(known["vocabulary"]) if known.get("vocabulary") is not None else None,
                **(signature(known["signature"]) if known.get("signature") is not None else _tensors(metadata)),
            )

    def prediction(self, info: ModelInfo, inputs: Arrays, options: Options) -> Call[Response]:
        """Return the call `ModelInfer`."""
        return self._inference("ModelInfer", info, inputs, options)

    def rollout(self, info: ModelInfo, inputs: Arrays, options: Options) -> Call[Response]:
        """Return the call `ModelStreamInfer`; it reads each response of the stream."""
        return self._inference("ModelStreamInfer", info, inputs, options, options.timeout)

    @staticmethod
    def _inference(
        method: str, info: ModelInfo, inputs: Arrays, options: Options, further: float = 0.0
    ) -> Call[Response]:
        shapes = {each.name: each.shape[1:] for each in info.parameters if None not in each.shape[1:]}
        tensors = {
            name: np.ascontiguousarray(array.reshape(len(array), *shapes.get(name, array.shape[1:])))
            for name, array in inputs.items()
        }
        message = service_pb2.ModelInferRequest(
            id=new_id(),
            model_name=info.name,
            model_version=_text(options.version),
            inputs=[
                {"name": name, "datatype": np_to_triton_dtype(array.dtype), "shape": array.shape}
                for name, array in tensors.items()
            ],
            raw_input_contents=[array.tobytes() for array in tensors.values()],
            parameters={name: {"string_param": text} for name, text in options.parameters.items()},
        )

        def read(response: Any) -> Response:
            check_id(message.id, response.id)
            return _response(response, info)

        return Call(GrpcRequest(method, message, further), read)


class GrpcClient(SyncPredictor):
    """A client over gRPC (Open Inference Protocol) of the gateway, or of a Triton server.

    Args:
        address: `HOST:PORT` of the server; the gateway's gRPC port on this machine by default.
        api_key: Sent as a bearer token in the metadata, never shown.
        timeout: Seconds for each request, its repetitions included.
        tls: Whether to encrypt.
        root_certificates: A file (PEM) of the authorities that are trusted, for `tls`. By default they are those in the
            file `SSL_CERT_FILE` or the folder `SSL_CERT_DIR`, or else those of the system.

    Raises:
        ValueError: `address` is not HOST:PORT, or no header can carry the key. Certificates that cannot be used are one
            at the first request.
    """

    def __init__(
        self,
        address: str = ADDRESS,
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        tls: bool = False,
        root_certificates: RootCertificates | None = None,
    ) -> None:
        operations = Operations(GrpcWire(), SyncDriver(self._receive), timeout)
        arguments = (address, api_key, timeout, tls, root_certificates)
        super().__init__(operations, checked_address(address), arguments)
        checked_roots(root_certificates, encrypted=tls)
        self._tls = tls
        self._connections = Connections(lambda: _connected(_channel(grpc, address, tls, root_certificates)))

    def close(self) -> None:
        """Close the connection."""
        self._connections.close()

    async def _receive(self, request: GrpcRequest, seconds: float) -> AsyncGenerator[Any]:
        """Send a request and yield its replies as they arrive; nothing here waits for an event loop."""
        opened, options = self._connections.get(), _options(self._key, request, seconds)
        method = getattr(opened.sender, request.method)
        with _faults(self._shown, tls=self._tls, forked=self._connections.inherited):
            if not request.further:
                yield method(request.message, **options)
                return
            call, deadline = method(iter([request.message]), **options), Deadline(seconds, request.further)
            try:
                while (response := _next(call, deadline)) is not None:
                    yield _frame(response)
                    opened.check()
                    deadline.renew()
            finally:
                if opened.is_ours:
                    call.cancel()


class AsyncGrpcClient(AsyncPredictor):
    """An asynchronous client over gRPC; arguments as `GrpcClient`."""

    def __init__(
        self,
        address: str = ADDRESS,
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        tls: bool = False,
        root_certificates: RootCertificates | None = None,
    ) -> None:
        operations = Operations(GrpcWire(), AsyncDriver(self._receive), timeout)
        arguments = (address, api_key, timeout, tls, root_certificates)
        super().__init__(operations, checked_address(address), arguments)
        checked_roots(root_certificates, encrypted=tls)
        self._tls = tls
        self._connections = LoopConnections(lambda: _connected_aio(address, tls, root_certificates))

    async def close(self) -> None:
        """Close the connection of this event loop."""
        await self._connections.close()

    async def _receive(self, request: GrpcRequest, seconds: float) -> AsyncGenerator[Any]:
        """Send a request and yield its replies as they arrive."""
        opened, options = await self._connections.get(), _options(self._key, request, seconds)
        method = getattr(opened.sender, request.method)
        with _faults(self._shown, tls=self._tls):
            if not request.further:
                yield await method(request.message, **options)
                return
            call, deadline = method(iter([request.message]), **options), Deadline(seconds, request.further)
            responses = aiter(call)
            try:
                while True:
                    async with deadline.limit():
                        response = await anext(responses, None)
                    if response is None:
                        break
                    yield _frame(response)
                    deadline.renew()
            finally:
                call.cancel()


def checked_address(address: str) -> str:
    """Return the server's address, if it is HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not host or "/" in address or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f'expected an address such as "127.0.0.1:8081" but got "{address}"')
    return address


def _channel(library: Any, address: str, tls: bool, root_certificates: RootCertificates | None) -> Any:
    """Return a channel of `grpc` or `grpc.aio`."""
    if tls:
        trusted = grpc.ssl_channel_credentials(authorities(root_certificates))
        return library.secure_channel(address, trusted, options=CHANNEL)
    return library.insecure_channel(address, options=CHANNEL)


def _connected(channel: Any) -> Opened[Any]:
    return Opened(service_pb2_grpc.GRPCInferenceServiceStub(channel), channel.close)


def _connected_aio(address: str, tls: bool, root_certificates: RootCertificates | None) -> Opened[Any]:
    """Open a channel of `grpc.aio`; in a process that was forked while another one was open, gRPC ends the process."""
    if os.getpid() not in (_aio_process or [os.getpid()]):
        raise RuntimeError(
            "asynchronous gRPC was in use when this process was forked, and does not survive that: start processes "
            "with spawn, or use AsyncClient or GrpcClient"
        )
    if not _aio_process and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_keep_inherited_channels)
    _aio_process[:] = [os.getpid()]
    channel = _channel(grpc.aio, address, tls, root_certificates)
    _aio_channels.add(channel)
    return _connected(channel)


def _keep_inherited_channels() -> None:
    """Keep the channels that a forked process has inherited from being freed, also when it ends.

    With the last one gRPC waits for its polling thread to stop, which a fork does not copy. No name of Python outlives
    the end of the interpreter; a count of references does.
    """
    for channel in list(_aio_channels):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(channel))


def _options(key: Mapping[str, str], request: GrpcRequest, seconds: float) -> dict[str, Any]:
    """Return the arguments of a call: metadata, with names in lower case, and a time limit; frames have their own."""
    headers = {**key, **trace_context()}
    metadata = tuple((name.lower(), value) for name, value in headers.items())
    return {"metadata": metadata, "timeout": None if request.further else seconds}


def _next(call: Any, deadline: Deadline) -> Any:
    """Return the next response of a stream, or None behind the last one."""
    timer = threading.Timer(deadline.seconds, call.cancel)
    timer.start()
    try:
        return next(call, None)
    except grpc.RpcError:
        deadline.check()
        raise
    finally:
        timer.cancel()


def _frame(response: Any) -> Any:
    """Return the frame in a response of a stream."""
    if response.error_message:
        raise ServerFault(response.error_message)
    return response.infer_response


@contextmanager
def _faults(address: str, *, tls: bool, forked: bool = False) -> Iterator[None]:
    """Turn an error of gRPC, from here or from the server, into one of ours.

    Tracebacks do not show gRPC's own error, which has the texts of the server as they are. In a process that was forked
    during a call of another thread, the threads of gRPC that carry responses may be gone.
    """
    try:
        yield
    except grpc.RpcError as error:
        status = error.code().name
        message = str(error.details() or status)
        if any(refusal in message for refusal in _REFUSED_HERE):
            raise InvalidResponse(f"the response is too large or compressed: {message}") from None
        if (status == "UNAVAILABLE" and _NO_SERVER.search(message)) or _BROKEN_OFF in message:
            proxy = over_grpc(address)
            fault = ConnectionFailed(f"no response from {address}: {message}{remedy(message)}{proxy}")
            if not (tls or proxy):
                host, _, port = address.rpartition(":")
                fault.unencrypted = host.strip("[]"), int(port)
            raise fault from None
        if status == "DEADLINE_EXCEEDED":
            advice = ": gRPC was in use when this process was forked, so start processes with spawn, or use HTTP"
            raise DeadlineExceeded(
                f"no response from {address} in time{advice if forked else over_grpc(address)}"
            ) from None
        trailing = {str(name): printable(str(value)) for name, value in error.trailing_metadata() or ()}
        problem = {"type": trailing[PROBLEM_TYPE]} if PROBLEM_TYPE in trailing else {}
        raise service_fault(status, problem, message, trailing.get("retry-after")) from None


def _text(version: int | None) -> str:
    return "" if version is None else str(version)


def _tensors(metadata: Any) -> dict[str, Any]:
    """Return the tensors as a plain Triton describes them; a parameter is a tensor `[batch]` or `[batch, 1]`."""
    shapes = {printable(tensor.name): tuple(tensor.shape) for tensor in metadata.inputs}
    inputs, outputs = ([_tensor(tensor) for tensor in group] for group in (metadata.inputs, metadata.outputs))
    if not outputs:
        raise ValueError("expected outputs but got none")
    numbers = [name for name, shape in shapes.items() if shape in {(-1,), (-1, 1)}]
    return {
        "inputs": tuple(tensor for tensor in inputs if tensor.name not in numbers),
        "parameters": tuple(ParameterInfo(name, shape=(None, *shapes[name][1:])) for name in numbers),
        "outputs": tuple(tensor for tensor in outputs if not is_quality(tensor.name)),
        "quality": tuple(tensor.name for tensor in outputs if is_quality(tensor.name)),
    }


def is_quality(name: str) -> bool:
    """Return whether an output of a plain Triton says something about the others."""
    return name in NAMES or name.startswith(INTERVALS)


def _tensor(tensor: Any) -> TensorInfo:
    sizes = tuple(None if points < 0 else int(points) for points in list(tensor.shape)[1:])
    first, last = (sizes[end] is not None and None in sizes for end in (0, -1))  # only the grid's axes are free
    grid = (f"axis{number}" for number in range(1, len(sizes) + 1 - first - last))
    axes = (*(COMPONENT,) * first, *grid, *(COMPONENT,) * last)
    name = _POSITION.sub("", printable(tensor.name))
    return TensorInfo(name=name, axes=("batch", *axes), shape=(None, *sizes), dtype=printable(tensor.datatype))


def _response(response: Any, info: ModelInfo) -> Response:
    """Return the outputs of a model and their quality, each of exactly the bytes that its shape requires."""
    if not response.outputs or len(response.outputs) != len(response.raw_output_contents):
        raise InvalidResponse("expected outputs with binary contents but got none")
    found = {}
    for output, content in zip(response.outputs, response.raw_output_contents, strict=True):
        shape = tuple(int(points) for points in output.shape)
        if output.datatype != "FP32" or min(shape, default=0) < 1 or len(content) != 4 * math.prod(shape):
            raise InvalidResponse(f"expected FP32 {shape} but got {output.datatype} in {len(content)} bytes")
        found[_POSITION.sub("", output.name)] = np.frombuffer(content, dtype="<f4").reshape(shape)
    if missing := [tensor.name for tensor in info.outputs if tensor.name not in found]:
        raise InvalidResponse(f"expected the output {missing[0]} but got {', '.join(found)}")
    numbers = {
        name: found[name] if found[name].shape[1:] != (1,) else found[name][:, 0]  # or [batch, frame or component]
        for name in info.quality
        if name in found
    }
    by = response.parameters["solved_by"].string_param if "solved_by" in response.parameters else "network"
    return Response(
        {  # Triton sends no tensor [batch]
            tensor.name: found[tensor.name].reshape(-1) if tensor.axes == ("batch",) else found[tensor.name]
            for tensor in info.outputs
        },
        numbers,
        outside=bool((numbers.get(NOVELTY, np.ones(1)) < OUTSIDE).any()),
        solved_by=printable(by),
        version=version_number(response.model_version),
    )
