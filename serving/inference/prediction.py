"""Predict from wire format to wire format: parse, check, solve, encode.

Large requests are parsed and encoded in a worker thread, so that the event loop serves the others meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from serving.catalogue.card import FRAME
from serving.errors import Problem
from serving.inference import checks
from serving.inference.policy import ANY, Policy
from serving.inference.producer import ModelInput, Run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from serving.catalogue.card import Card
    from serving.inference.producer import Outputs, Producer
    from serving.inference.shadow import Shadow
    from serving.observability.metrics import Metrics
    from serving.quality import Quality

    Successor = Callable[[Card, float], Awaitable[Card]]

Result = TypeVar("Result")
Written_co = TypeVar("Written_co", covariant=True)
_LARGE_BYTES = 2**20  # some ten milliseconds of JSON; a thread costs a tenth of one


class Exchange(Protocol[Written_co]):
    """A request in some wire format, and the writer of its response.

    Attributes:
        size: Bytes of the request.
        frames: Frames of a trajectory that its body asks for, known after `read`; None where it does not say.
    """

    @property
    def size(self) -> int: ...

    @property
    def frames(self) -> int | None: ...

    def read(self, names: Sequence[str], max_bytes: int, optional: Collection[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the arrays of these names, each of at most so many bytes as float32.

        Args:
            names: Inputs and parameters of the model.
            max_bytes: The most bytes that one array may take as float32.
            optional: The names that a request may leave out.

        Raises:
            Problem: One of its kinds.
        """
        ...

    def write(
        self, model: str, version: int, outputs: Mapping[str, NDArray[np.float32]], quality: Quality
    ) -> Written_co:
        """Return the response; called after `read`.

        Args:
            model: Name of the model.
            version: Its version.
            outputs: Arrays by name, without the batch axis for a single sample.
            quality: What is known about them, `[B]` also for a single sample.

        Raises:
            Problem: The outputs cannot be written in the requested format.
        """
        ...


class Payer(Protocol):
    """The caller, whose rate limit pays for the samples of a request."""

    def spend(self, fields: int) -> None:
        """Pay for so many samples.

        Raises:
            Problem: rate-limited: The rate is exceeded.
        """
        ...


class Predictor:
    """Predicts, from the request's bytes to the response's.

    Args:
        producer: Computes the outputs.
        shadow: Verifies some of them afterwards.
        metrics: Records phases and quality.
        max_bytes: The largest size of one input as float32.
        seconds: The longest time that one prediction may take.
    """

    def __init__(self, producer: Producer, shadow: Shadow, metrics: Metrics, max_bytes: int, seconds: float) -> None:
        self._producer = producer
        self._shadow = shadow
        self._metrics = metrics
        self._max_bytes = max_bytes
        self._seconds = seconds

    async def predict(
        self,
        card: Card,
        exchange: Exchange[Result],
        request_id: str,
        caller: Payer,
        seconds: float = math.inf,
        policy: Policy = ANY,
        successor: Successor | None = None,
    ) -> Result:
        """Return what the exchange writes.

        Args:
            card: Of the version to run.
            exchange: The request.
            request_id: For Triton's log.
            caller: Pays for the samples once the request is parsed, whether it succeeds or not.
            seconds: How long the caller waits.
            policy: What the caller wants where an output may not be accurate enough.
            successor: Returns the version to run where this one has gone, after some seconds at most; None if the
                caller named the version.

        Returns:
            The response, as the exchange writes it.

        Raises:
            Problem: One of its kinds.
        """
        async with self._limited(card, min(seconds, self._seconds)) as deadline:
            run = Run(card, deadline, request_id, policy)
            return await or_successor(run, successor, lambda run: self._predict(run, exchange, caller))

    @asynccontextmanager
    async def _limited(self, card: Card, seconds: float) -> AsyncIterator[float]:
        """Return a context that ends with an error after so many seconds; it counts what the model fails on."""
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(deadline):
                yield deadline
        except TimeoutError as error:
            raise Problem("deadline-exceeded", f"no response within {seconds:g} s") from error
        except Problem as error:
            if error.status == 502:
                self._metrics.model_failures.labels(card.model, card.version, error.kind).inc()
            raise

    async def _predict(self, run: Run, exchange: Exchange[Result], caller: Payer) -> Result:
        card = run.card
        self._producer.check(run)
        inputs = await self._parse(run, exchange, self._max_bytes)
        caller.spend(inputs.count)
        outputs, quality = await self._producer.produce(run, inputs)
        self._metrics.quality(card.model, quality)
        self._shadow.offer(card, inputs.arrays, outputs, quality)
        with self._metrics.phase(card.model, inputs.grid, "encode"):
            size = sum(array.nbytes for array in outputs.values())
            outputs, quality = await offload(size, check, run, outputs, quality, inputs.single)
            if quality.failed is not None and quality.failed.any():
                self._metrics.model_failures.labels(card.model, card.version, "non-finite-output").inc()
            return await offload(size, encode, card, exchange, outputs, quality, inputs.single)

    async def _parse(self, run: Run, exchange: Exchange[Any], frame_bytes: int) -> ModelInput:
        start = time.perf_counter()
        inputs = await offload(exchange.size, parse, run, exchange, self._max_bytes, frame_bytes)
        self._metrics.parsed(run.card.model, inputs.grid, time.perf_counter() - start)
        return inputs


async def or_successor(run: Run, successor: Successor | None, work: Callable[[Run], Awaitable[Result]]) -> Result:
    """Return the result of work on a version, or on its successor where the version has gone.

    Args:
        run: Names the version.
        successor: Returns the version to run instead, after some seconds at most; None if there is none.
        work: The work.

    Raises:
        Problem: One of its kinds.
    """
    try:
        return await work(run)
    except Problem as problem:
        if problem.kind != "model-not-ready" or successor is None:
            raise
        left = run.deadline - asyncio.get_running_loop().time()
        return await work(replace(run, card=await successor(run.card, left / 2)))  # the rest of the time is the work's


def parse(run: Run, exchange: Exchange[Any], max_bytes: int, frame_bytes: int) -> ModelInput:
    """Parse a request and check it against the card.

    Args:
        run: What has to be done.
        exchange: The request.
        max_bytes: The largest size of one input as float32.
        frame_bytes: The largest size of all frames of an output as float32.

    Returns:
        The checked inputs.

    Raises:
        Problem: One of its kinds.
    """
    card = run.card
    arrays, single = checks.batch(exchange.read(card.names, max_bytes, card.optional), card)
    frames = run.policy.span.asking(exchange.frames).asking(checks.sent_frames(arrays, card)).count(card)
    if frames is not None:
        arrays[FRAME] = checks.frames(arrays, frames, card, frame_bytes)
    return ModelInput(arrays, single, checks.grid_label(card.grid_of(arrays), card))


def check(run: Run, outputs: Outputs, quality: Quality, single: bool) -> tuple[Outputs, Quality]:
    """Return what can be sent: all samples, or those with finite outputs where the caller takes them alone.

    Args:
        run: What was requested.
        outputs: Batches `[B, ...]` by name.
        quality: What is known about them.
        single: Whether the request is one sample.

    Returns:
        Outputs and quality; those of samples that failed are NaN.

    Raises:
        Problem: non-finite-output: The model's output for a sample is not finite, or for all of them.
    """
    failed = checks.not_finite(outputs)
    if failed.all() or (failed.any() and not run.policy.partial):
        raise checks.output_fault(outputs, failed, run.card, single=single)
    if not run.policy.partial:
        return outputs, quality
    if failed.any():
        outputs = {name: array.copy() for name, array in outputs.items()}  # Triton's arrays are read-only
        for array in outputs.values():
            array[failed] = np.nan
    return outputs, quality.fail(failed)


def encode(card: Card, exchange: Exchange[Result], outputs: Outputs, quality: Quality, single: bool) -> Result:
    """Write the response.

    Args:
        card: Of the version that ran.
        exchange: The request.
        outputs: Batches `[B, ...]` by name.
        quality: What is known about them.
        single: Whether the response is one sample, without a batch axis.

    Returns:
        The response, as the exchange writes it.
    """
    shown = {name: array[0] if single else array for name, array in outputs.items()}
    return exchange.write(card.model, card.version, shown, quality)


async def offload(size: int, function: Callable[..., Result], *args: Any) -> Result:
    """Call a function on data of that many bytes: in a worker thread if they are large, else at once."""
    return await asyncio.to_thread(function, *args) if size > _LARGE_BYTES else function(*args)
