"""Predict from wire format to wire format: parse, check, solve, encode.

Large requests are parsed and encoded in a worker thread, so that the event loop serves the others meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from serving.inference import checks
from serving.inference.policy import ANY, Policy
from serving.inference.producer import ModelInput, Run
from serving.problem_details import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from serving.catalogue.card import Card
    from serving.inference.producer import Outputs, Producer
    from serving.inference.shadow import Shadow
    from serving.observability.metrics import Metrics
    from serving.quality import Quality

Result = TypeVar("Result")
Written_co = TypeVar("Written_co", covariant=True)
_LARGE_BYTES = 2**20  # some ten milliseconds of JSON; a thread costs a tenth of one


class Exchange(Protocol[Written_co]):
    """A request in some wire format, and the writer of its response.

    Attributes:
        size: Bytes of the request.
    """

    size: int

    def read(self, names: Sequence[str], max_bytes: int, optional: Collection[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the arrays of these names, each of at most so many bytes as float32.

        Args:
            names: Inputs and parameters of the model.
            max_bytes: The most bytes that one array may take as float32.
            optional: The names that a request may leave out.

        Raises:
            Refused: One of its kinds.
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
            Refused: The outputs cannot be written in the requested format.
        """
        ...


class Payer(Protocol):
    """The caller, whose rate limit pays for the samples of a request."""

    def spend(self, fields: int) -> None:
        """Pay for so many samples.

        Raises:
            RateLimited: The rate is exceeded.
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
    ) -> Result:
        """Return what the exchange writes.

        Args:
            card: Of the version to run.
            exchange: The request.
            request_id: For Triton's log.
            caller: Pays for the samples once the request is parsed, whether it succeeds or not.
            seconds: How long the caller waits.
            policy: What the caller wants where an output may not be accurate enough.

        Returns:
            The response, as the exchange writes it.

        Raises:
            Problem: One of its kinds.
        """
        limit = min(seconds, self._seconds)
        deadline = asyncio.get_running_loop().time() + limit
        try:
            async with asyncio.timeout_at(deadline):
                return await self._predict(Run(card, deadline, request_id, policy), exchange, caller)
        except TimeoutError as error:
            raise DeadlineExceeded(f"no response within {limit:g} s") from error

    async def _predict(self, run: Run, exchange: Exchange[Result], caller: Payer) -> Result:
        card = run.card
        self._producer.check(run)
        inputs = await self._parse(card, exchange)
        caller.spend(inputs.count)
        outputs, quality = await self._producer.produce(run, inputs)
        self._metrics.quality(card.model, quality)
        self._shadow.offer(card, inputs.arrays, outputs, quality)
        with self._metrics.phase(card.model, inputs.grid, "encode"):
            size = sum(array.nbytes for array in outputs.values())
            return await offload(size, encode, card, exchange, outputs, quality, inputs.single)

    async def _parse(self, card: Card, exchange: Exchange[Any]) -> ModelInput:
        start = time.perf_counter()
        inputs = await offload(exchange.size, parse, card, exchange, self._max_bytes)
        self._metrics.parsed(card.model, inputs.grid, time.perf_counter() - start)
        return inputs


def parse(card: Card, exchange: Exchange[Any], max_bytes: int) -> ModelInput:
    """Parse a request and check it against the card.

    Args:
        card: Of the version to run.
        exchange: The request.
        max_bytes: The largest size of one input as float32.

    Returns:
        The checked inputs.

    Raises:
        Refused: One of its kinds.
    """
    arrays, single = checks.batch(exchange.read(card.names, max_bytes, card.optional), card)
    return ModelInput(arrays, single, checks.grid_label(card.grid_of(arrays), card))


def encode(card: Card, exchange: Exchange[Result], outputs: Outputs, quality: Quality, single: bool) -> Result:
    """Check the model's outputs and write the response.

    Args:
        card: Of the version that ran.
        exchange: The request.
        outputs: Batches `[B, ...]` by name.
        quality: What is known about them.
        single: Whether the response is one sample, without a batch axis.

    Returns:
        The response, as the exchange writes it.

    Raises:
        NonFiniteOutput: NaN or infinity in an output.
    """
    checks.check_output(outputs)
    shown = {name: array[0] if single else array for name, array in outputs.items()}
    return exchange.write(card.model, card.version, shown, quality)


async def offload(size: int, function: Callable[..., Result], *args: Any) -> Result:
    """Call a function on data of that many bytes: in a worker thread if they are large, else at once."""
    return await asyncio.to_thread(function, *args) if size > _LARGE_BYTES else function(*args)
