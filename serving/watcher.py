"""A periodic task of the service that outlives its own failures and reports them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from prometheus_client import Counter

logger = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0


class Watcher:
    """Run one step again and again; after an unexpected exception, log it, wait and go on.

    Args:
        name: What is watched, for the log, the metric and readiness.
        step: One look, which returns the seconds until the next.
        restarts: The counter of restarts, by watcher.

    Attributes:
        failure: Type of the exception that ended the last step, None after a step that succeeded.
    """

    def __init__(self, name: str, step: Callable[[], Awaitable[float]], restarts: Counter) -> None:
        self.name = name
        self.failure: str | None = None
        self._step = step
        self._pause = FIRST_PAUSE
        self._restarts = restarts.labels(name)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            seconds = await self._look()
            await asyncio.sleep(seconds)

    async def _look(self) -> float:
        """Do one step; return the seconds until the next."""
        try:
            seconds = await self._step()
        except Exception as error:
            self.failure = type(error).__name__  # its message is in the log: readiness is public
            pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
            logger.exception("the watcher of the %s failed and is restarted in %g s", self.name, pause)
            self._restarts.inc()
            return pause
        self.failure, self._pause = None, FIRST_PAUSE
        return seconds
