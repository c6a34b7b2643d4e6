"""An `Authorization` header and a route in, a caller out or a refusal: the one place that decides who may do what.

Without a key file everybody may do everything. With one, only what is listed here exists, and what is not `OPEN` needs
a key with the scope: none, or one that is not known, is 401 (UNAUTHENTICATED); another scope 403 (PERMISSION_DENIED);
a key over its rate 429 (RESOURCE_EXHAUSTED), with `Retry-After`.

Open are the probes, which ask with no key, and the pages, which a browser opens before it can send one: they hold
nothing of the service but its version, and their questions carry the key that is entered there.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.routing import compile_path

from serving.auth.keys import Scope
from serving.auth.rate import Bucket
from serving.http.rendering import refusal
from serving.problem_details import Forbidden, Problem, RateLimited, Unauthenticated, UnknownRoute

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Receive, Send
    from starlette.types import Scope as Connection

    from serving.auth.key_file import KeyFile
    from serving.auth.keys import Key
    from serving.observability.metrics import Metrics

OPEN = None
#: Every path of the gateway, as its router has it. A path that is missing here is not there for anybody with a key.
ROUTES: Mapping[str, Scope | None] = {
    "/": OPEN,
    "/playground/{file}": OPEN,
    "/docs": OPEN,
    "/docs/oauth2-redirect": OPEN,
    "/openapi.json": OPEN,
    "/static-offline-docs/{path:path}": OPEN,
    "/health/live": OPEN,
    "/health/ready": OPEN,
    "/metrics": Scope.METRICS,
    "/v1/models": Scope.INFER,
    "/v1/models/{model}": Scope.INFER,
    "/v1/models/{model}/example": Scope.INFER,
    "/v1/models/{model}/predict": Scope.INFER,
    "/v1/models/{model}/versions/{version}/predict": Scope.INFER,
    "/v1/models/{model}/reference": Scope.INFER,
    "/v2": Scope.INFER,
    "/v2/health/live": OPEN,
    "/v2/health/ready": OPEN,
    "/v2/models/{model}": Scope.INFER,
    "/v2/models/{model}/config": Scope.INFER,
    "/v2/models/{model}/infer": Scope.INFER,
    "/v2/models/{model}/ready": Scope.INFER,
    "/v2/models/{model}/versions/{version}": Scope.INFER,
    "/v2/models/{model}/versions/{version}/config": Scope.INFER,
    "/v2/models/{model}/versions/{version}/infer": Scope.INFER,
    "/v2/models/{model}/versions/{version}/ready": Scope.INFER,
}
#: Every method of the gateway's gRPC; one that is missing here cannot be served.
METHODS: Mapping[str, Scope | None] = {
    "ServerLive": OPEN,
    "ServerReady": OPEN,
    "ServerMetadata": Scope.INFER,
    "ModelReady": Scope.INFER,
    "ModelMetadata": Scope.INFER,
    "ModelConfig": Scope.INFER,
    "RepositoryIndex": Scope.INFER,
    "ModelInfer": Scope.INFER,
}
_PATTERNS = [(compile_path(template)[0], scope) for template, scope in ROUTES.items()]


class Caller:
    """Whoever asks, and what is left of their rate.

    Args:
        name: Of the key; nobody's if no key is asked for.
        limit: Fields per second, and at once; None for no limit.
        count: Told how many fields were asked for.
        clock: Seconds.
    """

    def __init__(
        self,
        name: str = "",
        limit: tuple[float, int] | None = None,
        count: Callable[[int], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._bucket = Bucket(*limit, clock()) if limit else None
        self._count = count
        self._clock = clock

    def check(self) -> None:
        """Before a question is read: whether it could be answered if it were a single field.

        Raises:
            RateLimited: The rate is used up.
        """
        if self._bucket:
            self._allow(self._bucket.wait(1, self._clock()))

    def spend(self, fields: int) -> None:
        """Before a question is answered: take its fields from the rate.

        Raises:
            RateLimited: They are not there yet; none was taken.
        """
        if self._bucket:
            self._allow(self._bucket.take(fields, self._clock()))
        self._count(fields)

    def _allow(self, seconds: float) -> None:
        if seconds:
            wait = math.ceil(seconds)
            raise RateLimited(f'the key "{self.name}" is over its rate; go on in {wait} s', retry_after=wait)


ANYONE = Caller()


class Guard:
    """Lets callers in.

    Args:
        keys: The key file; None lets everybody in.
        metrics: Where the fields of each key are counted.
    """

    def __init__(self, keys: KeyFile | None, metrics: Metrics) -> None:
        self._keys = keys
        self._metrics = metrics
        self._callers: dict[tuple[str, tuple[float, int] | None], Caller] = {}

    def route(self, path: str, authorization: str) -> Caller:
        """Who asks for a path, with the scope that `ROUTES` gives it.

        Raises:
            Unauthenticated: No key, or an unknown one.
            UnknownRoute: Nobody has decided who may have the path.
            Forbidden: The key is for other things.
        """
        if self._keys is None:
            return ANYONE
        for pattern, scope in _PATTERNS:
            if pattern.match(path):
                return self.admit(scope, authorization)
        self._present(self._keys, authorization)  # first: strangers are not told what is there and what is not
        raise UnknownRoute(f"there is nothing at {path[:128]}; /docs lists what there is")

    def admit(self, scope: Scope | None, authorization: str) -> Caller:
        """Who asks for something of a scope.

        Raises:
            Unauthenticated: No key, or an unknown one.
            Forbidden: The key is for other things.
        """
        if self._keys is None or scope is OPEN:
            return ANYONE
        key = self._present(self._keys, authorization)
        if not key.may(scope):
            raise Forbidden(f'the key "{key.name}" is for {" and ".join(key.scopes)}, not for {scope}', scope=scope)
        return self._caller(key)

    def _present(self, file: KeyFile, authorization: str) -> Key:
        scheme, _, presented = authorization.partition(" ")
        if scheme.lower() != "bearer" or not presented.strip():
            raise Unauthenticated("expected an API key: send the header Authorization: Bearer KEY")
        key = file.keys.find(presented.strip())
        if key is None:
            raise Unauthenticated("the API key is not known here", error="invalid_token")
        return key

    def _caller(self, key: Key) -> Caller:
        """The same for all requests of a key, so that it has one rate, until its entry says another."""
        known = (key.name, key.limit)
        if known not in self._callers:
            self._callers[known] = Caller(*known, self._metrics.key_fields.labels(key.name).inc)
        return self._callers[known]


class Authorisation:
    """ASGI middleware that lets nothing past without a caller, who is `request.state.caller` from then on.

    Args:
        app: What answers.
        guard: Who decides.
        metrics: Where refusals are counted.
    """

    def __init__(self, app: ASGIApp, guard: Guard, metrics: Metrics) -> None:
        self._app = app
        self._guard = guard
        self._metrics = metrics

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            try:
                caller = self._guard.route(scope["path"], Headers(scope=scope).get("authorization", ""))
            except Problem as problem:
                await refusal(problem, scope["path"], self._metrics)(scope, receive, send)
                return
            scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)


def describe(document: dict[str, Any]) -> None:
    """Say in an OpenAPI document which operations need a key, so that the interactive pages ask for one."""
    document.setdefault("components", {})["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        if (scope := ROUTES.get(path)) is not OPEN:
            for operation in operations.values():
                operation["security"] = [{"key": [scope]}]
