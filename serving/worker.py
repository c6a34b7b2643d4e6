"""One of several gateway processes: the gateway on a socket that its parent has made, and on one of its own."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import sys
from typing import TYPE_CHECKING

from serving.gateway import Gateway
from serving.workers.acceptor import Acceptor
from serving.workers.table import State, milliseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from serving.settings import Settings
    from serving.workers.worker import Worker

logger = logging.getLogger(__name__)
PATIENCE_SECONDS = 15.0  # until a worker accepts connections although it is not ready, as others are not
SPREAD = 1  # so many connections more than another worker are no reason to leave the next one to it
REFRESH_TICKS = 10  # of 0.1 s, between two updates of the shared gauges


class WorkerGateway(Gateway):
    """The gateway's application in one of several processes.

    It accepts connections once it is ready, so that clients do not notice when it replaces another worker. As the first
    one, it accepts at once, so that the service responds while Triton loads.

    Args:
        settings: The operator's choices.
        worker: What it shares with the others.

    Raises:
        KeysError: The key file cannot be used.
    """

    def __init__(self, settings: Settings, worker: Worker) -> None:
        super().__init__(settings, worker)
        self.worker = worker
        self._ticks = 0
        self._joining: asyncio.Task[None] | None = None

    async def run_until_shut_down(self) -> None:
        """Serve until SIGTERM, or until the parent has ended."""
        self.loop.add_reader(sys.stdin.fileno(), self._orphaned)
        await super().run_until_shut_down()

    def _orphaned(self) -> None:
        """Shut down without a parent, whose folder no other process removes."""
        self.loop.remove_reader(sys.stdin.fileno())
        shutil.rmtree(self.worker.order.folder, ignore_errors=True)
        self.shut_down()

    async def startup(self, sockets: Sequence[socket.socket] | None = None) -> None:  # noqa: ARG002 - uvicorn's
        """Open the application and the private socket; the shared ones follow when the worker is ready."""
        await super().startup([])
        self.servers.append(await self.loop.create_unix_server(self._connect, str(self.worker.private_socket)))
        self._joining = self.loop.create_task(self._join())
        self._joining.add_done_callback(self._joined)

    def _connect(self) -> asyncio.Protocol:
        """Return the protocol of a connection, as uvicorn makes it."""
        config = self.config
        protocol: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
            config=config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    async def _join(self) -> None:
        """Accept connections as soon as the worker is ready or no other one accepts any."""
        end = self.loop.time() + PATIENCE_SECONDS
        while self.worker.table.accepting() and not self._ready() and self.loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        for descriptor in self.worker.order.listeners:
            listener = socket.socket(fileno=descriptor)
            self.servers.append(Acceptor(listener, self._connect, self._ahead))  # type: ignore[arg-type]
        self.worker.set("state", State.ACCEPTING)
        self._publish()
        if self.state.grpc is not None:
            await self.state.grpc.listen()

    def _joined(self, joining: asyncio.Task[None]) -> None:
        """End a worker that cannot listen; the parent tries again."""
        if not joining.cancelled() and (error := joining.exception()):
            logger.critical("worker %d cannot listen: %s", self.worker.slot, error)
            self.shut_down()

    def _ready(self) -> bool:
        ready: bool = self.service.catalogue.readiness().ready
        return ready

    def _ahead(self, opening: int) -> bool:
        """Return whether this worker has more connections than another, and say how many it has."""
        table, own = self.worker.table, len(self.server_state.connections) + opening
        self.worker.set("connections", own)
        return own > table.least_connections() + SPREAD

    def _publish(self) -> None:
        """Write into the table what the other workers need to know."""
        self.worker.set("alive", milliseconds())
        self.worker.set("connections", len(self.server_state.connections))
        if self.worker.slot in self.worker.table.accepting():
            self.worker.set("state", State.READY if self._ready() else State.ACCEPTING)
            self.service.metrics.refresh()

    async def on_tick(self, counter: int) -> bool:
        """Give a sign of life, beside what uvicorn does ten times a second."""
        self.worker.set("alive", milliseconds())
        if counter % REFRESH_TICKS == 0:
            self._publish()
        return await super().on_tick(counter)

    def _stop_listening(self) -> None:
        if self._joining is not None:
            self._joining.cancel()
        self.worker.set("state", State.STARTING)
        super()._stop_listening()

    async def _announce(self) -> None:
        """Say once for all workers that the service listens."""
        if self.worker.order.slot == 0 and self.worker.order.start == 1:
            await super()._announce()
