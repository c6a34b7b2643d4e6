"""The headers of W3C Trace Context for the caller's active OpenTelemetry span."""

from __future__ import annotations

import sys


def context() -> dict[str, str]:
    """Return `traceparent`, and `tracestate` if there is one, of the active span; empty without a span.

    A caller who traces has imported OpenTelemetry, so the client neither depends on it nor imports it first.
    """
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - optional, as said
        TraceContextTextMapPropagator,
    )

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers
