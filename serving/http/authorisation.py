"""Middleware that admits a request only with the scope that its route declares.

A route declares its scope beside its path:

    @router.get("/v1/models")
    @requires(Scope.INFER)
    async def list_models(...)

Where keys are required, a route without a declaration is 404 for every key: forgetting it closes the route.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fastapi.routing import iter_route_contexts
from starlette.datastructures import Headers
from starlette.routing import Mount

from serving.auth.guard import OPEN
from serving.errors import Problem
from serving.http.rendering import refusal
from serving.limits import ANYONE

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Receive, Send
    from starlette.types import Scope as Connection

    from serving.auth.guard import Guard
    from serving.auth.keys import Scope
    from serving.limits import Caller
    from serving.observability.metrics import Metrics

Endpoint = TypeVar("Endpoint")
_ATTRIBUTE = "required_scope"


class Declared(NamedTuple):
    """A route whose scope is declared: its path template, the pattern of its paths, and the scope."""

    path: str
    pattern: re.Pattern[str]
    scope: Scope | None


def requires(scope: Scope | None) -> Callable[[Endpoint], Endpoint]:
    """Return a decorator that declares the scope of an endpoint, or of the application of a mount."""

    def declare(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _ATTRIBUTE, scope)
        return endpoint

    return declare


def declarations(routes: Sequence[BaseRoute]) -> list[Declared]:
    """Return the routes whose scope is declared, in the order of the router."""
    found: list[Declared] = []
    for route in iter_route_contexts(routes):
        original = route.original_route
        target = original.app if isinstance(original, Mount) else route.endpoint
        if hasattr(target, _ATTRIBUTE):
            path = route.path or ""
            found.append(Declared(path, route.path_regex, getattr(target, _ATTRIBUTE)))
    return found


def describe(document: dict[str, Any], routes: Sequence[BaseRoute]) -> None:
    """Add to an OpenAPI document which operations need a key, so that the interactive pages offer to send one."""
    document.setdefault("components", {})["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    scopes = {route.path: route.scope for route in declarations(routes)}
    for path, operations in document["paths"].items():
        if (scope := scopes.get(path)) is not OPEN:
            for operation in operations.values():
                operation["security"] = [{"key": [scope]}]


class Authorisation:
    """ASGI middleware that refuses a request without the scope; `request.state.caller` is the caller it admits.

    Args:
        app: The application that it protects.
        routes: The routes of that application, complete by the first request.
        guard: Decides.
        metrics: Counts refusals.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute], guard: Guard, metrics: Metrics) -> None:
        self._app = app
        self._routes = routes
        self._guard = guard
        self._metrics = metrics

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            try:
                caller = self._admit(scope["path"], Headers(scope=scope).get("authorization", ""))
            except Problem as problem:
                await refusal(problem, scope["path"], self._metrics)(scope, receive, send)
                return
            scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)

    def _admit(self, path: str, authorization: str) -> Caller:
        """Return the caller of a path.

        Raises:
            Problem: unauthenticated: There is no key, or an unknown one.
            Problem: unknown-route: No route with a declaration has the path.
            Problem: forbidden: The key lacks the scope.
        """
        if not self._guard.keyed:
            return ANYONE
        for route in self._declared:
            if route.pattern.match(path):
                return self._guard.admit(route.scope, authorization)
        self._guard.reject_unknown(authorization)
        raise Problem("unknown-route", f"there is nothing at {path[:128]}; /docs lists what there is")

    @cached_property
    def _declared(self) -> list[Declared]:
        return declarations(self._routes)
