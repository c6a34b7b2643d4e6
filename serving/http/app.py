"""Settings and inference servers in, an ASGI application out."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from serving.auth import authorisation
from serving.http import rendering, routes
from serving.http import static as pages
from serving.http.access import Access
from serving.http.fast_path import Shortcut
from serving.observability.telemetry import NO_TRACES
from serving.open_inference import routes as open_inference
from serving.open_inference.grpc_server import GrpcServer
from serving.problem_details import Problem
from serving.service import Service
from serving.version import VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI, Request
    from starlette.responses import Response

    from serving.inference.backend import InferenceBackend
    from serving.settings import Settings

logger = logging.getLogger(__name__)


def create_app(settings: Settings, *tritons: InferenceBackend) -> FastAPI:
    """The gateway as an application.

    Args:
        settings: The operator's choices.
        tritons: Where models run. They are opened when the application starts and closed when it stops.

    Returns:
        The application; `app.state.service` has its parts, `app.state.service.drain()` takes it out of rotation. Its
        gRPC side, which listens while the application runs, is `app.state.grpc`, if the settings want one.

    Raises:
        KeysError: The settings name a key file that cannot be used.
    """
    service = Service(settings, tritons, VERSION)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.run():
            if not settings.grpc_port:
                yield
                return
            app.state.grpc = GrpcServer(service)  # here, since it belongs to the event loop that runs
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
    app.state.service, app.state.grpc = service, None
    app.include_router(routes.router)
    app.include_router(pages.router)
    app.include_router(open_inference.router)
    if not service.traces:  # whose spans the router names
        app.add_middleware(Shortcut, service=service)
    app.add_middleware(authorisation.Authorisation, guard=service.guard, metrics=service.metrics)
    app.add_middleware(Access, metrics=service.metrics, knows=service.catalogue.knows)
    _handle_errors(app, service)
    if service.keys:
        authorisation.describe(app.openapi())
    return app


def _handle_errors(app: FastAPI, service: Service) -> None:
    """Every error leaves as a problem, and is counted by its kind."""

    def respond(request: Request, problem: Problem) -> Response:
        return rendering.refusal(problem, request.url.path, service.metrics)

    @app.exception_handler(Problem)
    async def problem(request: Request, error: Problem) -> Response:
        return respond(request, error)

    @app.exception_handler(HTTPException)
    async def router(request: Request, error: HTTPException) -> Response:
        return respond(request, rendering.from_router(request, error))

    @app.exception_handler(RequestValidationError)
    async def validation(request: Request, error: RequestValidationError) -> Response:
        return respond(request, rendering.from_validation(error))

    @app.exception_handler(ClientDisconnect)
    async def disconnect(_: Request, __: ClientDisconnect) -> Response:
        return rendering.hung_up()
