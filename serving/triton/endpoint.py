"""One Triton in; what is known of it out: whether it answers, what it has loaded and warm, how much it is doing.

    answers ──(a probe or a call finds nobody)──> ejected ──(a probe is answered, the pause is over)──> on probation
       ^                                             ^                                                    │      │
       │                                             └──────────────(another failure: a longer pause)─────┘      │
       └───────────────────────────────────(a call is answered)──────────────────────────────────────────────────┘

A server that refuses connections is found by the next call, one that hangs (SIGSTOP, a dead network) by the next probe.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from serving.problem_details import ModelNotReady, TritonUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from serving.inference.backend import Batch, Inference

    Release = tuple[str, int]

logger = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0


class Endpoint:
    """A Triton among several.

    Args:
        triton: The server.

    Attributes:
        triton: The server.
        loaded: Every (model, version) that it had at the last probe; empty when it did not answer.
        warm: Those of them that have been asked once.
        load: Bytes of questions that it is busy with.
        calls: How many it was given so far.
        answers: Whether it did when last asked.
    """

    def __init__(self, triton: Inference) -> None:
        self.triton = triton
        self.loaded: frozenset[Release] = frozenset()
        self.warm: set[Release] = set()
        self.load = 0
        self.calls = 0
        self.answers = False
        self._ejections = 0
        self._back = 0.0
        self._waiting: dict[asyncio.Timeout, Release] = {}

    @property
    def up(self) -> bool:
        """Whether it is given work without need."""
        return self.answers and time.monotonic() >= self._back

    async def probe(self) -> None:
        """Ask what it has loaded; afterwards `answers` says whether it did answer."""
        try:
            self.loaded = await self.triton.loaded()
        except TritonUnavailable:
            self.eject()
        else:
            self.answers = True
            self.warm &= self.loaded

    async def infer(
        self, model: str, version: int, inputs: Batch, *, seconds: float, request_id: str
    ) -> dict[str, NDArray[Any]]:
        """One call of a model, as `Inference.infer`; a failure ejects the server, a success ends its probation."""
        size = sum(array.nbytes for array in inputs.values())
        self.load, self.calls = self.load + size, self.calls + 1
        try:
            async with asyncio.timeout(None) as patience:
                self._waiting[patience] = model, version
                outputs = await self.triton.infer(model, version, inputs, seconds=seconds, request_id=request_id)
        except TimeoutError as error:
            raise TritonUnavailable(f"Triton at {self.triton.address} answers no more") from error
        except TritonUnavailable:
            self.eject()
            raise
        except ModelNotReady:
            self.loaded -= {(model, version)}
            self.warm -= {(model, version)}
            raise
        finally:
            self._waiting.pop(patience, None)
            self.load -= size
        self._ejections = 0
        return outputs

    def eject(self) -> None:
        """Nobody is there: what returns is a new process, and cold; it is on probation until a call is answered."""
        if self.answers:
            logger.warning("Triton at %s does not answer", self.triton.address)
            pause = FIRST_PAUSE * 2 ** (self._ejections - 1) if self._ejections else 0.0
            self._back = time.monotonic() + min(pause, LONGEST_PAUSE)
            self._ejections += 1
        self.answers, self.loaded = False, frozenset()
        self.warm.clear()

    def give_up(self, elsewhere: Callable[[str, int], bool]) -> None:
        """End the calls that it still owes and that can be answered elsewhere, as if the connection had broken."""
        for patience, release in list(self._waiting.items()):
            if elsewhere(*release):
                del self._waiting[patience]
                patience.reschedule(asyncio.get_running_loop().time())
