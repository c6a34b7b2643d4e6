"""The inversions of a gateway: jobs in the background, a bounded number of them, of which a few run at one time.

An accepted job always comes to a final state. At shutdown the jobs that run may finish within the time that requests in
flight have; what is left is failed with a problem that says so, and clients may still ask for either.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from physics.posterior.laplace import Estimate, Progress
from physics.registry import Sensing
from schema.card import Card, Kind
from serving.catalogue.catalogue import SUCCESSION_SECONDS
from serving.errors import Problem
from serving.inputs import Arrays, Prediction
from serving.limits import Caller
from serving.observe import Metrics
from serving.predict import Predictor
from serving.settings import Settings

Array = NDArray[np.float64]
Found = tuple[Estimate, dict[str, NDArray[np.float32]]]

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
RUNNING = 2  # jobs at one time: they share the model's instances with predictions
RETRY_SECONDS = 10
LAST_SECONDS = 1.0  # in which clients ask for the result of the last job at shutdown, and as long again to receive it


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
    """An inversion of an `unknown` input, and the bridge from its worker thread to the event loop.

    `id` is random, so that it cannot be guessed; `owner` is the name of the key that may see the job; `repeat` is the
    key that marks repetitions of its request, and the request's digest. `result` or `problem` says how it ended, and
    `ended` when, on the clock of `time.monotonic`.
    """

    def __init__(self, card: Card, unknown: str, owner: str, most_iterations: int, repeat: tuple[str, str]) -> None:
        self.id = secrets.token_urlsafe(16)
        self.card, self.unknown, self.owner = card, unknown, owner
        self.most_iterations, self.repeat = most_iterations, repeat
        self.state, self.progress = State.QUEUED, Progress()
        self.result: Found | None = None
        self.problem: Problem | None = None
        self.started: float | None = None
        self.ended: float | None = None
        self._done, self._stop = asyncio.Event(), threading.Event()
        self._pending: Future[Any] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def seconds(self) -> float:
        return 0.0 if self.started is None else (self.ended or time.monotonic()) - self.started

    def end(self, state: State, problem: Problem | None = None) -> None:
        """Note the final state, of which only the first counts, and stop the worker thread at its next step."""
        if self.ended is None:
            self.state, self.problem, self.ended = state, problem, time.monotonic()
            self._stop.set()
            if (pending := self._pending) is not None:  # which the worker thread may forget at any moment
                pending.cancel()
            self._done.set()

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._done.wait()

    def report(self, progress: Progress) -> None:
        """Note the progress; called in the worker thread, as the methods below."""
        self.progress = progress
        self.check()

    def check(self) -> None:
        if self._stop.is_set():
            raise Stopped

    def call(self, work: Coroutine[None, None, Result]) -> Result:
        """Run a coroutine in the event loop and return its result; `Stopped` if the job has been stopped."""
        self._pending = future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            if self._stop.is_set():
                future.cancel()
            return future.result()
        except CancelledError:
            raise Stopped from None
        finally:
            self._pending = None


class Inversions:
    """Runs jobs, and keeps their results for a while."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._metrics = metrics
        self._most = settings.max_inversions
        self._seconds, self._kept_seconds = settings.inversion_seconds, settings.inversion_kept_seconds
        self._drain_seconds = settings.notice_seconds + max(settings.drain_seconds - 2 * LAST_SECONDS, 0.0)
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._draining = False
        metrics.inversions.set_function(lambda: len(self._tasks))

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Accept jobs while the context is open; what still runs at its end is stopped."""
        self._slots, self._threads = asyncio.Semaphore(RUNNING), ThreadPoolExecutor(RUNNING, "inversion")
        try:
            yield
        finally:
            self.end_all()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            await asyncio.to_thread(self._threads.shutdown)

    def drain(self) -> None:
        """Accept no more jobs, and stop those that run shortly before the gateway stops listening."""
        self._draining = True
        asyncio.get_running_loop().call_later(self._drain_seconds, self.end_all)

    async def ended(self) -> None:
        """Wait until no job runs and, where one did, until its client has had the time to ask for the result."""
        if running := [*self._tasks.values()]:
            await asyncio.wait(running)
            await asyncio.sleep(LAST_SECONDS)

    def end_all(self) -> None:
        """Fail the jobs that have not ended, since the service shuts down."""
        for job in self._jobs.values():
            if job.ended is None:
                logger.warning("inversion %s of %s is stopped: the service shuts down", job.id, job.card.model)
                job.end(State.FAILED, Problem("unavailable", "the service is shutting down; send the inversion again"))

    def check(self, owner: str) -> None:
        """Refuse a further job where there is no place for it; jobs of one key have half of the places."""
        if self._draining:
            raise Problem("unavailable", "the service is shutting down")
        if (pending := len(self._tasks)) >= self._most:
            detail = f"{pending} inversions wait or run, which is the limit"
            raise Problem("overloaded", detail, retry_after=RETRY_SECONDS)
        own = sum(job.owner == owner for job in self._jobs.values() if job.id in self._tasks)
        if owner and own >= math.ceil(self._most / 2):
            detail = f'{own} inversions of the key "{owner}" wait or run, half of the limit'
            raise Problem("overloaded", detail, retry_after=RETRY_SECONDS)

    def submit(self, job: Job, work: Callable[[], Found]) -> None:
        """Run a job as soon as a thread is free; its work raises `Stopped` soon after the job has been stopped."""
        self.check(job.owner)

        def ended(_: asyncio.Task[None]) -> None:
            del self._tasks[job.id]
            self._metrics.ended_inversions.labels(job.state).inc()

        self._jobs[job.id] = job
        self._tasks[job.id] = asyncio.create_task(self._run(job, work))
        self._tasks[job.id].add_done_callback(ended)

    async def _run(self, job: Job, work: Callable[[], Found]) -> None:
        loop = asyncio.get_running_loop()
        late = Problem("deadline-exceeded", f"the inversion did not end within {self._seconds:g} s")
        async with self._slots:
            if job.ended is not None:
                return
            job.state, job.started = State.RUNNING, time.monotonic()
            expiry = loop.call_later(self._seconds, job.end, State.FAILED, late)
            try:
                # The thread ends soon after its job does, and only then is its slot free.
                job.result = await loop.run_in_executor(self._threads, work)
                job.end(State.SUCCEEDED)
            except Stopped:
                job.end(State.CANCELLED)
            except Problem as problem:
                job.end(State.FAILED, problem)
            except (ArithmeticError, ValueError) as error:  # of the linear algebra, LinAlgError included
                job.end(State.FAILED, Problem("unsolvable", f"the inversion failed: {error}"))
            except Exception:
                logger.exception("inversion %s of %s", job.id, job.card.model)
                job.end(State.FAILED, Problem("internal-error", f"an internal error; the log has it under {job.id}"))
            finally:
                expiry.cancel()

    def repeated(self, model: str, owner: str, key: str) -> Job | None:
        """Return the job that an earlier request with the same key of idempotency has started, while it is known."""
        return next((job for job in self._known(model, owner) if key and job.repeat[0] == key), None)

    def find(self, model: str, name: str, owner: str) -> Job:
        """Return a job by its id; one of another key does not exist for the owner of this one."""
        for job in self._known(model, owner):
            if job.id == name:
                return job
        kept = "results are kept for a while only, and not beyond the end of the process that computed them"
        raise Problem("unknown-inversion", f'no inversion "{name[:64]}" of "{model[:64]}"; {kept}')

    def _known(self, model: str, owner: str) -> list[Job]:
        """Return the jobs of a key for a model, once results that are too old, or too many of a key, are forgotten."""
        limit, kept = time.monotonic() - self._kept_seconds, Counter[str]()
        for job in sorted(self._jobs.values(), key=lambda job: -(job.ended or 0.0)):
            if job.ended is not None:
                kept[job.owner] += 1
                if job.ended < limit or kept[job.owner] > self._most:
                    del self._jobs[job.id]
        return [job for job in self._jobs.values() if (job.card.model, job.owner) == (model, owner)]

    def remove(self, job: Job) -> None:
        queued = job.state == State.QUEUED
        job.end(State.CANCELLED)
        self._jobs.pop(job.id, None)
        if queued and job.id in self._tasks:
            self._tasks[job.id].cancel()  # it would wait for a slot


@dataclass(frozen=True, eq=False)
class ServedModel:
    """The served model at one input [rows, columns], called from the thread of a job: a `Linear` of `physics.registry`.

    The `cards` are those of the model, at None, and of its derivatives, all of one version. The caller pays.
    """

    predictor: Predictor
    cards: Mapping[Kind | None, Card]
    sensing: Sensing
    job: Job
    caller: Caller
    field: Array

    @cached_property
    def solution(self) -> Array:
        return self._run(None, self.sensing.measured, {self.sensing.unknown: self.field})

    def pull(self, cotangents: Array) -> Array:
        """Return the gradients of the inner products of the output and the cotangents [batch, rows, columns]."""
        unknown, measured = self.sensing.unknown, self.sensing.measured
        field = np.broadcast_to(self.field, cotangents.shape)
        return self._run("vjp", f"gradients.{unknown}", {f"cotangents.{measured}": cotangents, unknown: field})

    def push(self, tangents: Array) -> Array:
        """Return the derivatives of the output along directions of the input [batch, rows, columns]."""
        unknown, field = self.sensing.unknown, np.broadcast_to(self.field, tangents.shape)
        return self._run("jvp", f"tangents.{self.sensing.measured}", {f"tangents.{unknown}": tangents, unknown: field})

    def _run(self, kind: Kind | None, name: str, arrays: Mapping[str, Array]) -> Array:
        """Return one output; wait where the service is busy or the key is over its rate, as the job's time allows.

        A version that others of its model have replaced does not return.
        """
        sent = Arrays({each: np.ascontiguousarray(array, np.float32) for each, array in arrays.items()})
        wanted = Prediction(self.cards[kind], self.job.id, self.caller)

        async def predict() -> Mapping[str, NDArray[np.float32]]:
            patience = math.inf
            while True:
                try:
                    return await self.predictor.predict(wanted, sent)
                except Problem as problem:
                    if problem.status not in {429, 503}:
                        raise
                    now, missing = time.monotonic(), problem.kind == "model-not-ready"
                    patience = min(patience, now + SUCCESSION_SECONDS) if missing else math.inf
                    if now >= patience:  # else another version may be warm a moment before this one
                        self.predictor.check(wanted.card)
                    await asyncio.sleep(float(problem.headers["Retry-After"]))

        return np.asarray(self.job.call(predict())[name], dtype=np.float64)
