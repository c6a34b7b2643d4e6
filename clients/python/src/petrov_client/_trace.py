"""The caller's OpenTelemetry span in, headers of W3C Trace Context out; nothing where nobody traces."""

from __future__ import annotations

import sys


def context() -> dict[str, str]:
    """`traceparent`, and `tracestate` if there is one, of the active span; empty without one.

    A caller who traces has imported OpenTelemetry: there is no need to depend on it, nor to look for it.
    """
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - optional, as said
        TraceContextTextMapPropagator,
    )

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers
