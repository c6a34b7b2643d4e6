"""A card and a question in its wire format in; the answer in the same format out: parse, check, dispatch, encode.

Large questions are parsed and encoded in a worker thread, so that one of them does not keep the others waiting.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from serving.inference import checks as fields
from serving.problem_details import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from serving.auth.authorisation import Caller
    from serving.observability.metrics import Metrics
    from serving.schemas import Card

Result = TypeVar("Result")
Written_co = TypeVar("Written_co", covariant=True)
_LARGE_BYTES = 2**20  # some ten milliseconds of JSON; a thread costs a tenth of one


class Exchange(Protocol[Written_co]):
    """A question in some wire format, and the writing of its answer.

    Attributes:
        size: Bytes of the question.
    """

    size: int

    def read(self, names: Sequence[str], max_bytes: int) -> dict[str, NDArray[Any]]:
        """Exactly the arrays of these names, each of at most so many bytes as float32.

        Raises:
            Refused: One of its kinds.
        """
        ...

    def write(self, model: str, version: int, outputs: Mapping[str, NDArray[np.float32]]) -> Written_co:
        """The answer; called after `read`.

        Raises:
            Refused: It cannot be had as it was asked for.
        """
        ...


@dataclass(frozen=True)
class Question:
    """A question that was understood.

    Attributes:
        inputs: Batches `[B, ...]` by name.
        single: Whether it was one field, without a batch axis.
        grid: Its grid as a metrics label.
    """

    inputs: dict[str, NDArray[np.float32]]
    single: bool
    grid: str

    @property
    def count(self) -> int:
        """Number of fields."""
        return len(next(iter(self.inputs.values())))


class Solver(Protocol):
    """What turns inputs into outputs: the model in Triton, or the equations themselves."""

    async def predict(
        self, card: Card, inputs: Mapping[str, NDArray[np.float32]], deadline: float, request_id: str
    ) -> dict[str, NDArray[np.float32]]:
        """Outputs `[B, ...]` by name, in the order of the inputs; `deadline` is on the clock of the event loop."""
        ...


class Predictor:
    """Answers questions, from wire to wire.

    Args:
        solver: Knows the answers.
        metrics: Where the phases are recorded.
        max_bytes: The most that one input may take as float32.
        seconds: The most that one answer may take.
    """

    def __init__(self, solver: Solver, metrics: Metrics, max_bytes: int, seconds: float) -> None:
        self._solver = solver
        self._metrics = metrics
        self._max_bytes = max_bytes
        self._seconds = seconds

    async def answer(
        self,
        card: Card,
        exchange: Exchange[Result],
        request_id: str,
        caller: Caller,
        seconds: float = math.inf,
    ) -> Result:
        """What the exchange writes.

        Args:
            card: Of the version to ask.
            exchange: The question.
            request_id: For Triton's log.
            caller: Whose rate pays for the fields, once the question is understood and whatever becomes of it.
            seconds: How long the caller will wait.

        Raises:
            Problem: One of its kinds.
        """
        limit = min(seconds, self._seconds)
        deadline = asyncio.get_running_loop().time() + limit
        try:
            async with asyncio.timeout_at(deadline):
                return await self._answer(card, exchange, request_id, caller, deadline)
        except TimeoutError as error:
            raise DeadlineExceeded(f"no answer within {limit:g} s") from error

    async def _answer(
        self, card: Card, exchange: Exchange[Result], request_id: str, caller: Caller, deadline: float
    ) -> Result:
        question = await self._understand(card, exchange)
        caller.spend(question.count)
        outputs = await self._solver.predict(card, question.inputs, deadline, request_id)
        with self._metrics.phase(card.model, question.grid, "encode"):
            size = sum(array.nbytes for array in outputs.values())
            return await aside(size, encode, card, exchange, outputs, question.single)

    async def _understand(self, card: Card, exchange: Exchange[Any]) -> Question:
        start = time.perf_counter()
        question = await aside(exchange.size, understand, card, exchange, self._max_bytes)
        self._metrics.parsed(card.model, question.grid, time.perf_counter() - start)
        return question


def understand(card: Card, exchange: Exchange[Any], max_bytes: int) -> Question:
    """Parse a question and check it against the card.

    Raises:
        Refused: One of its kinds.
    """
    names = [tensor.name for tensor in card.inputs]
    inputs, single = fields.batch(exchange.read(names, max_bytes), card)
    return Question(inputs, single, fields.grid_label(inputs[names[0]].shape[1:], card))


def encode(card: Card, exchange: Exchange[Result], outputs: dict[str, NDArray[np.float32]], single: bool) -> Result:
    """Check what the model answered and write it down in the question's rank.

    Raises:
        NonFiniteOutput: NaN or infinity in it.
    """
    fields.check_output(outputs)
    shown = {name: array[0] if single else array for name, array in outputs.items()}
    return exchange.write(card.model, card.version, shown)


async def aside(size: int, function: Callable[..., Result], *args: Any) -> Result:
    """Call a function, in a worker thread if its data are large."""
    return await asyncio.to_thread(function, *args) if size > _LARGE_BYTES else function(*args)
