"""The two gRPC clients, synchronous and asynchronous; `_grpc_wire` has their calls. They need the extra `[grpc]`."""

from __future__ import annotations

import ctypes
import json
import os
import re
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import grpc
from tritonclient.grpc import service_pb2_grpc

from petrov_client._client import AsyncPredictor, SyncPredictor
from petrov_client._connections import Connections, LoopConnections, Opened
from petrov_client._environment import RootCertificates, authorities, checked_roots, over_grpc, remedy
from petrov_client._errors import ConnectionFailed, DeadlineExceeded, InvalidResponse, ServerFault, service_fault
from petrov_client._flow import TIMEOUT_SECONDS, AsyncDriver, Deadline, SyncDriver
from petrov_client._grpc_wire import GrpcRequest, GrpcWire
from petrov_client._http import LONGEST_RESPONSE
from petrov_client._identity import trace_context
from petrov_client._operations import Operations
from petrov_client._untrusted import LONGEST_JSON, printable

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
    if host.count(":") > 1 and not host.startswith("["):
        raise ValueError(f'expected an address such as "[::1]:8081", of IPv6 in brackets, but got "{address}"')
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
