"""The gateway as an ASGI application, assembled from settings and a Triton."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from serving import errors
from serving.auth import OPEN, Authorisation, describe_security, requires
from serving.errors import Problem
from serving.inversion import routes as inversion
from serving.inversion.jobs import Inversions
from serving.observe import Access
from serving.protocols import open_inference, tesseract, umbridge, v1
from serving.protocols.grpc import GrpcServer
from serving.service import Service
from serving.telemetry import NO_TRACES
from serving.version import VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI, Request

    from serving.settings import Settings
    from serving.triton import Triton

PLAYGROUND_FOLDER = Path(__file__).parent / "playground"
PLAYGROUND_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # cached, and validated by its ETag: an upgrade is seen at once
}


@requires(OPEN)
class Playground(StaticFiles):
    """The folder of the playground, with the headers that confine the page to its own origin."""

    def __init__(self) -> None:
        super().__init__(directory=PLAYGROUND_FOLDER)

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Return a file, or 304 if the client has it."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(PLAYGROUND_HEADERS)
        return response


def create_app(settings: Settings, triton: Triton) -> FastAPI:
    """Return the gateway as an application; its Triton is opened when it starts, and closed when it stops.

    `app.state.service` has its parts, `app.state.service.drain()` takes it out of rotation. Its gRPC server, which
    listens while the application runs, is `app.state.grpc`, or None without a port for it. A KeysError: the settings
    name a key file that cannot be used.
    """
    service = Service(settings, triton, VERSION)
    inversions = Inversions(settings, service.metrics)
    service.on_drain.append(inversions.drain)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.run(), inversions.run():
            if not settings.grpc_port:
                yield
                return
            # Made here, since it belongs to the running event loop.
            app.state.grpc = GrpcServer(service)
            async with app.state.grpc.run():
                yield

    # The interactive documentation with its scripts on board: FastAPI's own page loads them from a CDN.
    app = FastAPIOffline(
        title="Petrov",
        version=VERSION,
        summary="Neural operators, served.",
        redoc_url=None,
        lifespan=lifespan,
        telemetry=service.traces.fastapi if service.traces else NO_TRACES,
    )
    app.state.service, app.state.grpc, app.state.inversions = service, None, inversions
    for route in app.routes:  # those of the interactive documentation, the only ones so far, need no key
        requires(OPEN)(route.app if isinstance(route, Mount) else route.endpoint)  # type: ignore[attr-defined]
    # The hot routes first, and not by `include_router`, whose match of a nested router takes as long as the route.
    for hot in (umbridge.calls, tesseract.calls, open_inference.inferences, v1.predictions):
        app.router.routes[:0] = hot.routes
    app.include_router(v1.router)
    app.include_router(open_inference.router)
    app.include_router(tesseract.router)
    app.include_router(inversion.router)
    playground = Playground()
    app.mount("/playground", playground)

    @requires(OPEN)
    async def page(request: Request) -> Response:
        return await playground.get_response("index.html", request.scope)

    app.add_route("/", page, include_in_schema=False)

    if service.guard.keyed:
        app.add_middleware(Authorisation, routes=app.routes, guard=service.guard, metrics=service.metrics)
    app.add_middleware(Access, metrics=service.metrics, admission=service.admission, knows=service.catalogue.knows)
    _handle_errors(app, service)
    if service.guard.keyed:
        describe_security(app.openapi(), app.routes)
    return app


def _handle_errors(app: FastAPI, service: Service) -> None:
    """Render every error as a problem, and count it by its kind."""

    @app.exception_handler(Problem)
    @app.exception_handler(HTTPException)
    @app.exception_handler(RequestValidationError)
    async def respond(request: Request, error: Problem | HTTPException | RequestValidationError) -> Response:
        if isinstance(error, HTTPException):
            error = errors.from_router(request, error)
        elif isinstance(error, RequestValidationError):
            error = errors.from_validation(error)
        return errors.refusal(error, request.url.path, service.metrics.rejected)

    @app.exception_handler(ClientDisconnect)
    async def disconnect(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=errors.CLIENT_CLOSED)  # only logged: the client has left
