"""An OTLP address in, OpenTelemetry spans out: one for a request, its phases below, all in the trace of who asked.

    POST /v1/models/{model}/predict     below the client's span, if it sent a `traceparent`
    ├─ parse
    ├─ queue
    ├─ triton                           Triton is sent this one's `traceparent`: if it makes spans, they go below
    └─ encode

Spans hold names, grids and outcomes; never values, and no message of an exception, which may quote one. FastAPI makes
the span of a request over HTTP. The SDK (dependency group `telemetry`) is imported where there is an address, and
follows its own `OTEL_*` variables: `OTEL_TRACES_SAMPLER=parentbased_traceidratio` keeps a share of the traces.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from serving.observability.metrics import Metrics
from serving.startup_error import StartupError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from fastapi.telemetry import TelemetryConfig
    from opentelemetry.trace import Span

    Handler = Callable[[Any, Any], Awaitable[bytes]]

#: What Triton is to be told of the trace in which it is asked: metadata, or None.
outgoing: ContextVar[Mapping[str, str] | None] = ContextVar("outgoing", default=None)
NO_TRACES: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
_UNTRACED = ("/health/", "/metrics", "/v2/health/")  # asked every few seconds by machines
_UNTRACED_CALLS = ("ServerLive", "ServerReady")
_FAULTS = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
_SECONDS = 3.0  # for one export: a collector that is away must not keep us from leaving
_w3c = TraceContextTextMapPropagator()


class Traces:
    """The spans of one gateway, and the way they leave it.

    Args:
        url: Where they are sent, as OTLP over HTTP.
        version: Of the software.

    Raises:
        StartupError: The packages of the group `telemetry` are not installed.
    """

    def __init__(self, url: str, version: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - optional, half a second
                OTLPSpanExporter,
            )
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above
        except ImportError as error:
            raise StartupError(
                "PETROV_TRACES is set, but OpenTelemetry's SDK is not installed: "
                "pip install --group telemetry -c constraints.txt"
            ) from error
        resource = Resource.create({"service.name": "petrov-gateway", "service.version": version})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url, timeout=_SECONDS)))
        self._tracer = self._provider.get_tracer("petrov", version)

    @property
    def fastapi(self) -> TelemetryConfig:
        """What FastAPI has to know to make a span of every request but those of probes."""
        return NO_TRACES | {
            "tracing": True,
            "operation_spans": False,  # our own phases say more
            "tracer_provider": self._provider,
            "exclude": lambda scope: scope["path"].startswith(_UNTRACED),
        }

    async def close(self) -> None:
        """Send what has not been sent yet."""
        await asyncio.to_thread(self._provider.shutdown)

    def call(self, method: str, handle: Handler) -> Handler:
        """A method of a gRPC service as it was, in a span of its own."""
        if method.rpartition("/")[2] in _UNTRACED_CALLS:
            return handle

        async def traced(request: Any, context: Any) -> bytes:
            parent = _w3c.extract(dict(context.invocation_metadata() or ()))
            about = {"rpc.system.name": "grpc", "rpc.method": method}
            with self._start(method, about, context=parent, kind=SpanKind.SERVER) as span:
                code = "CANCELLED"
                try:
                    reply = await handle(request, context)
                    code = "OK"
                except Exception:
                    code = context.code().name  # an abort has set it
                    raise
                finally:
                    _conclude(span, code)
                return reply

        return traced

    @contextmanager
    def phase(self, name: str, about: Mapping[str, str]) -> Iterator[None]:
        """A span below the current one, of which calls of Triton are told meanwhile."""
        with self._start(name, about) as span:
            token = outgoing.set(_headers(span))
            try:
                yield
            except BaseException as error:
                _fail(span, type(error).__name__)
                raise
            finally:
                outgoing.reset(token)

    def past(self, name: str, about: Mapping[str, str], seconds: float) -> None:
        """A span below the current one that ends now."""
        end = time.time_ns()
        self._tracer.start_span(name, attributes=dict(about), start_time=end - int(seconds * 1e9)).end(end)

    def _start(self, name: str, about: Mapping[str, str], **how: Any) -> AbstractContextManager[Span]:
        return self._tracer.start_as_current_span(
            name, attributes=dict(about), record_exception=False, set_status_on_exception=False, **how
        )


class TracedMetrics(Metrics):
    """The instruments, and every phase is a span, too.

    Args:
        version: Of the software.
        traces: Where spans are made.
    """

    def __init__(self, version: str, traces: Traces) -> None:
        super().__init__(version)
        self._traces = traces

    @contextmanager
    def phase(self, model: str, grid: str, phase: str) -> Iterator[None]:
        with self._traces.phase(phase, _where(model, grid)), super().phase(model, grid, phase):
            yield

    def parsed(self, model: str, grid: str, seconds: float) -> None:
        super().parsed(model, grid, seconds)
        self._traces.past("parse", _where(model, grid), seconds)


def trace_id() -> str:
    """The trace that we are in, in hexadecimal, or ""."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else ""


def _where(model: str, grid: str) -> dict[str, str]:
    return {"petrov.model": model, "petrov.grid": grid}


def _headers(span: Span) -> dict[str, str] | None:
    """The trace context of a span that is kept; Triton would keep whatever carries one."""
    if not span.get_span_context().trace_flags.sampled:
        return None
    headers: dict[str, str] = {}
    _w3c.inject(headers, trace.set_span_in_context(span))
    return headers


def _conclude(span: Span, code: str) -> None:
    span.set_attribute("rpc.response.status_code", code)
    if code in _FAULTS:
        _fail(span, code)


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)
