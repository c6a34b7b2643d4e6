"""OpenTelemetry spans, sent to an OTLP address: one per request with its phases below, in the client's trace.

    POST /v1/models/{model}/predict     below the client's span, if it sent a `traceparent`
    ├─ parse
    ├─ triton                           Triton is sent this one's `traceparent`: if it makes spans, they go below
    └─ encode

Spans hold names, grids and outcomes, never values and no message of an exception, which may quote one. FastAPI makes
the span of a request over HTTP. The SDK (dependency group `telemetry`) is imported only with an address, and reads its
own `OTEL_*` variables: `OTEL_TRACES_SAMPLER=parentbased_traceidratio` keeps a share of the traces.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from fastapi.telemetry import TelemetryConfig
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from serving.system import StartupError

Handler = Callable[[Any, Any], Awaitable[bytes | None]]

NO_TRACES: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
_UNTRACED = ("/health/", "/metrics", "/v2/health/")  # probes and scrapes, every few seconds
_UNTRACED_CALLS = ("ServerLive", "ServerReady")
_FAULTS = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
_SECONDS = 3.0  # for one export: a lost collector must not delay the end of the process
_w3c = TraceContextTextMapPropagator()


class Traces:
    """The spans of one gateway and their export to an OTLP address, over HTTP.

    A StartupError: the packages of the group `telemetry` are not installed.
    """

    def __init__(self, url: str, version: str, prefix: str = "") -> None:
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
        self._prefix = prefix  # of paths: spans begin before `serving.address` tells it apart
        resource = Resource.create({"service.name": "petrov-gateway", "service.version": version})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter(url, timeout=_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("petrov", version)

    @property
    def fastapi(self) -> TelemetryConfig:
        """FastAPI's configuration for a span per request, probes excepted."""
        return NO_TRACES | {
            "tracing": True,
            "operation_spans": False,  # the phases say more
            "tracer_provider": self._provider,
            "exclude": lambda scope: scope["path"].removeprefix(self._prefix).startswith(_UNTRACED),
        }

    async def close(self) -> None:
        """Export the spans that are left, as far as the collector takes them in time."""
        # Each batch has a time limit, and there may be many.
        late = asyncio.get_running_loop().call_later(_SECONDS, self._exporter.shutdown)
        await asyncio.to_thread(self._provider.shutdown)
        late.cancel()

    def call(self, method: str, handle: Handler) -> Handler:
        """Return a method of a gRPC service that runs in a span of its own."""
        if method.rpartition("/")[2] in _UNTRACED_CALLS:
            return handle

        async def traced(request: Any, context: Any) -> bytes | None:
            parent = _w3c.extract(dict(context.invocation_metadata() or ()))
            about = {"rpc.system.name": "grpc", "rpc.method": method}
            with self._start(method, about, context=parent, kind=SpanKind.SERVER) as span:
                code = "CANCELLED"
                try:
                    response = await handle(request, context)
                    code = "OK"
                except Exception:
                    code = context.code().name  # an abort has set it
                    raise
                finally:
                    span.set_attribute("rpc.response.status_code", code)
                    if code in _FAULTS:
                        _fail(span, code)
                return response

        return traced

    @contextmanager
    def phase(self, name: str, model: str, grid: str) -> Iterator[Mapping[str, str]]:
        """Return a context with a span below the current one; it yields the headers that calls of Triton carry."""
        with self._start(name, {"petrov.model": model, "petrov.grid": grid}) as span:
            headers: dict[str, str] = {}
            if span.get_span_context().trace_flags.sampled:  # Triton would record any call that carries a context
                _w3c.inject(headers, trace.set_span_in_context(span))
            try:
                yield headers
            except BaseException as error:
                _fail(span, type(error).__name__)
                raise

    def past(self, name: str, model: str, grid: str, seconds: float) -> None:
        """Record a span below the current one that took so many seconds and ends now."""
        end, about = time.time_ns(), {"petrov.model": model, "petrov.grid": grid}
        self._tracer.start_span(name, attributes=about, start_time=end - int(seconds * 1e9)).end(end)

    def _start(self, name: str, about: Mapping[str, str], **how: Any) -> AbstractContextManager[Span]:
        return self._tracer.start_as_current_span(
            name, attributes=dict(about), record_exception=False, set_status_on_exception=False, **how
        )


def trace_id() -> str:
    """Return the id of the current trace in hexadecimal, or an empty string."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else ""


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)
