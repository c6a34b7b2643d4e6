"""One Triton among several: whether it responds, what it has loaded and warm, and how busy it is.

    up ──(a probe or a call fails)──> ejected ──(a probe succeeds and the pause is over)──> on probation
     ^                                   ^                                                     │     │
     │                                   └─────────(another failure: a longer pause)───────────┘     │
     └──────────────────────────────────(a call succeeds)────────────────────────────────────────────┘

A server that refuses connections is found by the next call, one that hangs (SIGSTOP, a dead network) by the next probe.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from serving.inference.backend import Batch, InferenceBackend, Outputs

    ModelVersion = tuple[str, int]

logger = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0


class Endpoint:
    """A Triton among several.

    Args:
        triton: The server.

    Attributes:
        triton: The server.
        loaded: Every (model, version) that it had at the last probe; empty when it did not respond.
        warm: The loaded versions that have run once.
        load: Bytes of the inputs that it works on.
        calls: How many calls it has received.
        responds: Whether it responded to the last request.
    """

    def __init__(self, triton: InferenceBackend) -> None:
        self.triton = triton
        self.loaded: frozenset[ModelVersion] = frozenset()
        self.warm: set[ModelVersion] = set()
        self.load = 0
        self.calls = 0
        self.responds = False
        self._ejections = 0
        self._eligible_at = 0.0
        self._pending: dict[asyncio.Timeout, ModelVersion] = {}

    @property
    def up(self) -> bool:
        """Whether it receives calls while others could take them."""
        return self.responds and time.monotonic() >= self._eligible_at

    async def probe(self) -> None:
        """Request what it has loaded; `responds` says whether that succeeded."""
        try:
            self.loaded = await self.triton.loaded()
        except Problem as problem:
            if problem.kind != "triton-unavailable":
                raise
            self.eject()
        else:
            self.responds = True
            self.warm &= self.loaded

    async def infer(self, model: str, version: int, inputs: Batch, *, seconds: float, request_id: str) -> Outputs:
        """Run a model once, as `InferenceBackend.infer`; a failure ejects the server, a success ends its probation."""
        size = sum(array.nbytes for array in inputs.values())
        self.load, self.calls = self.load + size, self.calls + 1
        try:
            async with asyncio.timeout(None) as timeout:
                self._pending[timeout] = model, version
                outputs = await self.triton.infer(model, version, inputs, seconds=seconds, request_id=request_id)
        except TimeoutError as error:
            raise Problem("triton-unavailable", f"Triton at {self.triton.address} does not respond any more") from error
        except Problem as problem:
            if problem.kind == "triton-unavailable":
                self.eject()
            elif problem.kind == "model-not-ready":
                self.loaded -= {(model, version)}
                self.warm -= {(model, version)}
            raise
        finally:
            self._pending.pop(timeout, None)
            self.load -= size
        self._ejections = 0
        return outputs

    def eject(self) -> None:
        """Forget what is loaded: the process that comes back is cold, and on probation until a call succeeds."""
        if self.responds:
            logger.warning("Triton at %s does not respond", self.triton.address)
            pause = FIRST_PAUSE * 2 ** (self._ejections - 1) if self._ejections else 0.0
            self._eligible_at = time.monotonic() + min(pause, LONGEST_PAUSE)
            self._ejections += 1
        self.responds, self.loaded = False, frozenset()
        self.warm.clear()

    def abandon(self, elsewhere: Callable[[str, int], bool]) -> None:
        """End the pending calls that another server can take, as if the connection had broken."""
        for timeout, model_version in list(self._pending.items()):
            if elsewhere(*model_version):
                del self._pending[timeout]
                timeout.reschedule(asyncio.get_running_loop().time())
