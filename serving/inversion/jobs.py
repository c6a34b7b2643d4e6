"""The inversions of a gateway: jobs in the background, a bounded number of them, of which a few run at one time.

An accepted job always comes to a final state. At shutdown the jobs that run may finish within the time that requests in
flight have; what is left is failed with a problem that says so, while clients that wait for it are still connected.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from serving.codecs.formats import Arrays
from serving.errors import Problem
from serving.inversion.estimate import Progress
from serving.predict import Prediction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from numpy.typing import NDArray

    from physics.registry import Sensing
    from serving.catalogue.card import Card
    from serving.inversion.estimate import Estimate, Summary
    from serving.limits import Caller
    from serving.observe import Metrics
    from serving.predict import Predictor
    from serving.settings import Settings

    Fields = NDArray[np.float64]
    Work = Callable[[], tuple[Estimate, Summary]]

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
RUNNING = 2
"""Jobs at one time: they share the model's instances with predictions."""

RETRY_SECONDS = 10
LAST_SECONDS = 1.0
"""Between the end of the last job at shutdown and that of its client's connection."""


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
        repeat: The key that marks repetitions of its request, and the request's digest; empty where it has none.

    Attributes:
        id: Random, so that it cannot be guessed.
        progress: Of the last step.
        result: The estimate and its summary, once the job has succeeded.
        problem: Why it failed.
        ended: On the clock of `time.monotonic`; None before.
    """

    def __init__(
        self, model: str, version: int, unknown: str, owner: str, most_iterations: int, repeat: tuple[str, str]
    ) -> None:
        self.id = secrets.token_urlsafe(16)
        self.repeat = repeat
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
        self._jobs[job.id] = job
        self._tasks[job.id] = asyncio.create_task(self._run(job, work))
        self._tasks[job.id].add_done_callback(lambda _: self._ended(job))

    def repeated(self, model: str, owner: str, key: str) -> Job | None:
        """Return the job that an earlier request with the same key of idempotency has started, while it is known."""
        self._forget_old()
        found = (job for job in self._jobs.values() if key and job.repeat[0] == key)
        return next((job for job in found if (job.model, job.owner) == (model, owner)), None)

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
        """Forget results that are too old, and the oldest of each key beyond the limit."""
        limit, kept = time.monotonic() - self._kept_seconds, Counter[str]()
        final = [job for job in self._jobs.values() if job.ended is not None]
        for job in sorted(final, key=lambda job: -(job.ended or 0.0)):
            kept[job.owner] += 1
            if (job.ended or 0.0) < limit or kept[job.owner] > self._most:
                del self._jobs[job.id]


@dataclass(frozen=True, eq=False)
class ServedModel:
    """The served model as a `Forward` of `serving.inversion.posterior`, called from the thread of a job.

    Attributes:
        predictor: Runs the model, in batches with the predictions of others.
        model, vjp, jvp: The cards of the model and its derivatives, all of one version.
        sensing: Its unknown input and its measured output.
        job: The job that it runs for.
        caller: Pays for the samples.
    """

    predictor: Predictor
    model: Card
    vjp: Card
    jvp: Card
    sensing: Sensing
    job: Job
    caller: Caller

    def solve(self, inputs: Fields) -> Fields:
        """Return the outputs of inputs, `[batch, rows, columns]`."""
        [output] = self._run(self.model, {self.sensing.unknown: inputs}, self.sensing.measured)
        return output

    def pull(self, inputs: Fields, cotangents: Fields) -> tuple[Fields, Fields]:
        """Return the outputs, and the gradients of the inner products of outputs and cotangents."""
        unknown, measured = self.sensing.unknown, self.sensing.measured
        arrays = {unknown: inputs, f"cotangents.{measured}": cotangents}
        output, gradients = self._run(self.vjp, arrays, measured, f"gradients.{unknown}")
        return output, gradients

    def push(self, inputs: Fields, tangents: Fields) -> tuple[Fields, Fields]:
        """Return the outputs, and their derivatives along the tangents."""
        unknown, measured = self.sensing.unknown, self.sensing.measured
        arrays = {unknown: inputs, f"tangents.{unknown}": tangents}
        output, derivatives = self._run(self.jvp, arrays, measured, f"tangents.{measured}")
        return output, derivatives

    def _run(self, card: Card, arrays: Mapping[str, Fields], *names: str) -> list[Fields]:
        self.job.check()
        sent = Arrays({name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()})
        outputs: Mapping[str, NDArray[Any]] = self.job.call(self._predict(card, sent))
        return [np.asarray(outputs[name], dtype=np.float64) for name in names]

    async def _predict(self, card: Card, arrays: Arrays) -> Mapping[str, NDArray[np.float32]]:
        """Predict; wait where the service is busy or the key is over its rate, as the job's time limit allows."""
        while True:
            try:
                return await self.predictor.predict(Prediction(card, self.job.id, self.caller), arrays)
            except Problem as problem:
                if problem.status not in {429, 503}:
                    raise
                await asyncio.sleep(float(problem.headers["Retry-After"]))
