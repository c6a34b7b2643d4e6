"""Several Tritons in, one out: each call goes to the least busy that has the model, and past one that does not answer.

A model has no memory, so a call that was lost with its server may be made again on another: as long as its deadline
and the budget of retries allow. A version counts as loaded where any server has it, and is asked of those alone, so
that servers may be updated one by one.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from serving.problem_details import ModelNotReady, Problem, TritonUnavailable
from serving.triton.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from types import TracebackType

    from numpy.typing import NDArray

    from serving.inference.backend import Batch, Inference
    from serving.observability.metrics import Metrics
    from serving.triton.retry_budget import RetryBudget

    Questions = Callable[[], Iterable[Batch]]

RUNS = 3  # of one model in flight to one server: an instance works on each of two, and the next is there when one ends


class TritonPool:
    """Tritons that serve one model repository, as one.

    Args:
        tritons: At least one; opened and closed with the pool.
        retries: How often a call may be made again.
        metrics: Where servers and retries are recorded.
    """

    def __init__(self, tritons: Sequence[Inference], retries: RetryBudget, metrics: Metrics) -> None:
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
    def answers(self) -> bool:
        """Whether any server did when last asked."""
        return any(endpoint.answers for endpoint in self._endpoints)

    def room(self, model: str, version: int) -> int:
        """How many calls of a model keep all of its servers busy."""
        return RUNS * max(1, sum(endpoint.up for endpoint in self._having(model, version)))

    async def loaded(self) -> frozenset[tuple[str, int]]:
        """What any server that answers has loaded; calls that hang in one that does not are made again on others.

        Raises:
            TritonUnavailable: Nobody answers.
        """
        await asyncio.gather(*(endpoint.probe() for endpoint in self._endpoints))
        for endpoint in self._endpoints:
            if not endpoint.answers:
                endpoint.give_up(lambda model, version: any(other.up for other in self._having(model, version)))
        if not self.answers:
            raise TritonUnavailable("no inference server answers")
        return frozenset().union(*(endpoint.loaded for endpoint in self._endpoints))

    async def warm(self, model: str, version: int, questions: Questions, seconds: float) -> None:
        """Ask every question once of each server where the version is new.

        Raises:
            Problem: It is warm nowhere; the first server's fault.
        """
        release = model, version
        cold = [endpoint for endpoint in self._endpoints if release in endpoint.loaded - endpoint.warm]
        faults = await asyncio.gather(
            *(_warm(endpoint, release, questions, seconds) for endpoint in cold), return_exceptions=True
        )
        for fault in filter(None, faults):
            if not isinstance(fault, Problem) or not self._having(*release):
                raise fault

    async def infer(
        self, model: str, version: int, inputs: Batch, *, seconds: float, request_id: str = ""
    ) -> dict[str, NDArray[Any]]:
        """One call of a model, as `Inference.infer`.

        Raises:
            Failed: One of its kinds; `TritonUnavailable` after every server, or when there have been too many retries.
        """
        clock, tried = asyncio.get_running_loop(), set[Endpoint]()
        end = clock.time() + seconds
        self._retries.earn()
        while True:
            endpoint = self._choose(model, version, tried)
            try:
                left = end - clock.time()
                return await endpoint.infer(model, version, inputs, seconds=left, request_id=request_id)
            except (TritonUnavailable, ModelNotReady):
                tried.add(endpoint)
                if not set(self._having(model, version)) - tried or not self._retries.spend():
                    raise
                self._metrics.retries.labels(endpoint.triton.address).inc()

    def _having(self, model: str, version: int) -> list[Endpoint]:
        """The servers where a version is loaded and warm."""
        return [endpoint for endpoint in self._endpoints if (model, version) in endpoint.warm]

    def _choose(self, model: str, version: int, tried: Collection[Endpoint]) -> Endpoint:
        """The least busy of those that are up or, if none is, of all that have the version."""
        having = [endpoint for endpoint in self._having(model, version) if endpoint not in tried]
        if not self.answers:
            raise TritonUnavailable("no inference server answers; try again in a moment")
        if not having:
            raise ModelNotReady(f'"{model}" version {version} is not loaded')
        up = [endpoint for endpoint in having if endpoint.up]
        return min(up or having, key=lambda endpoint: (endpoint.load, endpoint.calls))


async def _warm(endpoint: Endpoint, release: tuple[str, int], questions: Questions, seconds: float) -> None:
    for question in questions():
        await endpoint.infer(*release, question, seconds=seconds, request_id="warm")
    endpoint.warm.add(release)
