"""Several Tritons as one: each call goes to the least busy server that has the model, and past one that is down.

Models have no state, so a call that was lost with its server may be repeated on another, as long as its deadline and
the budget of retries allow. A version counts as loaded where any server has it, and runs only on those servers, so that
servers can be updated one by one.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Self

from serving.errors import Problem
from serving.triton.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from types import TracebackType

    from serving.inference.backend import Batch, InferenceBackend, Outputs
    from serving.observability.metrics import Metrics
    from serving.triton.endpoint import ModelVersion
    from serving.triton.retry_budget import RetryBudget

    Samples = Callable[[], Iterable[Batch]]

RUNS = 3  # of one model in flight per server: one per instance, of which there are two, and the next one


class TritonPool:
    """Tritons that serve one model repository, as one.

    Args:
        tritons: At least one; opened and closed with the pool.
        retries: How often calls may be repeated.
        metrics: Records servers and retries.
    """

    def __init__(self, tritons: Sequence[InferenceBackend], retries: RetryBudget, metrics: Metrics) -> None:
        self._endpoints = [Endpoint(triton) for triton in tritons]
        self._retries = retries
        self._metrics = metrics
        self._exits = AsyncExitStack()
        for endpoint in self._endpoints:
            metrics.endpoint_up.labels(endpoint.triton.address).set_function(partial(getattr, endpoint, "up"))

    async def __aenter__(self) -> Self:
        for endpoint in self._endpoints:
            await self._exits.enter_async_context(endpoint.triton)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._exits.aclose()

    @property
    def responds(self) -> bool:
        """Whether any server responded to its last request."""
        return any(endpoint.responds for endpoint in self._endpoints)

    def capacity(self, model: str, version: int) -> int:
        """Return how many concurrent runs of a model keep all of its servers busy."""
        return RUNS * max(1, sum(endpoint.up for endpoint in self._with(model, version)))

    async def loaded(self) -> frozenset[tuple[str, int]]:
        """Return what any server has loaded; calls that hang in one that does not respond are repeated on others.

        Raises:
            Problem: triton-unavailable: No server responds.
        """
        await asyncio.gather(*(endpoint.probe() for endpoint in self._endpoints))
        for endpoint in self._endpoints:
            if not endpoint.responds:
                endpoint.abandon(lambda model, version: any(other.up for other in self._with(model, version)))
        if not self.responds:
            raise Problem("triton-unavailable", "no inference server responds")
        return frozenset().union(*(endpoint.loaded for endpoint in self._endpoints))

    async def warm(self, model: str, version: int, inputs: Samples, seconds: float) -> None:
        """Run every input once on each server where the version is new.

        Args:
            model: Name of the model.
            version: Its version.
            inputs: Makes the inputs.
            seconds: How long one call may take.

        Raises:
            Problem: The version is warm on no server; the first server's fault.
        """
        key = model, version
        cold = [endpoint for endpoint in self._endpoints if key in endpoint.loaded - endpoint.warm]
        faults = await asyncio.gather(
            *(_warm(endpoint, key, inputs, seconds) for endpoint in cold), return_exceptions=True
        )
        for fault in filter(None, faults):
            if not isinstance(fault, Problem) or not self._with(*key):
                raise fault

    async def infer(self, model: str, version: int, inputs: Batch, *, seconds: float, request_id: str = "") -> Outputs:
        """Run a model once, as `InferenceBackend.infer`.

        Raises:
            Problem: One of its kinds; `triton-unavailable` after every server, or when the retries are spent.
        """
        clock, tried = asyncio.get_running_loop(), set[Endpoint]()
        end = clock.time() + seconds
        self._retries.earn()
        while True:
            endpoint = self._choose(model, version, tried)
            try:
                left = end - clock.time()
                return await endpoint.infer(model, version, inputs, seconds=left, request_id=request_id)
            except Problem as problem:
                if problem.kind not in {"triton-unavailable", "model-not-ready"}:
                    raise
                tried.add(endpoint)
                if not set(self._with(model, version)) - tried or not self._retries.spend():
                    raise
                self._metrics.retries.labels(endpoint.triton.address).inc()

    def _with(self, model: str, version: int) -> list[Endpoint]:
        """Return the servers where a version is loaded and warm."""
        return [endpoint for endpoint in self._endpoints if (model, version) in endpoint.warm]

    def _choose(self, model: str, version: int, tried: Collection[Endpoint]) -> Endpoint:
        """Return the least busy of the servers that are up or, if none is, of all that have the version."""
        candidates = [endpoint for endpoint in self._with(model, version) if endpoint not in tried]
        if not self.responds:
            raise Problem("triton-unavailable", "no inference server responds; try again in a moment")
        if not candidates:
            raise Problem("model-not-ready", f'"{model}" version {version} is not loaded')
        up = [endpoint for endpoint in candidates if endpoint.up]
        return min(up or candidates, key=lambda endpoint: (endpoint.load, endpoint.calls))


async def _warm(endpoint: Endpoint, key: ModelVersion, inputs: Samples, seconds: float) -> None:
    for batch in inputs():
        await endpoint.infer(*key, batch, seconds=seconds, request_id="warm")
    endpoint.warm.add(key)
