"""The gateway's gRPC server, with the catalogue, checks, limits and metrics of HTTP.

The methods are listed one by one; any other is UNIMPLEMENTED. An error has the sentence that HTTP has as `detail`, and
its HTTP status becomes a status of gRPC:

    400 422  INVALID_ARGUMENT     401  UNAUTHENTICATED    413 429  RESOURCE_EXHAUSTED
    500 502  INTERNAL             403  PERMISSION_DENIED  408 504  DEADLINE_EXCEEDED
    503      UNAVAILABLE          404  NOT_FOUND

Every response carries the request's id as `x-request-id` in its trailing metadata, an error the type of HTTP's problem
details as `petrov-problem-type`, and 429 and 503 `retry-after`. A key, where one is required, comes as
`authorization: Bearer …` in the call's metadata (`serving.auth.guard`).

A message is read only when its call has been admitted, and has to arrive in time. gRPC reports its size only when it is
complete: it is bounded by itself, and counted among the bytes in flight once it is complete.
"""

from __future__ import annotations

import logging
import time
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
from tritonclient.grpc import service_pb2

from serving.auth.guard import OPEN
from serving.auth.keys import Scope
from serving.errors import Problem
from serving.http import policies
from serving.http.direct_route import version_number
from serving.observability.metrics import UNKNOWN
from serving.observability.request_log import Entry
from serving.open_inference import metadata
from serving.open_inference.grpc_call import Call
from serving.open_inference.grpc_exchange import GrpcExchange
from serving.predict import Prediction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from serving.catalogue.card import Card
    from serving.catalogue.repository import Version
    from serving.limits import Ticket
    from serving.service import Service

    Method = Callable[[Call], Awaitable[bytes | None]]

logger = logging.getLogger(__name__)
SERVICE = "inference.GRPCInferenceService"
_ENVELOPE_BYTES = 2**20  # a message is its tensors and a little more


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
                ("grpc.so_reuseport", 0),  # else a port in use is an error
            ],
            # Predictions have a limit of their own; calls about models need no admission.
            maximum_concurrent_rpcs=2 * settings.max_requests_in_flight,
        )
        methods: dict[str, tuple[Method, Scope | None]] = {
            "ServerLive": (self._server_live, OPEN),
            "ServerReady": (self._server_ready, OPEN),
            "ServerMetadata": (self._server_metadata, Scope.INFER),
            "ModelReady": (self._model_ready, Scope.INFER),
            "ModelMetadata": (self._model_metadata, Scope.INFER),
            "ModelConfig": (self._model_config, Scope.INFER),
            "RepositoryIndex": (self._repository_index, Scope.INFER),
            "ModelInfer": (self._model_infer, Scope.INFER),
        }
        handlers = {name: self._handler(name, *method) for name, method in methods.items()}
        stream = self._model_stream_infer
        handlers["ModelStreamInfer"] = self._handler("ModelStreamInfer", stream, Scope.INFER, streams=True)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Listen as long as the context lasts, and let calls finish at its end.

        Raises:
            RuntimeError: The port is in use.
        """
        await self.listen()
        try:
            yield
        finally:
            await self.stop()

    async def listen(self) -> None:
        """Listen from now on.

        Raises:
            RuntimeError: The port is in use.
        """
        host = self._settings.host
        self._server.add_insecure_port(f"{f'[{host}]' if ':' in host else host}:{self._settings.grpc_port}")
        await self._server.start()

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
            call = Call(name, context)
            start = time.perf_counter()
            with self._service.metrics.inflight.track_inprogress():
                try:
                    call.caller = self._service.guard.admit(scope, call.authorization)
                    response = await method(call)
                    call.succeed(response)
                except Problem as problem:
                    await self._refuse(call, problem)
                except Exception:
                    logger.exception("%s id=%s", name, call.request_id)
                    await self._refuse(
                        call,
                        Problem("internal-error", f"an internal error; the log has it under the id {call.request_id}"),
                    )
                finally:
                    self._record(call, time.perf_counter() - start)
            return response

        traces = self._service.traces
        kind = grpc.stream_stream_rpc_method_handler if streams else grpc.stream_unary_rpc_method_handler
        return kind(traces.call(f"{SERVICE}/{name}", handle) if traces else handle)

    async def _refuse(self, call: Call, problem: Problem) -> None:
        self._service.metrics.rejected.labels(problem.kind).inc()
        await call.abort(problem)

    def _record(self, call: Call, seconds: float) -> None:
        model = call.model if self._service.catalogue.knows(call.model) else UNKNOWN
        route = f"/{SERVICE}/{call.method}"
        self._service.metrics.request_seconds.labels(model, route, call.code).observe(seconds)
        Entry(
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
        found = self._service.catalogue.find(name, version_number(version) if version else None)
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
        unknown = {"inputs": {"__all__": {"parameters"}}, "outputs": {"__all__": {"parameters"}}}  # to the message
        return _written(service_pb2.ModelMetadataResponse(**document.model_dump(exclude=unknown)))

    async def _model_config(self, call: Call) -> bytes:
        request = await self._read(call, service_pb2.ModelConfigRequest)
        document = metadata.configure(self._find(call, request.name, request.version).card)
        return _written(service_pb2.ModelConfigResponse(config=document.model_dump()))

    async def _repository_index(self, _: Call) -> bytes:
        """List the models that are served, for clients that look them up here."""
        models = [
            {"name": name, "version": str(version), "state": "READY"}
            for name, versions in self._service.catalogue.served().items()
            for version in versions
        ]
        return _written(service_pb2.RepositoryIndexResponse(models=models))

    async def _model_infer(self, call: Call) -> bytes:
        call.caller.check()
        with self._service.admission.admit() as ticket:
            request = await self._read(call, service_pb2.ModelInferRequest)
            return _written(await self._predicted(call, request, await self._card(call, request, ticket)))

    async def _model_stream_infer(self, call: Call) -> None:
        """Send the frames of each request as they are computed, or the only response of a model of single fields.

        The last response of a request has the parameter `triton_final_response`, as those of Triton's own models that
        send several. A frame has its number as the parameter `frame`.
        """
        message, seconds = service_pb2.ModelInferRequest, self._settings.receive_seconds
        while (request := await call.read_next(message, seconds)) is not None:
            call.caller.check()
            with self._service.admission.admit() as ticket:
                card = await self._card(call, request, ticket)
                if card.frames is None:
                    await self._send(call, await self._predicted(call, request, card), last=True)
                else:
                    await self._send_frames(call, request, card)

    async def _send_frames(self, call: Call, request: Any, card: Card) -> None:
        frames = self._service.predictor.stream(
            self._prediction(call, request, card), GrpcExchange(request, call.size, card.result_names)
        )
        async with aclosing(frames):
            async for frame in frames:
                frame.written.parameters["frame"].int64_param = frame.number
                await self._send(call, frame.written, last=frame.last)

    async def _send(self, call: Call, response: Any, *, last: bool) -> None:
        response.parameters["triton_final_response"].bool_param = last
        message = _written(service_pb2.ModelStreamInferResponse(infer_response=response))
        await call.write(message, self._settings.receive_seconds)

    async def _card(self, call: Call, request: Any, ticket: Ticket) -> Card:
        """Count a request, and return the card of the version to run."""
        ticket.hold(call.size)
        self._service.metrics.request_bytes.observe(call.size)
        if not request.model_version:
            await self._service.catalogue.newest(request.model_name)
        return self._find(call, request.model_name, request.model_version).card

    async def _predicted(self, call: Call, request: Any, card: Card) -> Any:
        """Return the message of the outputs."""
        return await self._service.predictor.predict(
            self._prediction(call, request, card), GrpcExchange(request, call.size, card.result_names)
        )

    def _prediction(self, call: Call, request: Any, card: Card) -> Prediction:
        successor = None if request.model_version else self._service.catalogue.successor
        policy = policies.policy(_texts(request.parameters))
        return Prediction(card, call.request_id, call.caller, policy, call.seconds, successor)


def _texts(parameters: Any) -> dict[str, str]:
    """Return the parameters of a request as a query would have them."""
    return {
        name: str(getattr(value, value.WhichOneof("parameter_choice") or "string_param"))
        for name, value in parameters.items()
    }


def _written(message: Any) -> bytes:
    written: bytes = message.SerializeToString()
    return written
