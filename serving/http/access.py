"""Middleware around everything else: every request gets an id, a log entry and a measurement.

The id is the client's `X-Request-Id`, if that is safe in a log, and goes back in the same header. No exception gets
past this middleware.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders

from serving.errors import Problem
from serving.http.connection import DRAINED
from serving.http.rendering import CLIENT_CLOSED, problem_response
from serving.limits import Ticket
from serving.observability.metrics import UNKNOWN
from serving.observability.request_log import ID_HEADER, Entry, request_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from serving.limits import Admission
    from serving.observability.metrics import Metrics

logger = logging.getLogger("petrov.access")
_SMALL_BYTES = 2**16  # as many as a connection takes at once


class Access:
    """ASGI middleware that identifies, measures and logs requests.

    Args:
        app: The application.
        metrics: Counts requests and their times.
        admission: Counts what they hold, until the client has read the response.
        knows: Whether a name is a model's; other names share one metrics label.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, admission: Admission, knows: Callable[[str], bool]) -> None:
        self._app = app
        self._admission = admission
        self._metrics = metrics
        self._knows = knows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = request_id(Headers(scope=scope).get(ID_HEADER, ""))
        ticket = Ticket(self._admission)
        scope.setdefault("state", {}).update(request_id=name, ticket=ticket)
        drained = scope.get("extensions", {}).get(DRAINED)
        status, read, written = CLIENT_CLOSED, 0, 0

        async def receiving() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            return message

        async def sending(message: Message) -> None:
            nonlocal status, written
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[ID_HEADER] = name
            written += (size := len(message.get("body", b"")))
            ticket.add(size)
            await send(message)
            if drained and size > _SMALL_BYTES:
                await drained["call"]()
            ticket.add(-size)

        start = time.perf_counter()
        with self._metrics.inflight.track_inprogress():
            try:
                await self._app(scope, receiving, sending)
            except Exception:
                logger.exception("%s %s id=%s", scope["method"], quote(scope["path"][:128]), name)
                if status != CLIENT_CLOSED:
                    raise  # a response has begun: the server closes the connection
                problem = Problem("internal-error", f"an internal error; the log has it under the id {name}")
                await problem_response(problem, scope["path"])(scope, receive, sending)
            finally:
                ticket.end()
                self._record(scope, status, time.perf_counter() - start, (read, written))

    def _record(self, scope: Scope, status: int, seconds: float, size: tuple[int, int]) -> None:
        route = getattr(scope.get("route"), "path", UNKNOWN)
        name = scope["state"].get("model") or scope.get("path_params", {}).get("model", "")
        model = name if self._knows(name) else UNKNOWN
        self._metrics.request_seconds.labels(model, route, status).observe(seconds)
        Entry(
            request_id=scope["state"]["request_id"],
            method=scope["method"],
            route=route,
            model=model,
            version=str(scope["state"].get("version", "")),
            status=str(status),
            seconds=seconds,
            bytes_in=size[0],
            bytes_out=size[1],
            client=(scope.get("client") or ("",))[0],
            key=getattr(scope["state"].get("caller"), "name", ""),
        ).write(quote(scope["path"][:128]))
