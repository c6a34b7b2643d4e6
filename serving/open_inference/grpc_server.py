"""Calls over gRPC in, the same answers as over HTTP out: one catalogue, one set of checks, limits and metrics.

The methods are listed one by one, and any other is UNIMPLEMENTED. A fault has the sentence that HTTP has as `detail`;
its status becomes one of gRPC's:

    400 422  INVALID_ARGUMENT     401  UNAUTHENTICATED    413 429  RESOURCE_EXHAUSTED
    500 502  INTERNAL             403  PERMISSION_DENIED  408 504  DEADLINE_EXCEEDED
    501      UNIMPLEMENTED        404  NOT_FOUND          503      UNAVAILABLE

Every answer carries the request's id as `x-request-id` in its trailing metadata, 429 and 503 `retry-after`. A key,
where one is wanted, comes as `authorization: Bearer …` in the call's metadata (`serving.auth.authorisation`).

A message is asked for only when its call has been admitted, and has to arrive in time. gRPC does not say how much of it
is there until all of it is: so it is bounded by itself, and counted among the bytes in flight once it is complete.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode
from tritonclient.grpc import service_pb2

from serving.auth.authorisation import ANYONE, METHODS
from serving.http import access
from serving.inference.prediction import offload
from serving.observability.metrics import UNKNOWN
from serving.open_inference import metadata
from serving.open_inference.grpc_exchange import GrpcExchange
from serving.problem_details import InternalError, InvalidParameter, Problem, SlowBody, UnreadableBody

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from serving.catalogue.catalogue import Version
    from serving.service import Service

    Method = Callable[["Call"], Awaitable[bytes]]

logger = logging.getLogger(__name__)
SERVICE = "inference.GRPCInferenceService"
CANCELLED = "CANCELLED"
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
    501: StatusCode.UNIMPLEMENTED,
    502: StatusCode.INTERNAL,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
}
_ENVELOPE_BYTES = 2**20  # a message is its tensors and a little more


class Call:
    """One call: who it is and how much time it has.

    Args:
        method: Its name.
        context: Of gRPC.

    Attributes:
        size: Bytes of the message, once it is there.
        model: That the message names.
        version: Of the model that answers.
        code: How it ended.
        sent: Bytes of the answer.
        client: Its address.
        caller: Who asks, once they were let in.
    """

    def __init__(self, method: str, context: Any) -> None:
        given = dict(context.invocation_metadata() or ())
        self.authorization = str(given.get("authorization", ""))
        self.caller = ANYONE
        self.method = method
        self.size = 0
        self.request_id = access.request_id(str(given.get(access.HEADER.lower(), "")))
        self.model = UNKNOWN
        self.version = ""
        self.code = CANCELLED
        self.sent = 0
        self.client = unquote(context.peer()).partition(":")[2].rpartition(":")[0]  # ipv4:127.0.0.1:4321
        self._context = context

    @property
    def seconds(self) -> float:
        """What the client's deadline leaves."""
        left: float | None = self._context.time_remaining()
        return math.inf if left is None else left

    async def read(self, message: Any, receive_seconds: float) -> Any:
        """The message.

        Raises:
            UnreadableBody: Not a message of that kind, or none.
            SlowBody: Not complete in time.
        """
        try:
            async with asyncio.timeout(receive_seconds):
                body = await self._context.read()
        except TimeoutError as error:
            raise SlowBody(f"no complete message arrived within {receive_seconds:g} s") from error
        if body is grpc.aio.EOF:
            raise UnreadableBody(f"expected a {message.DESCRIPTOR.name} but got nothing")
        self.size = len(body)
        return await offload(self.size, _parsed, message, body)

    async def abort(self, problem: Problem) -> None:
        """End the call with a fault; never returns."""
        code = CODES[problem.status]
        self.code = code.name
        headers = {access.HEADER: self.request_id, **problem.headers}
        trailing = tuple((name.lower(), value) for name, value in headers.items())
        await self._context.abort(code, problem.detail, trailing)

    def succeed(self, reply: bytes) -> None:
        """The answer is on its way."""
        self.sent = len(reply)
        self.code = StatusCode.OK.name
        self._context.set_trailing_metadata(((access.HEADER.lower(), self.request_id),))


class GrpcServer:
    """The gateway's gRPC side.

    Args:
        service: The gateway's parts; its settings say where to listen.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings = settings = service.settings
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", settings.max_body_bytes + _ENVELOPE_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # a port in use is an error, and not shared
            ],
            # A backstop: a question beyond its limit is told so, but calls about models need no admission.
            maximum_concurrent_rpcs=2 * settings.max_requests_in_flight,
        )
        methods: dict[str, Method] = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "RepositoryIndex": self._repository_index,
            "ModelInfer": self._model_infer,
        }
        handlers = {name: self._handler(name, method) for name, method in methods.items()}
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
        """Take no more calls; those in flight may finish within `drain_seconds`."""
        await self._server.stop(self._settings.drain_seconds)

    def _handler(self, name: str, method: Method) -> Any:
        """A method as gRPC calls it: before its message is there, and with bytes, since what cannot be read is refused.

        For the client it is a call with one message and one answer; here it is a stream of one, which waits for us.
        """
        scope = METHODS[name]

        async def handle(_: Any, context: Any) -> bytes:
            call = Call(name, context)
            start = time.perf_counter()
            with self._service.metrics.inflight.track_inprogress():
                try:
                    call.caller = self._service.guard.admit(scope, call.authorization)
                    reply = await method(call)
                    call.succeed(reply)
                except Problem as problem:
                    await self._refuse(call, problem)
                except Exception:
                    logger.exception("%s id=%s", name, call.request_id)
                    await self._refuse(call, InternalError(f"a fault of ours; our log has it under {call.request_id}"))
                finally:
                    self._record(call, time.perf_counter() - start)
            return reply

        traces = self._service.traces
        return grpc.stream_unary_rpc_method_handler(traces.call(f"{SERVICE}/{name}", handle) if traces else handle)

    async def _refuse(self, call: Call, problem: Problem) -> None:
        self._service.metrics.rejected.labels(problem.kind).inc()
        await call.abort(problem)

    def _record(self, call: Call, seconds: float) -> None:
        model = call.model if self._service.catalogue.knows(call.model) else UNKNOWN
        route = f"/{SERVICE}/{call.method}"
        self._service.metrics.request_seconds.labels(model, route, call.code).observe(seconds)
        access.Entry(
            request_id=call.request_id,
            method="GRPC",
            route=route,
            model=model,
            version=call.version,
            status=call.code,
            seconds=seconds,
            bytes_in=call.size,
            bytes_out=call.sent,
            client=call.client,
            key=call.caller.name,
        ).write(call.method)

    async def _read(self, call: Call, message: Any) -> Any:
        return await call.read(message, self._settings.receive_seconds)

    def _find(self, call: Call, name: str, version: str) -> Version:
        call.model = name
        if version and not (version.isascii() and version.isdigit() and len(version) < 10):
            raise InvalidParameter(f'expected a number as model version but got "{version[:32]}"')
        found = self._service.catalogue.find(name, int(version) if version else None)
        call.version = str(found.card.version)
        return found

    async def _server_live(self, _: Call) -> bytes:
        return _written(service_pb2.ServerLiveResponse(live=True))

    async def _server_ready(self, _: Call) -> bytes:
        return _written(service_pb2.ServerReadyResponse(ready=self._service.catalogue.readiness().ready))

    async def _server_metadata(self, _: Call) -> bytes:
        document = metadata.ServerMetadata(version=self._service.version)
        return _written(service_pb2.ServerMetadataResponse(**document.model_dump()))

    async def _model_ready(self, call: Call) -> bytes:
        request = await self._read(call, service_pb2.ModelReadyRequest)
        self._find(call, request.name, request.version)
        return _written(service_pb2.ModelReadyResponse(ready=True))

    async def _model_metadata(self, call: Call) -> bytes:
        request = await self._read(call, service_pb2.ModelMetadataRequest)
        card = self._find(call, request.name, request.version).card
        document = metadata.describe(card, self._service.catalogue.model(card.model).versions)
        return _written(service_pb2.ModelMetadataResponse(**document.model_dump()))

    async def _model_config(self, call: Call) -> bytes:
        request = await self._read(call, service_pb2.ModelConfigRequest)
        document = metadata.configure(self._find(call, request.name, request.version).card)
        return _written(service_pb2.ModelConfigResponse(config=document.model_dump()))

    async def _repository_index(self, _: Call) -> bytes:
        """What can be asked now; the list alone, for clients that look models up there."""
        models = [
            {"name": model.name, "version": str(version), "state": "READY"}
            for model in self._service.catalogue.models()
            for version in model.versions
        ]
        return _written(service_pb2.RepositoryIndexResponse(models=models))

    async def _model_infer(self, call: Call) -> bytes:
        call.caller.check()
        with self._service.admission.admit() as ticket:
            request = await self._read(call, service_pb2.ModelInferRequest)
            ticket.hold(call.size)
            self._service.metrics.request_bytes.observe(call.size)
            card = self._find(call, request.model_name, request.model_version).card
            exchange = GrpcExchange(request, call.size, [tensor.name for tensor in card.outputs])
            return await self._service.predictor.predict(card, exchange, call.request_id, call.caller, call.seconds)


def _parsed(message: Any, body: bytes) -> Any:
    try:
        return message.FromString(body)
    except DecodeError as error:
        raise UnreadableBody(f"not a {message.DESCRIPTOR.name}: {error}") from error


def _written(message: Any) -> bytes:
    written: bytes = message.SerializeToString()
    return written
