"""Start and shut-down: the gateway on its port, alone or with a local Triton.

After SIGTERM readiness becomes false, the gateway stops listening `notice_seconds` later, finishes its requests, and
then Triton drains. A Triton that cannot run ends the gateway.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

import uvicorn

from serving.app import create_app
from serving.connection import configuration
from serving.local_triton.server import TritonServer
from serving.triton import Triton

if TYPE_CHECKING:
    from types import FrameType

    from serving.settings import Settings

logger = logging.getLogger(__name__)


class Gateway(uvicorn.Server):
    """The gateway's application on its port; it shuts down in order, and leaves Triton's end to its caller.

    The key is that of the local Triton's restricted APIs. A KeysError: the key file cannot be used.
    """

    def __init__(self, settings: Settings, key: str = "") -> None:
        app = create_app(settings, Triton(settings.triton_address, settings.max_body_bytes, key))
        super().__init__(configuration(app, settings))
        self.settings = settings
        self.state = app.state
        self.service = app.state.service
        self.loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signal handlers are called
        """Shut down on a signal; uvicorn's own handler would raise the signal again before Triton has drained."""
        self.loop.call_soon_threadsafe(self.shut_down)

    def shut_down(self) -> None:
        """Make readiness false, and stop listening `notice_seconds` later."""
        self.service.drain()
        self.loop.call_later(self.settings.notice_seconds, self._stop_listening)

    def _stop_listening(self) -> None:
        self.should_exit = True
        if self.state.grpc is not None:  # both sides finish side by side
            self.finishing = asyncio.create_task(self.state.grpc.stop())

    async def run_until_shut_down(self) -> None:
        """Serve until it is shut down."""
        announcing = asyncio.create_task(self._announce())
        try:
            await self.serve()
        finally:
            announcing.cancel()

    async def _announce(self) -> None:
        """Log the service's address and, once they are ready, its models."""
        url = f"http://{self.settings.host}:{self.settings.port}"
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
        await Gateway(settings).run_until_shut_down()
        return
    key = secrets.token_hex(16)
    server, triton = Gateway(settings, key), TritonServer(settings, key)

    async def run_triton() -> None:
        await triton.start()
        await triton.watch()

    running = asyncio.create_task(run_triton())
    running.add_done_callback(lambda _: server.shut_down())
    try:
        await server.run_until_shut_down()
    finally:
        await triton.stop()
        await running
