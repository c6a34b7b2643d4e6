"""The gateway as an ASGI application, assembled from settings and a Triton; its start and its end.

After SIGTERM, SIGINT or SIGHUP readiness becomes false, the gateway stops listening `notice_seconds` later, finishes
its requests, and then Triton drains. A Triton that cannot run ends the gateway.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
import secrets
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from serving import errors
from serving.address import Named, Proxied, WithHead
from serving.auth import OPEN, Authorisation, describe_security, requires
from serving.compression import Compression
from serving.connection import configuration
from serving.errors import Problem
from serving.inversion import routes as inversion
from serving.inversion.jobs import Inversions
from serving.local_triton.server import TritonServer
from serving.observe import Access
from serving.protocols import open_inference, tesseract, umbridge, v1
from serving.protocols.grpc import GrpcServer
from serving.service import Service
from serving.settings import ANY, Settings, listed
from serving.telemetry import NO_TRACES
from serving.triton import Triton
from serving.version import VERSION

logger = logging.getLogger(__name__)
DOCUMENTATION_FILES = "/static-offline-docs"
GROUPS = {
    "Models": "What is served, and samples of it.",
    "Predictions": "Outputs, rollouts, derivatives and solutions of classical solvers; a card says what a model takes.",
    "Inversions": "Inputs that are inferred from measurements of an output, in the background.",
    "Health": "Whether the process runs, and whether its models are loaded.",
    "Open Inference Protocol": "The same models for clients of KServe's V2 protocol, such as Triton's.",
    "UM-Bridge": "The same models for programs of uncertainty quantification.",
    "Tesseract": "The same models for clients of Tesseract.",
}
"""The groups of routes in the documentation, in their order; generated clients have a class for each."""
PLAYGROUND_FOLDER = Path(__file__).parent / "playground"
POLICY = (
    "default-src 'none'; script-src 'self'{script}; style-src 'self'{style}; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": POLICY.format(script="", style=""),
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

    async def page(self, scope: Scope) -> Response:
        return await super().get_response("index.html", scope)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file of the page; the page itself is at the root, which its addresses count from."""
        if path in {".", "index.html"}:
            return RedirectResponse(f"{scope['app_root_path']}/")
        return await super().get_response(path, scope)

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(PAGE_HEADERS)
        return response


@requires(OPEN)
async def documentation(request: Request) -> Response:
    """Return the interactive documentation, with its scripts on board, confined as the playground is.

    Its own script differs with the path of the service, and is allowed by its hash; Swagger UI sets styles itself.
    """
    root = request.scope["root_path"]
    page = get_swagger_ui_html(
        openapi_url=f"{root}/openapi.json",
        title="Petrov",
        swagger_js_url=f"{root}{DOCUMENTATION_FILES}/swagger-ui-bundle.js",
        swagger_css_url=f"{root}{DOCUMENTATION_FILES}/swagger-ui.css",
        swagger_favicon_url=f"{root}{DOCUMENTATION_FILES}/favicon.png",
    )
    [script] = re.findall(rb"<script>(.*?)</script>", bytes(page.body), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    policy = POLICY.format(script=f" 'sha256-{digest}'", style=" 'unsafe-inline'")
    page.headers.update(PAGE_HEADERS | {"Content-Security-Policy": policy})
    return page


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
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if settings.grpc_port:
            app.state.grpc = GrpcServer(service)  # made here, since it belongs to the running event loop
        async with service.run(), inversions.run(), app.state.grpc.run() if app.state.grpc else nullcontext():
            yield

    # It serves the files of the interactive documentation, which FastAPI's own page loads from a CDN.
    app = FastAPIOffline(
        docs_url=None,
        static_url=DOCUMENTATION_FILES,
        title="Petrov",
        version=VERSION,
        summary="Neural operators, served.",
        openapi_tags=[{"name": name, "description": meaning} for name, meaning in GROUPS.items()],
        redoc_url=None,
        lifespan=lifespan,
        telemetry=service.traces.fastapi if service.traces else NO_TRACES,
    )
    app.state.service, app.state.grpc, app.state.inversions = service, None, inversions
    for route in app.routes:  # the files of the interactive documentation, the only ones so far, need no key
        requires(OPEN)(route.app if isinstance(route, Mount) else route.endpoint)  # type: ignore[attr-defined]
    # The hot routes first, and not by `include_router`, whose match of a nested router takes as long as the route.
    for each in (umbridge, tesseract, open_inference, v1):
        app.router.routes[:0] = each.calls.routes
    for each in (v1, open_inference, tesseract, inversion):
        app.include_router(each.router)
    playground = Playground()
    app.mount("/playground", playground)

    @requires(OPEN)
    async def page(request: Request) -> Response:
        return await playground.page(request.scope)

    app.add_route("/", page, include_in_schema=False)
    app.add_route("/docs", documentation, include_in_schema=False)
    _describe_apart(app)

    _add_middleware(app, service)
    _handle_errors(app, service)
    if service.guard.keyed:
        describe_security(app.openapi(), app.routes)
    return app


def _describe_apart(app: FastAPI) -> None:
    """Have the OpenAPI document made in a thread, at its first request: others would wait for it, a second."""
    paths = [getattr(route, "path", "") for route in app.router.routes]
    route = app.router.routes[index := paths.index(app.openapi_url)]
    original = route.endpoint  # type: ignore[attr-defined]  # FastAPI's own

    @requires(OPEN)
    async def schema(request: Request) -> Response:
        await asyncio.to_thread(app.openapi)
        response: Response = await original(request)
        return response

    app.router.routes[index] = Route(route.path, schema, include_in_schema=False)  # type: ignore[attr-defined]


def _add_middleware(app: FastAPI, service: Service) -> None:
    """Add it, from the innermost to the outermost; see `serving.address`."""
    settings, metrics = service.settings, service.metrics
    if encodings := listed(settings.compression):
        app.add_middleware(Compression, encodings=encodings)
    if service.guard.keyed:
        app.add_middleware(Authorisation, routes=app.routes, guard=service.guard, metrics=metrics)
    app.add_middleware(WithHead)
    if origins := listed(settings.allowed_origins):
        every = [ANY]
        app.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=every, allow_headers=every, expose_headers=every
        )
    if (names := settings.known_hosts) is not None:
        app.add_middleware(Named, names=names, rejected=metrics.rejected)
    app.add_middleware(Access, metrics=metrics, admission=service.admission, knows=service.catalogue.knows)
    app.add_middleware(Proxied, trusted=listed(settings.trusted_proxies), prefix=settings.path_prefix)


def _handle_errors(app: FastAPI, service: Service) -> None:
    @app.exception_handler(Problem)
    @app.exception_handler(HTTPException)
    @app.exception_handler(RequestValidationError)
    async def respond(request: Request, error: Problem | HTTPException | RequestValidationError) -> Response:
        if isinstance(error, HTTPException):
            error = errors.from_router(request, error)
        elif isinstance(error, RequestValidationError):
            error = errors.from_validation(error)
        return errors.refusal(error, request.state.path, service.metrics.rejected)

    @app.exception_handler(ClientDisconnect)
    async def disconnect(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=errors.CLIENT_CLOSED)  # only logged: the client has left


class Gateway(uvicorn.Server):
    """The gateway's application on its port; it shuts down in order, and leaves Triton's end to its caller.

    The key is that of the local Triton's restricted APIs. A KeysError: the key file cannot be used.
    """

    def __init__(self, settings: Settings, key: str = "") -> None:
        addresses = {"address": settings.triton_address, "grpc_address": settings.triton_grpc_address}
        triton = Triton(**addresses, message_bytes=settings.max_body_bytes, key=key, own=settings.embedded)
        app = create_app(settings, triton)
        super().__init__(configuration(app, settings))
        self.settings = settings
        self.state = app.state
        self.service = app.state.service
        self.loop = asyncio.get_running_loop()
        self.finishing: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Have SIGHUP shut down, too: it comes when a terminal closes. `nohup` has it ignored, and it stays so."""
        with super().capture_signals():
            main = threading.current_thread() is threading.main_thread()
            if main and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
                signal.signal(signal.SIGHUP, self.handle_exit)
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signal handlers are called
        """Shut down on a signal; uvicorn's own handler would raise the signal again before Triton has drained."""
        if self.finishing is not None:
            if sig == signal.SIGINT:
                self.loop.call_soon_threadsafe(self.break_off)
            return
        notice, drain = self.settings.notice_seconds, self.settings.drain_seconds
        left = f"connections are accepted for {notice:g} s more, and requests may take {drain:g} s"
        self.loop.call_soon_threadsafe(logger.info, "%s: not ready; %s", signal.Signals(sig).name, left)
        self.loop.call_soon_threadsafe(self.shut_down)

    def shut_down(self) -> None:
        """Make readiness false, and stop listening `notice_seconds` later or, where inversions run, after them."""
        self.service.drain()
        self.finishing = self.finishing or self.loop.create_task(self._finish())

    def break_off(self) -> None:
        """End what still runs at once: a person has pressed Ctrl-C again."""
        logger.warning("SIGINT again: requests and inversions are broken off")
        self.state.inversions.end_all()
        self.should_exit = True
        for task in self.server_state.tasks:
            task.cancel()

    async def _finish(self) -> None:
        """Stop listening for HTTP only once inversions have ended: their clients ask again for each result."""
        settings, end = self.settings, self.loop.time() + self.settings.notice_seconds + self.settings.drain_seconds
        await asyncio.sleep(settings.notice_seconds)
        async with asyncio.TaskGroup() as sides:
            if self.state.grpc is not None:
                sides.create_task(self.state.grpc.stop())
            await self.state.inversions.ended()
            self.config.timeout_graceful_shutdown = max(1, round(end - self.loop.time()))
            self.should_exit = True

    async def run_until_shut_down(self) -> None:
        announcing = asyncio.create_task(self._announce())
        try:
            await self.serve()
        finally:
            announcing.cancel()

    async def _announce(self) -> None:
        url = self.settings.url
        grpc = f" and speaks gRPC on port {self.settings.grpc_port}" if self.settings.grpc_port else ""
        while not self.started:  # noqa: ASYNC110 - uvicorn has a flag, no event
            await asyncio.sleep(0.05)
        logger.info("Petrov listens on %s%s, and loads its models …", url, grpc)
        while not self.service.catalogue.readiness().ready:  # noqa: ASYNC110 - a log line may be late
            await asyncio.sleep(0.1)
        names = ", ".join(model.name for model in self.service.catalogue.models())
        logger.info("Ready: %s. Open %s in a browser, or %s/docs for the routes", names, url, url)


async def serve(settings: Settings) -> None:
    """Serve until a signal: with a local Triton or, where the settings name one, through a Triton that runs elsewhere.

    The local Triton and the gateway start at once, so that liveness responds meanwhile. A StartupError: the machine or
    the repository lacks something; a TritonServerError: Triton cannot start, or keeps crashing.
    """
    if not settings.embedded:
        await Gateway(settings, settings.triton_key).run_until_shut_down()
        return
    key = settings.triton_key or secrets.token_hex(16)
    server, triton = Gateway(settings, key), TritonServer(settings, key)
    server.service.catalogue.restart, server.service.catalogue.budget.measured = triton.restart, triton.memory

    async def run_triton() -> None:
        await triton.start()
        if triton.device is not None:
            server.service.computes_on(triton.device)
        await triton.watch()

    running = asyncio.create_task(run_triton())
    running.add_done_callback(lambda _: server.shut_down())
    try:
        await server.run_until_shut_down()
    finally:
        await triton.stop()
        await running
