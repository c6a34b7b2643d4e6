"""The gateway's parts, made once per application from settings and a Triton, and used by the routes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Annotated, cast

from fastapi import Depends, Request
from prometheus_client import Counter

from serving.auth import Guard, KeyFile
from serving.catalogue.catalogue import Catalogue
from serving.catalogue.documents import Readiness
from serving.classical import ClassicalSolvers
from serving.device import Device
from serving.limits import Admission
from serving.observe import Metrics
from serving.predict import Predictor
from serving.settings import Settings, listed
from serving.telemetry import Traces
from serving.timing import TritonTimes
from serving.triton import Triton

logger = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0


class Watcher:
    """Run one step again and again; after an unexpected exception, log it, wait and go on.

    A step is one look, which returns the seconds until the next. `failure` is the type of the exception that ended the
    last one.
    """

    def __init__(self, name: str, step: Callable[[], Awaitable[float]], restarts: Counter) -> None:
        self.name = name
        self.failure: str | None = None
        self._step, self._restarts = step, restarts.labels(name)

    async def run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                seconds = await self._step()
                self.failure, pause = None, FIRST_PAUSE
            except Exception as error:
                self.failure = type(error).__name__  # its message is in the log: readiness is public
                logger.exception("the watcher of the %s failed and is restarted in %g s", self.name, pause)
                self._restarts.inc()
                seconds, pause = pause, min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(seconds)


class Service:
    """The parts of the gateway that the routes use; a KeysError where its key file cannot be used.

    `run` opens and closes Triton; what is in `on_drain` is called when the service is about to shut down.
    """

    def __init__(self, settings: Settings, triton: Triton, version: str) -> None:
        self.settings = settings
        self.version = version
        self.traces = Traces(settings.traces, version, settings.path_prefix) if settings.traces else None
        self.metrics = Metrics(version, self.traces)
        self.keys = None if settings.keys is None else KeyFile(settings.keys)
        self.guard = Guard(self.keys, self.metrics)
        self._triton = triton
        triton.http.on_retry = self.metrics.retries.labels(triton.address).inc
        self.catalogue = Catalogue(settings, triton, self.metrics.catalogue)
        self.metrics.endpoint_up.labels(triton.address).set_function(lambda: self.catalogue.responds)
        self.admission = Admission(settings.max_requests_in_flight, settings.max_bytes_in_flight)
        watched = {"repository": self.catalogue.look, "memory": self.admission.look}
        watched |= {"keys": self.keys.look} if self.keys else {}
        self._watchers = [Watcher(name, look, self.metrics.watcher_restarts) for name, look in watched.items()]
        self.metrics.ready.set_function(lambda: self.catalogue.readiness().ready)
        self.metrics.keys_current.set_function(lambda: self.keys is None or self.keys.is_current)
        self.metrics.inflight_limit.set(settings.max_requests_in_flight)
        self.metrics.inflight_predictions.set_function(lambda: self.admission.requests)
        self.metrics.inflight_bytes.set_function(lambda: self.admission.bytes)
        self.metrics.inflight_bytes_limit.set(settings.max_bytes_in_flight)
        self.classical, self._times = ClassicalSolvers(), TritonTimes(settings)
        self.predictor = Predictor(triton, self.catalogue, self.classical, self._times, self.metrics, settings)
        self.trusted = listed(settings.trusted_proxies)
        self.on_drain: list[Callable[[], None]] = []
        self.device: Device | None = None

    def computes_on(self, device: Device) -> None:
        """Note what the local Triton computes on, if there is one."""
        self.device = device
        self.metrics.device(device)
        self.catalogue.computes_on(device)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Open Triton's connections, and watch the repository and the keys while the context is open."""
        async with self._triton:
            self._times.open()
            watching = [asyncio.create_task(watcher.run()) for watcher in self._watchers]
            try:
                yield
            finally:
                for task in watching:
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
                await self.catalogue.close()
                self.classical.close()
                self._times.close()
                if self.traces:
                    await self.traces.close()

    def readiness(self) -> Readiness:
        """Return whether every model is served; a failing watcher is a reason, whether they are or not."""
        readiness = self.catalogue.readiness()
        faults = [f"the watcher of the {each.name} fails ({each.failure})" for each in self._watchers if each.failure]
        reason = "; ".join(filter(None, [readiness.reason, *faults]))
        return readiness.model_copy(update={"reason": reason}) if faults else readiness

    def drain(self) -> None:
        """Make readiness false from now on; requests are still served. A second signal postpones nothing."""
        if self.catalogue.draining:
            return
        self.catalogue.draining = True
        seconds = self.settings.notice_seconds + self.settings.drain_seconds / 2  # the rest is for their last frames
        self.predictor.until = asyncio.get_running_loop().time() + seconds
        for notify in self.on_drain:
            notify()


async def of(request: Request) -> Service:
    """Return the service of the request's application; FastAPI would call a plain function in a thread."""
    return cast("Service", request.app.state.service)


Serving = Annotated[Service, Depends(of)]
