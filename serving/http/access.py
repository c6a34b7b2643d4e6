"""The outermost layer: every request gets an id, a log line and a measurement, and no exception gets past it.

The id comes from `X-Request-Id`, if that is a harmless word, and goes back in the same header. The line holds no
payload, no query and no secret. For people it is a sentence, `POST /v1/models/darcy/predict 200 12.3 ms id=…`; for
machines the fields of an `Entry`.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders

from serving.http.rendering import HUNG_UP, problem_response
from serving.observability.log import FIELDS
from serving.observability.metrics import UNKNOWN
from serving.problem_details import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from serving.observability.metrics import Metrics

logger = logging.getLogger("petrov.access")
HEADER = "X-Request-Id"
_HARMLESS = re.compile(r"[\w.:-]{1,64}", re.ASCII)


def request_id(given: str) -> str:
    """The id of a request: what its client calls it, if that is a harmless word, else a new one."""
    return given if _HARMLESS.fullmatch(given) else uuid.uuid4().hex


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What the log says of a request that has ended.

    Attributes:
        request_id: As it went back to the client.
        method: Of HTTP, or `GRPC`.
        route: The template of the path, or the name of the call.
        model: Its name, if it is one.
        version: Of the model that was asked, "" before one was found.
        status: As metrics have it: of HTTP, or the name of gRPC's.
        seconds: From the request line to the end of the answer.
        bytes_in: Of the body, as far as it was read.
        bytes_out: Of the answer.
        client: Its address.
        key: The name of its API key, "" without one.
    """

    request_id: str
    method: str
    route: str
    model: str
    version: str
    status: str
    seconds: float
    bytes_in: int
    bytes_out: int
    client: str
    key: str

    def write(self, asked: str) -> None:
        """Into the log; people read what was asked for in place of its template."""
        if logger.isEnabledFor(logging.INFO):
            words = (self.method, asked, self.status, self.seconds * 1e3, self.request_id)
            logger.info("%s %s %s %.1f ms id=%s", *words, extra={FIELDS: vars(self)})


class Access:
    """ASGI middleware around everything else.

    Args:
        app: What answers.
        metrics: Where requests are counted.
        knows: Whether a name is a model's, so that labels stay few.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, knows: Callable[[str], bool]) -> None:
        self._app = app
        self._metrics = metrics
        self._knows = knows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = request_id(Headers(scope=scope).get(HEADER, ""))
        scope.setdefault("state", {})["request_id"] = name
        status, read, written = HUNG_UP, 0, 0

        async def receiving() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            return message

        async def sending(message: Message) -> None:
            nonlocal status, written
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = name
            written += len(message.get("body", b""))
            await send(message)

        start = time.perf_counter()
        with self._metrics.inflight.track_inprogress():
            try:
                await self._app(scope, receiving, sending)
            except Exception:
                logger.exception("%s %s id=%s", scope["method"], quote(scope["path"][:128]), name)
                if status != HUNG_UP:
                    raise  # too late for another answer; the server closes the connection
                problem = InternalError(f"a fault of ours; our log has it under the id {name}")
                await problem_response(problem, scope["path"])(scope, receive, sending)
            finally:
                self._record(scope, status, time.perf_counter() - start, (read, written))

    def _record(self, scope: Scope, status: int, seconds: float, size: tuple[int, int]) -> None:
        route = getattr(scope.get("route"), "path", UNKNOWN)
        name = scope.get("path_params", {}).get("model", "")
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
