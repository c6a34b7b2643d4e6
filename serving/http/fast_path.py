"""ASGI middleware that takes predictions past FastAPI's router, straight to their handlers.

For a small model the router, its dependencies and its layers take as long as the model. The routes are FastAPI's all
the same, in its document and with its answers: what is not plainly a prediction, it sees.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request

from serving.http import rendering, routes
from serving.problem_details import Problem

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from serving.service import Service

_PATH = re.compile(r"/v1/models/([^/]+)/(?:versions/([0-9]{1,9})/)?predict")
_ROUTES = {route.path: route for route in routes.router.routes if hasattr(route, "path")}


class Shortcut:
    """The innermost layer before the router.

    Args:
        app: The router, and what is around it.
        service: The gateway's parts.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        prediction = scope["type"] == "http" and scope["method"] == "POST" and _PATH.fullmatch(scope["path"])
        if not prediction:
            await self._app(scope, receive, send)
            return
        response = await self._answer(Request(scope, receive), *prediction.groups())
        await response(scope, receive, send)

    async def _answer(self, request: Request, model: str, version: str | None) -> Response:
        scope = request.scope
        scope["path_params"] = {"model": model}
        try:
            if version is None:
                scope["route"] = _ROUTES[routes.PREDICT]
                return await routes.predict(model, request, self._service)
            scope["route"] = _ROUTES[routes.PREDICT_WITH_VERSION]
            return await routes.predict_with_version(model, int(version), request, self._service)
        except Problem as problem:
            return rendering.refusal(problem, scope["path"], self._service.metrics)
        except ClientDisconnect:
            return rendering.hung_up()
