"""One inversion in the background: its state, its progress, and its result."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from concurrent.futures import CancelledError, Future
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from serving.inversion.estimate import Progress

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from serving.errors import Problem
    from serving.inversion.estimate import Estimate, Summary

Result = TypeVar("Result")


class State(StrEnum):
    """The states of a job, in their order; the last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Stopped(Exception):  # noqa: N818  no error: the job is stopped on request
    """The job has been stopped."""


class Job:
    """An inversion, and the bridge from its worker thread to the event loop.

    Args:
        model: The model that is inverted.
        version: Its version.
        unknown: The input that is inferred.
        owner: Name of the key that may see the job.
        most_iterations: Limit of the steps.

    Attributes:
        id: Random, so that it cannot be guessed.
        progress: Of the last step.
        result: The estimate and its summary, once the job has succeeded.
        problem: Why it failed.
        ended: On the clock of `time.monotonic`; None before.
    """

    def __init__(self, model: str, version: int, unknown: str, owner: str, most_iterations: int) -> None:
        self.id = secrets.token_urlsafe(16)
        self.model, self.version, self.unknown, self.owner = model, version, unknown, owner
        self.most_iterations = most_iterations
        self.state = State.QUEUED
        self.progress = Progress()
        self.result: tuple[Estimate, Summary] | None = None
        self.problem: Problem | None = None
        self.ended: float | None = None
        self._started: float | None = None
        self._done = asyncio.Event()
        self._stop = threading.Event()
        self._pending: Future[object] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def final(self) -> bool:
        """Whether the state does not change any more."""
        return self.ended is not None

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return 0.0 if self._started is None else (self.ended or time.monotonic()) - self._started

    def start(self) -> None:
        """Note that the job runs."""
        self.state, self._started = State.RUNNING, time.monotonic()

    def end(self, state: State, problem: Problem | None = None) -> None:
        """Note the final state; only the first counts."""
        if not self.final:
            self.state, self.problem, self.ended = state, problem, time.monotonic()
            self.stop()
            self._done.set()

    def stop(self) -> None:
        """Stop the worker thread at its next step."""
        self._stop.set()
        if self._pending is not None:
            self._pending.cancel()

    async def wait(self, seconds: float) -> None:
        """Return once the state is final, or after so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._done.wait()
        except TimeoutError:
            return

    def report(self, progress: Progress) -> None:
        """Note the progress; called in the worker thread.

        Raises:
            Stopped: The job has been stopped.
        """
        self.progress = progress
        self.check()

    def check(self) -> None:
        """Check that the job goes on.

        Raises:
            Stopped: It has been stopped.
        """
        if self._stop.is_set():
            raise Stopped

    def call(self, work: Coroutine[None, None, Result]) -> Result:
        """Run a coroutine in the event loop and return its result; called in the worker thread.

        Raises:
            Stopped: The job has been stopped.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._pending = future  # type: ignore[assignment]  # of any result
        try:
            if self._stop.is_set():
                future.cancel()
            return future.result()
        except CancelledError:
            raise Stopped from None
        finally:
            self._pending = None
