"""The inversions of a gateway: a bounded number of jobs, of which a few run at one time.

An accepted job always comes to a final state. At shutdown the jobs that run may finish within the time that requests in
flight have; what is left is failed with a problem that says so, while clients that wait for it are still connected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from serving.errors import Problem
from serving.inversion.job import State, Stopped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from serving.inversion.estimate import Estimate, Summary
    from serving.inversion.job import Job
    from serving.observability.metrics import Metrics
    from serving.settings import Settings

    Work = Callable[[], tuple[Estimate, Summary]]

logger = logging.getLogger(__name__)
RUNNING = 2
"""Jobs at one time: they share the model's instances with predictions."""

RETRY_SECONDS = 10
LAST_SECONDS = 1.0
"""Between the end of the last job at shutdown and that of its client's connection."""


class Inversions:
    """Runs jobs, and keeps their results for a while.

    Args:
        settings: Limits on number and time.
        metrics: Counts jobs.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._metrics = metrics
        self._most = settings.max_inversions
        self._seconds, self._kept_seconds = settings.inversion_seconds, settings.inversion_kept_seconds
        self._drain_seconds = settings.notice_seconds + max(settings.drain_seconds - LAST_SECONDS, 0.0)
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._draining = False
        metrics.inversions.set_function(lambda: len(self._tasks))

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Accept jobs while the context is open; what still runs at its end is stopped."""
        self._slots = asyncio.Semaphore(RUNNING)
        self._threads = ThreadPoolExecutor(RUNNING, "inversion")
        try:
            yield
        finally:
            self.stop()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            await asyncio.to_thread(self._threads.shutdown)

    def drain(self) -> None:
        """Accept no more jobs, and stop those that run shortly before the connections of their clients are closed."""
        self._draining = True
        asyncio.get_running_loop().call_later(self._drain_seconds, self.stop)

    def stop(self) -> None:
        """Fail every job that is not final, because the service ends."""
        for job in self._jobs.values():
            if not job.final:
                logger.warning("inversion %s of %s is stopped: the service shuts down", job.id, job.model)
                job.end(State.FAILED, Problem("unavailable", "the service is shutting down; send the inversion again"))

    def check(self) -> None:
        """Check that a job can be accepted.

        Raises:
            Problem: unavailable: The gateway is shutting down.
            Problem: overloaded: Too many jobs wait or run.
        """
        if self._draining:
            raise Problem("unavailable", "the service is shutting down")
        pending = len(self._tasks)
        if pending >= self._most:
            raise Problem(
                "overloaded", f"{pending} inversions wait or run, which is the limit", retry_after=RETRY_SECONDS
            )

    def submit(self, job: Job, work: Work) -> None:
        """Run a job as soon as a thread is free.

        Args:
            job: The job.
            work: Called in a thread; it raises `Stopped` soon after the job has been stopped.

        Raises:
            Problem: unavailable: See `check`.
        """
        self.check()
        self._forget_old()
        self._jobs[job.id] = job
        self._tasks[job.id] = asyncio.create_task(self._run(job, work))
        self._tasks[job.id].add_done_callback(lambda _: self._ended(job))

    def find(self, model: str, name: str, owner: str) -> Job:
        """Return a job.

        Args:
            model: The model that is inverted.
            name: Its id.
            owner: Name of the key of the request; a job of another key does not exist for it.

        Raises:
            Problem: unknown-inversion: There is no such job, or no longer.
        """
        self._forget_old()
        job = self._jobs.get(name)
        if job is None or (job.model, job.owner) != (model, owner):
            raise Problem(
                "unknown-inversion",
                f'no inversion "{name[:64]}" of "{model[:64]}"; results are kept for a while only, '
                "and not beyond the end of the process that computed them",
            )
        return job

    def remove(self, job: Job) -> None:
        """Stop a job, and forget it."""
        queued = job.state == State.QUEUED
        job.end(State.CANCELLED)
        self._jobs.pop(job.id, None)
        if queued and job.id in self._tasks:
            self._tasks[job.id].cancel()  # it would wait for a slot

    async def _run(self, job: Job, work: Work) -> None:
        async with self._slots:
            if job.final:
                return
            job.start()
            # The thread ends soon after its job does, and only then is its slot free.
            running = asyncio.get_running_loop().run_in_executor(self._threads, work)
            late = asyncio.get_running_loop().call_later(self._seconds, self._expire, job)
            try:
                job.result = await running
                job.end(State.SUCCEEDED)
            except Stopped:
                job.end(State.CANCELLED)
            except Problem as problem:
                job.end(State.FAILED, problem)
            except (ArithmeticError, ValueError) as error:  # of the linear algebra, LinAlgError included
                job.end(State.FAILED, Problem("unsolvable", f"the inversion failed: {error}"))
            except Exception:
                logger.exception("inversion %s of %s", job.id, job.model)
                job.end(State.FAILED, Problem("internal-error", f"an internal error; the log has it under {job.id}"))
            finally:
                late.cancel()

    def _ended(self, job: Job) -> None:
        del self._tasks[job.id]
        self._metrics.ended_inversions.labels(job.state).inc()

    def _expire(self, job: Job) -> None:
        job.end(State.FAILED, Problem("deadline-exceeded", f"the inversion did not end within {self._seconds:g} s"))

    def _forget_old(self) -> None:
        """Forget results that are too old, and the oldest beyond the limit."""
        limit = time.monotonic() - self._kept_seconds
        final = sorted((job for job in self._jobs.values() if job.ended is not None), key=lambda job: job.ended or 0.0)
        for position, job in enumerate(final):
            if (job.ended or 0.0) < limit or position < len(final) - self._most:
                del self._jobs[job.id]
