"""What goes with every request, over HTTP and gRPC: the key, an id, and the trace of the caller."""

from __future__ import annotations

import re
import secrets
import sys

from petrov_client._errors import InvalidResponse

ID_PREFIX = "petrov-client-"


def bearer(api_key: str | None) -> dict[str, str]:
    """Return the headers, or gRPC metadata, that carry the key."""
    if api_key is None:
        return {}
    if not isinstance(api_key, str) or not re.fullmatch(r"[!-~]+", api_key):
        raise ValueError("expected an API key of visible ASCII characters but got others, such as a space or a newline")
    return {"authorization": f"Bearer {api_key}"}


def new_id() -> str:
    """Return an id for one attempt at a request."""
    return f"{ID_PREFIX}{secrets.token_hex(12)}"


def check_id(sent: str, received: str) -> None:
    """Check the id in a response. A proxy may replace it by one of its own, which says nothing.

    Raises:
        InvalidResponse: It is that of another request of a client like this one.
    """
    if received.startswith(ID_PREFIX) and received != sent:
        raise InvalidResponse(
            f"expected the response to request {sent} but got that to {received}: another process or thread has used "
            "this client's connection"
        )


def trace_context() -> dict[str, str]:
    """Return the headers of W3C Trace Context for the caller's active OpenTelemetry span; empty without a span.

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
