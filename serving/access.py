"""The outermost layer: every request gets an id, a log line and a measurement, and no exception gets past it.

The id comes from `X-Request-Id`, if that is a harmless word, and goes back in the same header. The line holds no
payload: `POST /v1/models/darcy/predict 200 12.3 ms id=…`.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders

from serving.metrics import UNKNOWN
from serving.problem_details import InternalError
from serving.rendering import problem_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from serving.metrics import Metrics

logger = logging.getLogger("petrov.access")
HEADER = "X-Request-Id"
HUNG_UP = 499  # no status of HTTP: the client left before there was one
_HARMLESS = re.compile(r"[\w.:-]{1,64}", re.ASCII)


def request_id(given: str) -> str:
    """The id of a request: what its client calls it, if that is a harmless word, else a new one."""
    return given if _HARMLESS.fullmatch(given) else uuid.uuid4().hex


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
        status = HUNG_UP

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = name
            await send(message)

        start = time.perf_counter()
        with self._metrics.inflight.track_inprogress():
            try:
                await self._app(scope, receive, sending)
            except Exception:
                logger.exception("%s %s id=%s", scope["method"], quote(scope["path"][:128]), name)
                if status != HUNG_UP:
                    raise  # too late for another answer; the server closes the connection
                problem = InternalError(f"a fault of ours; our log has it under the id {name}")
                await problem_response(problem, scope["path"])(scope, receive, sending)
            finally:
                self._record(scope, status, time.perf_counter() - start, name)

    def _record(self, scope: Scope, status: int, seconds: float, called: str) -> None:
        route = getattr(scope.get("route"), "path", UNKNOWN)
        name = scope.get("path_params", {}).get("model", "")
        model = name if self._knows(name) else UNKNOWN
        self._metrics.request_seconds.labels(model, route, status).observe(seconds)
        logger.info(
            "%s %s %d %.1f ms id=%s", scope["method"], quote(scope["path"][:128]), status, seconds * 1e3, called
        )
