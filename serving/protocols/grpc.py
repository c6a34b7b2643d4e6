"""The Open Inference Protocol over gRPC, with the catalogue, checks, limits and metrics of HTTP.

The methods are listed one by one; any other is UNIMPLEMENTED. An error has the sentence that HTTP has as `detail`, and
its HTTP status becomes a status of gRPC (`CODES`). Every response carries the request's id as `x-request-id` in its
trailing metadata, an error the type of HTTP's problem details as `petrov-problem-type`, and 429 and 503 `retry-after`.
A key, where one is required, comes as `authorization: Bearer …` in the call's metadata (`serving.auth`).

A message has to arrive in time. gRPC reports its size only when it is complete, and then copies it three times, while
no thread of Python runs. So a message is smaller than a body of HTTP, it is counted among the bytes in flight once it
is complete, and few messages arrive at one time (`Turns`). A call whose client has left, or whose deadline has passed,
is cancelled by gRPC: it ends as CANCELLED, which is no error of the service.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any

import grpc
from grpc import StatusCode
from tritonclient.grpc import service_pb2

from schema.card import Card
from serving import system
from serving.address import caller_address
from serving.auth import OPEN, SCOPE, Scope, requires
from serving.errors import Problem
from serving.inputs import Prediction, offload
from serving.limits import ANYONE, Ticket
from serving.observe import ID_HEADER, UNKNOWN, Entry, request_id
from serving.protocols import inference, metadata
from serving.protocols.messages import ENVELOPE_BYTES, GrpcExchange, Response, parameters_of, parse, request_of
from serving.protocols.over_http import version_number
from serving.rollout import stream
from serving.service import Service

Method = Callable[["Call"], Awaitable[Any]]

logger = logging.getLogger(__name__)
SERVICE = "inference.GRPCInferenceService"
TYPE_HEADER = "petrov-problem-type"
SHORT = 2**16  # bytes of a message without tensors
MOST_DETAIL = 1024  # characters of an error: clients take 8 KiB of metadata, where one outside ASCII may be nine bytes
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


ARRIVING, ARRIVING_STREAMS = 4, 4  # messages of single calls at one time, and streams that wait for one
PATIENCE = 1.0  # seconds for which a message may arrive while others wait for their turn
READ_SECONDS = 0.5
"""How long a call that ends during the drain stays open, so that its client can read what was sent."""


class GrpcServer:
    """The gateway's gRPC side, at the address of its settings."""

    def __init__(self, service: Service) -> None:
        self._service, self._settings, self._stopping = service, service.settings, False
        message_bytes = self._settings.max_message_bytes + ENVELOPE_BYTES
        files = min(system.files_of_clients() / 2, 2**31 - 1)  # clients of HTTP have the others
        self._turns, self._streams, self._names = Turns(ARRIVING), Turns(ARRIVING_STREAMS), Turns(ARRIVING)
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", message_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # a port in use is an error
                ("grpc.max_connection_idle_ms", int(1000 * IDLE_SECONDS)),
                ("grpc.keepalive_time_ms", int(1000 * IDLE_SECONDS)),
                ("grpc.keepalive_timeout_ms", int(1000 * IDLE_SECONDS)),
                ("grpc.max_allowed_incoming_connections", int(files)),
            ],
            maximum_concurrent_rpcs=2 * self._settings.max_requests_in_flight,  # those about the server need no place
        )
        methods = [name for name, each in vars(GrpcServer).items() if hasattr(each, SCOPE)]
        handlers = {name: self._handler(name, getattr(self, name)) for name in methods}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Listen as long as the context lasts; calls in flight at its end may finish within `drain_seconds`.

        A RuntimeError: the port is in use.
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
        self._stopping = True
        await self._server.stop(self._settings.drain_seconds)

    def _handler(self, name: str, method: Method) -> Any:
        """Return a method as gRPC calls it: before its message has arrived, and with bytes that may be unreadable.

        For the client it is a call with one message and one response; here it is a stream of messages, which the server
        reads when it is ready. A method returns its response, or None where it has written it.
        """
        service, scope = self._service, getattr(method, SCOPE)

        async def handle(_: Any, context: Any) -> bytes | None:
            call = Call(context, service)
            with service.metrics.inflight.track_inprogress():
                try:
                    call.admit(scope)
                    response = await method(call)
                    written: bytes | None = None if response is None else response.SerializeToString()
                    call.sent += len(written or b"")
                    if self._stopping:
                        # The connection closes with its last call. A client that acknowledges data then would be
                        # answered by a reset, which discards what it has not received.
                        await asyncio.sleep(READ_SECONDS)
                    call.code = StatusCode.OK.name
                    context.set_trailing_metadata(((ID_HEADER.lower(), call.id),))
                except Problem as problem:
                    traceback.clear_frames(problem.__traceback__)  # they would keep the message for a while
                    await call.abort(problem)
                except Exception:
                    logger.exception("%s id=%s", name, call.id)
                    detail = f"an internal error; the log has it under the id {call.id}"
                    await call.abort(Problem("internal-error", detail))
                finally:
                    call.record(name)
            return written

        # The response of an inference is written by its method, which counts its bytes until the client has read them.
        single, several = grpc.stream_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        kind = several if name in {"ModelInfer", "ModelStreamInfer"} else single
        return kind(service.traces.call(f"{SERVICE}/{name}", handle) if service.traces else handle)

    @requires(OPEN)
    async def ServerLive(self, _: Call) -> Any:
        return service_pb2.ServerLiveResponse(live=True)

    @requires(OPEN)
    async def ServerReady(self, _: Call) -> Any:
        return service_pb2.ServerReadyResponse(ready=self._service.catalogue.readiness().ready)

    @requires(Scope.INFER)
    async def ServerMetadata(self, _: Call) -> Any:
        document = metadata.ServerMetadata(version=self._service.version)
        return service_pb2.ServerMetadataResponse(**document.model_dump())

    @requires(Scope.INFER)
    async def RepositoryIndex(self, _: Call) -> Any:
        """List the models that are served, for clients that look them up here."""
        served = self._service.catalogue.served().items()
        models = [{"name": name, "version": str(each), "state": "READY"} for name, found in served for each in found]
        return service_pb2.RepositoryIndexResponse(models=models)

    @requires(Scope.INFER)
    async def ModelReady(self, call: Call) -> Any:
        """Say whether a model can be run; one that is not there is not ready, and no error, as in Triton."""
        try:
            await self._named(call, service_pb2.ModelReadyRequest)
        except Problem as problem:
            if problem.status not in {404, 503}:
                raise
            return service_pb2.ModelReadyResponse(ready=False)
        return service_pb2.ModelReadyResponse(ready=True)

    @requires(Scope.INFER)
    async def ModelMetadata(self, call: Call) -> Any:
        card = await self._named(call, service_pb2.ModelMetadataRequest)
        document = metadata.describe(card, self._service.catalogue.model(card.model).versions)
        unknown = {"inputs": {"__all__": {"parameters"}}, "outputs": {"__all__": {"parameters"}}}  # to the message
        return service_pb2.ModelMetadataResponse(**document.model_dump(exclude=unknown))

    @requires(Scope.INFER)
    async def ModelConfig(self, call: Call) -> Any:
        document = metadata.configure(await self._named(call, service_pb2.ModelConfigRequest))
        return service_pb2.ModelConfigResponse(config=document.model_dump())

    async def _named(self, call: Call, message: Any) -> Card:
        """Return the card of the version that a short message names."""
        body = await call.read(self._names)  # it may be as long as any other before it is known to be too long
        if call.size > SHORT:
            raise Problem("body-too-large", f"the message has {call.size} bytes; the limit is {SHORT}")
        request = await offload(call.size, parse, message, body)
        return self._find(call, request.name, request.version)

    def _find(self, call: Call, name: str, version: str) -> Card:
        call.model = name
        card = self._service.catalogue.find(name, version_number(version) if version else None)
        call.version = str(card.version)
        return card

    @requires(Scope.INFER)
    async def ModelInfer(self, call: Call) -> None:
        call.caller.check()
        body = await call.read(self._turns)
        with self._service.admission.admit(call.caller.name) as ticket:
            await call.write(await self._service.predictor.predict(*await self._wanted(call, body, ticket)), ticket)

    @requires(Scope.INFER)
    async def ModelStreamInfer(self, call: Call) -> None:
        """Send the frames of each request as they are computed, or the only response of a model of single fields.

        The last response of a request has the parameter `triton_final_response`, as those of Triton's own models that
        send several. A frame has its number as the parameter `frame`.
        """
        predictor = self._service.predictor
        while (body := await call.read(self._streams)) is not None:
            call.admit(Scope.INFER)  # the key may have gone, or have another rate, since the stream began
            call.caller.check()
            with self._service.admission.admit(call.caller.name) as ticket:
                wanted, exchange = await self._wanted(call, body, ticket)
                if wanted.card.frames is None:
                    await call.write(await predictor.predict(wanted, exchange), ticket, last=True)
                    continue
                ticket.enter(rollout=True)
                async with aclosing(stream(predictor, wanted, exchange)) as frames:
                    async for frame in frames:
                        frame.written.message.parameters["frame"].int64_param = frame.number
                        await call.write(frame.written, ticket, last=frame.last)

    async def _wanted(self, call: Call, body: bytes | None, ticket: Ticket) -> tuple[Prediction, GrpcExchange]:
        begun = asyncio.get_running_loop().time()
        ticket.hold(call.size)
        self._service.metrics.request_bytes.observe(call.size)
        request, contents = await offload(call.size, request_of, body)
        if not request.model_version:  # one whose predecessor has just gone is waited for
            await self._service.catalogue.newest(request.model_name)
        card = self._find(call, request.model_name, request.model_version)
        policy, latest = inference.policy(parameters_of(request), {}), not request.model_version
        wanted = Prediction(card, call.id, call.caller, policy, latest=latest, ticket=ticket, begun=begun)
        return wanted, GrpcExchange(request, contents, call.size)


class Turns:
    """How many messages may arrive at one time, since gRPC says the size of none before it is complete.

    One that takes longer than `PATIENCE` gives way to one that waits, so that slow clients hold up none. On a stream
    it may not have begun: those on which no message has been complete yet give way first.
    """

    def __init__(self, most: int) -> None:
        self._most, self._left = most, asyncio.Event()
        self._arriving: dict[asyncio.Timeout, tuple[bool, float]] = {}  # if others have been complete; since when

    @asynccontextmanager
    async def next(self, limit: asyncio.Timeout, *, further: bool) -> AsyncIterator[None]:
        """Wait for a turn, for a first or a further message; the end of the context or of its time limit ends it."""
        clock = asyncio.get_running_loop().time
        while len(self._arriving) >= self._most:
            first, (_, since) = min(self._arriving.items(), key=lambda item: item[1])
            if (patience := since + PATIENCE - clock()) <= 0:
                if not first.expired():  # else it ends in this moment
                    first.reschedule(clock())
                del self._arriving[first]
                break
            self._left.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), patience)
        self._arriving[limit] = further, clock()
        try:
            yield
        finally:
            self._arriving.pop(limit, None)
            self._left.set()


class Call:
    """One call of a method: its messages and its outcome.

    `metadata` is what the client has sent beside its message, `caller` the holder of the key once admitted, `size` the
    bytes of the message once it has arrived, `code` the name of the status with which the call ended.
    """

    def __init__(self, context: Any, service: Service) -> None:
        self.metadata = {name: str(value) for name, value in context.invocation_metadata() or ()}
        self.id = request_id(self.metadata.get(ID_HEADER.lower(), ""))
        self.caller, self.model, self.version, self.code, self.problem = ANYONE, UNKNOWN, "", "CANCELLED", ""
        self.size = self.sent = 0
        self._context, self._service, self._start = context, service, time.perf_counter()
        self._seconds = service.settings.receive_seconds

    def admit(self, scope: Scope | None) -> None:
        """Note the holder of the key, or refuse the call."""
        self.caller = self._service.guard.admit(scope, self.metadata.get("authorization", ""))

    async def read(self, turns: Turns) -> bytes | None:
        """Return the next message, None at the end of a stream; one that is not complete in time is refused."""
        start = time.perf_counter()
        try:
            async with asyncio.timeout(self._seconds) as timeout:
                further = self.size > 0
                async with turns.next(timeout, further=further):
                    body = await self._context.read()
        except TimeoutError as error:
            seconds = min(self._seconds, time.perf_counter() - start)
            raise Problem("slow-body", f"no complete message arrived within {seconds:.2g} s") from error
        if body is grpc.aio.EOF:
            return None
        self.size = len(body)
        return bytes(body)

    async def write(self, response: Response, ticket: Ticket, *, last: bool | None = None) -> None:
        """Send a response, counted until it is read; end the call of a client that does not read for some time.

        It may ask again, as a client of HTTP does whose connection is closed then. In a stream the response says
        whether it is the `last` one of its request. It is there twice all the time: as arrays and as a message, of
        which gRPC then makes a copy.
        """
        held = 2 * response.nbytes
        ticket.add(held)
        if last is not None:
            response.message.parameters["triton_final_response"].bool_param = last
        message = await offload(response.nbytes, partial(response.serialised, streamed=last is not None))
        del response
        try:
            async with asyncio.timeout(self._seconds):
                await self._context.write(message)
        except TimeoutError as error:
            raise Problem("unavailable", f"the client has read nothing for {self._seconds:g} s") from error
        ticket.add(-held)
        self.sent += len(message)

    async def abort(self, problem: Problem) -> None:
        """End the call with an error; never returns. One that the client has left counts as cancelled."""
        code, detail = CODES[problem.status], problem.detail
        if len(detail) > MOST_DETAIL:
            detail = f"{detail[:MOST_DETAIL]}…"
        headers = {ID_HEADER: self.id, TYPE_HEADER: problem.details().type, **problem.headers}
        trailing = tuple((name.lower(), value) for name, value in headers.items())
        try:
            await self._context.abort(code, detail, trailing)
        except grpc.aio.AbortError:
            self._service.metrics.rejected.labels(problem.kind).inc()
            self.code, self.problem = code.name, problem.kind
            raise

    def record(self, method: str) -> None:
        service = self._service
        Entry(
            request_id=self.id,
            method="GRPC",
            route=f"/{SERVICE}/{method}",
            model=self.model if service.catalogue.knows(self.model) else UNKNOWN,
            version=self.version,
            status=self.code,
            problem=self.problem,
            seconds=time.perf_counter() - self._start,
            bytes_in=self.size,
            bytes_out=self.sent,
            client=caller_address(self._context.peer(), self.metadata.get("x-forwarded-for", ""), service.trusted),
            key=self.caller.name,
        ).record(service.metrics, method)
