"""Several Tritons in, one `Inference` out: requests go round, and past a server that does not answer."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

from serving.problem_details import ModelNotReady, TritonUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray

    from serving.inference import Inference


class TritonPool:
    """Tritons that serve one model repository, as one.

    Args:
        members: At least one; opened and closed with the pool.
    """

    def __init__(self, members: Sequence[Inference]) -> None:
        self._members = tuple(members)
        self._starts = itertools.cycle(range(len(self._members)))
        self._exits = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for member in self._members:
            await self._exits.enter_async_context(member)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._exits.aclose()

    async def loaded(self) -> frozenset[tuple[str, int]]:
        """What any member that answers has loaded."""
        answers = await asyncio.gather(*(member.loaded() for member in self._members), return_exceptions=True)
        loaded = [answer for answer in answers if isinstance(answer, frozenset)]
        for failure in answers:
            if isinstance(failure, BaseException) and (not loaded or not isinstance(failure, TritonUnavailable)):
                raise failure
        return frozenset().union(*loaded)

    async def infer(
        self,
        model: str,
        version: int,
        inputs: Mapping[str, NDArray[np.float32]],
        *,
        seconds: float,
        request_id: str = "",
    ) -> dict[str, NDArray[np.float32]]:
        """Asks the next member, or those after it while none can answer: models have no memory, so twice is safe."""
        start, end = next(self._starts), asyncio.get_running_loop().time() + seconds
        *others, last = self._members[start:] + self._members[:start]
        for member in others:
            left = end - asyncio.get_running_loop().time()
            try:
                return await member.infer(model, version, inputs, seconds=left, request_id=request_id)
            except (TritonUnavailable, ModelNotReady):
                continue
        left = end - asyncio.get_running_loop().time()
        return await last.infer(model, version, inputs, seconds=left, request_id=request_id)
