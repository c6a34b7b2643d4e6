"""The Open Inference Protocol over gRPC, with the catalogue, checks, limits and metrics of HTTP.

The methods are listed one by one; any other is UNIMPLEMENTED. An error has the sentence that HTTP has as `detail`, and
its HTTP status becomes a status of gRPC (`CODES`). Every response carries the request's id as `x-request-id` in its
trailing metadata, an error the type of HTTP's problem details as `petrov-problem-type`, and 429 and 503 `retry-after`.
A key, where one is required, comes as `authorization: Bearer …` in the call's metadata (`serving.auth`).

A message has to arrive in time. gRPC reports its size only when it is complete: it is bounded by itself, and counted
among the bytes in flight once it is complete. Its parts are counted before it is parsed, because an empty tensor of two
bytes takes a hundred as an object. A call whose client has left, or whose deadline has passed, is cancelled by gRPC: it
ends as CANCELLED, which is no error of the service.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import grpc
import numpy as np
from google.protobuf.message import DecodeError
from grpc import StatusCode
from tritonclient.grpc import service_pb2

from serving.auth import OPEN, Scope
from serving.codecs import binary
from serving.errors import Problem
from serving.limits import ANYONE
from serving.observe import ID_HEADER, UNKNOWN, Entry, request_id
from serving.predict import Prediction, offload
from serving.protocols import open_inference, over_http
from serving.protocols.over_http import version_number

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from serving.catalogue.card import Card
    from serving.limits import Ticket
    from serving.quality import Quality
    from serving.service import Service

    Method = Callable[["Call"], Awaitable[bytes | None]]

logger = logging.getLogger(__name__)
SERVICE = "inference.GRPCInferenceService"
CANCELLED = "CANCELLED"
TYPE_HEADER = "petrov-problem-type"
ENVELOPE_BYTES = 2**20  # a message is its tensors and a little more
SHORT = 2**16  # bytes of a message without tensors
MOST_PARTS = 1024  # fields of a message and of the messages in it: no model has as many tensors
# As long as HTTP keeps an idle connection. A client that has vanished without a word is noticed after two of them.
IDLE_SECONDS = 75.0
CODES = {
    400: StatusCode.INVALID_ARGUMENT,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    408: StatusCode.DEADLINE_EXCEEDED,
    413: StatusCode.RESOURCE_EXHAUSTED,
    422: StatusCode.INVALID_ARGUMENT,
    429: StatusCode.RESOURCE_EXHAUSTED,
    500: StatusCode.INTERNAL,
    502: StatusCode.INTERNAL,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
}
# Small integers travel as larger ones.
CONTENTS: Mapping[str, tuple[str, type[Any]]] = {
    "FP32": ("fp32_contents", np.float32),
    "FP64": ("fp64_contents", np.float64),
    "INT64": ("int64_contents", np.int64),
    "UINT64": ("uint64_contents", np.uint64),
    **{f"INT{bits}": ("int_contents", np.int32) for bits in (8, 16, 32)},
    **{f"UINT{bits}": ("uint_contents", np.uint32) for bits in (8, 16, 32)},
}


class GrpcExchange:
    """A message and the writer of its response: an `Exchange` of `serving.predict`.

    Args:
        request: The message.
        size: Its bytes.
        card: Of the model.
    """

    frames: int | None = None  # a parameter of the request says it

    def __init__(self, request: Any, size: int, card: Card) -> None:
        self.size, self._request, self._card = size, request, card

    def read(self, _: Sequence[str], max_bytes: int, __: Collection[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the arrays of the message: its raw contents, or else its typed ones."""
        inputs, contents = self._request.inputs, self._request.raw_input_contents
        open_inference.check(inputs, self._request.outputs, self._card)
        if contents and len(contents) != len(inputs):
            raise Problem("unreadable-body", f"{len(contents)} raw_input_contents for {len(inputs)} inputs")
        found: dict[str, NDArray[Any]] = {}
        for index, tensor in enumerate(inputs):
            name, dtype = tensor.name, open_inference.dtype(tensor.datatype, tensor.name)
            if not contents:
                field, kind = CONTENTS[tensor.datatype]
                values = getattr(tensor.contents, field)
                open_inference.check_count(len(values), tensor.shape, name, field, max_bytes)
                found[name] = binary.shaped(np.fromiter(values, kind, len(values)), tensor.shape, name)
            elif tensor.HasField("contents"):
                raise Problem("unreadable-body", f"{name}: contents beside raw_input_contents")
            else:
                found[name] = binary.view(contents[index], dtype, tensor.shape, name, max_bytes, "raw_input_contents")
        return found

    def write(self, model: str, version: int, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> Any:
        """Return the message with the requested outputs, or all of them if none is named."""
        found = open_inference.results(outputs, quality)
        names = [output.name for output in self._request.outputs] or list(found)
        return service_pb2.ModelInferResponse(
            id=self._request.id,
            model_name=model,
            model_version=str(version),
            outputs=[{"name": name, "datatype": open_inference.FLOAT32, "shape": found[name].shape} for name in names],
            raw_output_contents=[np.ascontiguousarray(found[name], "<f4").tobytes() for name in names],
            parameters={name: {"string_param": text} for name, text in open_inference.about(quality).items()},
        )


class Call:
    """One call of a method: its message, its deadline and its outcome.

    Args:
        method: Name of the method.
        context: Context of gRPC.
        service: The parts of the gateway.

    Attributes:
        size: Bytes of the message, once it has arrived.
        model: Name of the model in the message.
        version: Version of the model that is used.
        code: Name of the status with which the call ended.
        sent: Bytes of the response.
        caller: The holder of the key, once admitted.
    """

    def __init__(self, method: str, context: Any, service: Service) -> None:
        metadata = dict(context.invocation_metadata() or ())
        self.authorization = str(metadata.get("authorization", ""))
        self.request_id = request_id(str(metadata.get(ID_HEADER.lower(), "")))
        self.method, self.model, self.version, self.code = method, UNKNOWN, "", CANCELLED
        self.size = self.sent = 0
        self.caller = ANYONE
        self._context, self._service, self._start = context, service, time.perf_counter()

    async def read(self) -> bytes | None:
        """Return the next message; None at the end of a stream.

        Raises:
            Problem: slow-body: It was not complete in time.
        """
        seconds = self._service.settings.receive_seconds
        try:
            async with asyncio.timeout(seconds):
                body = await self._context.read()
        except TimeoutError as error:
            raise Problem("slow-body", f"no complete message arrived within {seconds:g} s") from error
        if body is grpc.aio.EOF:
            return None
        self.size = len(body)
        return bytes(body)

    async def write(self, response: bytes) -> None:
        """Send one response of a stream; wait while the client does not read.

        Raises:
            Problem: deadline-exceeded: The client has read nothing for so long.
        """
        seconds = self._service.settings.receive_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._context.write(response)
        except TimeoutError as error:
            raise Problem("deadline-exceeded", f"the client has read nothing for {seconds:g} s") from error
        self.sent += len(response)

    async def abort(self, problem: Problem) -> None:
        """End the call with an error; never returns."""
        self._service.metrics.rejected.labels(problem.kind).inc()
        code = CODES[problem.status]
        self.code = code.name
        headers = {ID_HEADER: self.request_id, TYPE_HEADER: problem.details().type, **problem.headers}
        trailing = tuple((name.lower(), value) for name, value in headers.items())
        await self._context.abort(code, problem.detail, trailing)

    def succeed(self, response: bytes | None) -> None:
        """Record the response, which gRPC sends; None where all responses have been sent."""
        self.sent += len(response or b"")
        self.code = StatusCode.OK.name
        self._context.set_trailing_metadata(((ID_HEADER.lower(), self.request_id),))

    def record(self) -> None:
        """Measure the call, and log it."""
        service, seconds = self._service, time.perf_counter() - self._start
        model, route = self.model if service.catalogue.knows(self.model) else UNKNOWN, f"/{SERVICE}/{self.method}"
        service.metrics.request_seconds.labels(model, route, self.code).observe(seconds)
        Entry(
            request_id=self.request_id,
            method="GRPC",
            route=route,
            model=model,
            version=self.version,
            status=self.code,
            seconds=seconds,
            bytes_in=self.size,
            bytes_out=self.sent,
            client=unquote(self._context.peer()).partition(":")[2].rpartition(":")[0],  # ipv4:127.0.0.1:4321
            key=self.caller.name,
        ).write(self.method)


async def parsed(message: Any, body: bytes | None) -> Any:
    """Return a message of a class, in a worker thread if it is large.

    Raises:
        Problem: unreadable-body: There is none of that class, or it has more parts than `MOST_PARTS`.
    """

    def parse(body: bytes) -> Any:
        try:
            _count(memoryview(body), message.DESCRIPTOR, 0)
            return message.FromString(body)
        except (DecodeError, IndexError) as error:
            raise Problem("unreadable-body", f"not a {message.DESCRIPTOR.name}: {error}") from error

    if body is None:
        raise Problem("unreadable-body", f"expected a {message.DESCRIPTOR.name} but got nothing")
    return await offload(len(body), parse, body)


def _count(data: memoryview, message: Any, parts: int) -> int:
    """Return how many fields there are in a message and in the messages in it, after so many before.

    The wire format is https://protobuf.dev/programming-guides/encoding.

    Raises:
        Problem: unreadable-body: They are more than `MOST_PARTS`.
        IndexError: The message ends within a field.
    """
    position = 0
    while position < len(data):
        parts += 1
        if parts > MOST_PARTS:
            raise Problem("unreadable-body", f"the message has more than {MOST_PARTS} parts")
        tag, position = _varint(data, position)
        match tag & 7:
            case 0:
                _, position = _varint(data, position)
            case 2:
                size, position = _varint(data, position)
                field = message.fields_by_number.get(tag >> 3)
                if field is not None and field.message_type is not None:
                    parts = _count(data[position : position + size], field.message_type, parts)
                position += size
            case other:
                position += {1: 8, 5: 4}.get(other, 0)  # the parser refuses any other
    return parts


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return a number of seven bits per byte, the lowest first, and the position behind it."""
    value = 0
    for index in range(10):
        byte = data[position + index]
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, position + index + 1
    raise IndexError("a number of more than ten bytes")


class GrpcServer:
    """The gateway's gRPC side.

    Args:
        service: The gateway's parts; its settings say where to listen.
    """

    def __init__(self, service: Service) -> None:
        self._service, self._settings = service, service.settings
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", self._settings.max_body_bytes + ENVELOPE_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # a port in use is an error
                ("grpc.max_connection_idle_ms", int(1000 * IDLE_SECONDS)),
                ("grpc.keepalive_time_ms", int(1000 * IDLE_SECONDS)),
                ("grpc.keepalive_timeout_ms", int(1000 * IDLE_SECONDS)),
            ],
            maximum_concurrent_rpcs=2 * self._settings.max_requests_in_flight,  # those about the server need no place
        )
        infer, found = Scope.INFER, self._handler
        handlers = {
            "ServerLive": found("ServerLive", self._server_live, OPEN),
            "ServerReady": found("ServerReady", self._server_ready, OPEN),
            "ServerMetadata": found("ServerMetadata", self._server_metadata, infer),
            "RepositoryIndex": found("RepositoryIndex", self._repository_index, infer),
            "ModelReady": found("ModelReady", self._model_ready, infer),
            "ModelMetadata": found("ModelMetadata", self._model_metadata, infer),
            "ModelConfig": found("ModelConfig", self._model_config, infer),
            "ModelInfer": found("ModelInfer", self._model_infer, infer),
            "ModelStreamInfer": found("ModelStreamInfer", self._model_stream_infer, infer, streams=True),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Listen as long as the context lasts, and let calls finish at its end.

        Raises:
            RuntimeError: The port is in use.
        """
        host = self._settings.host
        self._server.add_insecure_port(f"{f'[{host}]' if ':' in host else host}:{self._settings.grpc_port}")
        await self._server.start()
        try:
            yield
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Accept no more calls; those in flight may finish within `drain_seconds`."""
        await self._server.stop(self._settings.drain_seconds)

    def _handler(self, name: str, method: Method, scope: Scope | None, *, streams: bool = False) -> Any:
        """Return a method as gRPC calls it: before its message has arrived, and with bytes that may be unreadable.

        For the client it is a call with one message and one response; here it is a stream of one message, which the
        server reads when it is ready.

        Args:
            name: Name of the method.
            method: Returns the response, or None where it has sent several.
            scope: What the caller must be allowed to do.
            streams: Whether it sends several responses.
        """

        async def handle(_: Any, context: Any) -> bytes | None:
            call = Call(name, context, self._service)
            with self._service.metrics.inflight.track_inprogress():
                try:
                    call.caller = self._service.guard.admit(scope, call.authorization)
                    response = await method(call)
                    call.succeed(response)
                except Problem as problem:
                    await call.abort(problem)
                except Exception:
                    logger.exception("%s id=%s", name, call.request_id)
                    detail = f"an internal error; the log has it under the id {call.request_id}"
                    await call.abort(Problem("internal-error", detail))
                finally:
                    call.record()
            return response

        traces = self._service.traces
        kind = grpc.stream_stream_rpc_method_handler if streams else grpc.stream_unary_rpc_method_handler
        return kind(traces.call(f"{SERVICE}/{name}", handle) if traces else handle)

    async def _server_live(self, _: Call) -> bytes:
        return _written(service_pb2.ServerLiveResponse(live=True))

    async def _server_ready(self, _: Call) -> bytes:
        return _written(service_pb2.ServerReadyResponse(ready=self._service.catalogue.readiness().ready))

    async def _server_metadata(self, _: Call) -> bytes:
        document = open_inference.ServerMetadata(version=self._service.version)
        return _written(service_pb2.ServerMetadataResponse(**document.model_dump()))

    async def _repository_index(self, _: Call) -> bytes:
        """List the models that are served, for clients that look them up here."""
        models = [
            {"name": name, "version": str(version), "state": "READY"}
            for name, versions in self._service.catalogue.served().items()
            for version in versions
        ]
        return _written(service_pb2.RepositoryIndexResponse(models=models))

    async def _model_ready(self, call: Call) -> bytes:
        await self._named(call, service_pb2.ModelReadyRequest)
        return _written(service_pb2.ModelReadyResponse(ready=True))

    async def _model_metadata(self, call: Call) -> bytes:
        card = await self._named(call, service_pb2.ModelMetadataRequest)
        document = open_inference.describe(card, self._service.catalogue.model(card.model).versions)
        unknown = {"inputs": {"__all__": {"parameters"}}, "outputs": {"__all__": {"parameters"}}}  # to the message
        return _written(service_pb2.ModelMetadataResponse(**document.model_dump(exclude=unknown)))

    async def _model_config(self, call: Call) -> bytes:
        document = open_inference.configure(await self._named(call, service_pb2.ModelConfigRequest))
        return _written(service_pb2.ModelConfigResponse(config=document.model_dump()))

    async def _named(self, call: Call, message: Any) -> Card:
        """Return the card of the version that a short message names."""
        body = await call.read()
        if call.size > SHORT:
            raise Problem("body-too-large", f"the message has {call.size} bytes; the limit is {SHORT}")
        request = await parsed(message, body)
        return self._find(call, request.name, request.version)

    def _find(self, call: Call, name: str, version: str) -> Card:
        call.model = name
        card = self._service.catalogue.find(name, version_number(version) if version else None).card
        call.version = str(card.version)
        return card

    async def _model_infer(self, call: Call) -> bytes:
        call.caller.check()
        body = await call.read()
        with self._service.admission.admit(call.caller.name) as ticket:
            return _written(await self._predicted(call, *await self._wanted(call, body, ticket)))

    async def _model_stream_infer(self, call: Call) -> None:
        """Send the frames of each request as they are computed, or the only response of a model of single fields.

        The last response of a request has the parameter `triton_final_response`, as those of Triton's own models that
        send several. A frame has its number as the parameter `frame`.
        """
        while (body := await call.read()) is not None:
            call.caller.check()
            with self._service.admission.admit(call.caller.name) as ticket:
                request, card = await self._wanted(call, body, ticket)
                if card.frames is None:
                    await self._send(call, await self._predicted(call, request, card), last=True)
                    continue
                exchange = GrpcExchange(request, call.size, card)
                frames = self._service.predictor.stream(self._prediction(call, request, card), exchange)
                async with aclosing(frames):
                    async for frame in frames:
                        frame.written.parameters["frame"].int64_param = frame.number
                        await self._send(call, frame.written, last=frame.last)

    async def _send(self, call: Call, response: Any, *, last: bool) -> None:
        response.parameters["triton_final_response"].bool_param = last
        await call.write(_written(service_pb2.ModelStreamInferResponse(infer_response=response)))

    async def _wanted(self, call: Call, body: bytes | None, ticket: Ticket) -> tuple[Any, Card]:
        """Return the request in a message, and the card of the version to run."""
        ticket.hold(call.size)
        self._service.metrics.request_bytes.observe(call.size)
        request = await parsed(service_pb2.ModelInferRequest, body)
        if not request.model_version:
            await self._service.catalogue.newest(request.model_name)
        return request, self._find(call, request.model_name, request.model_version)

    async def _predicted(self, call: Call, request: Any, card: Card) -> Any:
        """Return the message of the outputs."""
        exchange = GrpcExchange(request, call.size, card)
        return await self._service.predictor.predict(self._prediction(call, request, card), exchange)

    def _prediction(self, call: Call, request: Any, card: Card) -> Prediction:
        policy = over_http.policy(_texts(request.parameters))
        successor = None if request.model_version else self._service.catalogue.successor
        return Prediction(card, call.request_id, call.caller, policy, successor=successor)


def _texts(parameters: Any) -> dict[str, str]:
    """Return the parameters of a request as a query would have them."""
    return {
        name: str(getattr(value, value.WhichOneof("parameter_choice") or "string_param"))
        for name, value in parameters.items()
    }


def _written(message: Any) -> bytes:
    written: bytes = message.SerializeToString()
    return written
