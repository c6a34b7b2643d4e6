"""A model's card, a body and its coding in; the answer's body out: parse, check, dispatch, check, encode.

Large bodies are parsed and encoded in a worker thread, so that one of them does not keep the others waiting.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from serving import arrays, fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from serving.arrays import Coding
    from serving.metrics import Metrics
    from serving.schemas import Card

Result = TypeVar("Result")
_LARGE_BYTES = 2**20  # some ten milliseconds of JSON; a thread costs a tenth of one


@dataclass(frozen=True)
class Question:
    """A body that was understood.

    Attributes:
        inputs: Batches `[B, ...]` by name.
        single: Whether it was one field, without a batch axis.
        coding: How its arrays were written.
        grid: Its grid as a metrics label.
    """

    inputs: dict[str, NDArray[np.float32]]
    single: bool
    coding: Coding
    grid: str


class Solver(Protocol):
    """What turns inputs into outputs: the model in Triton, or the equations themselves."""

    async def predict(
        self, card: Card, inputs: Mapping[str, NDArray[np.float32]], deadline: float, request_id: str
    ) -> dict[str, NDArray[np.float32]]:
        """Outputs `[B, ...]` by name, in the order of the inputs; `deadline` is on the clock of the event loop."""
        ...


class Predictor:
    """Answers questions, from bytes to bytes.

    Args:
        solver: Knows the answers.
        metrics: Where the phases are recorded.
        max_bytes: The most that one input may take as float32.
    """

    def __init__(self, solver: Solver, metrics: Metrics, max_bytes: int) -> None:
        self._solver = solver
        self._metrics = metrics
        self._max_bytes = max_bytes

    async def answer(
        self, card: Card, body: bytearray, question_type: str, answer_type: str, deadline: float, request_id: str
    ) -> bytes:
        """The body of the answer.

        Args:
            card: Of the version to ask.
            body: The request's body.
            question_type: Its media type.
            answer_type: The media type to answer in.
            deadline: On the clock of the event loop.
            request_id: For Triton's log.

        Raises:
            Problem: One of its kinds.
        """
        question = await self._understand(card, body, question_type)
        outputs = await self._solver.predict(card, question.inputs, deadline, request_id)
        with self._metrics.phase(card.model, question.grid, "encode"):
            size = sum(array.nbytes for array in outputs.values())
            coding = arrays.Coding(answer_type, base64=question.coding.base64)
            return await _aside(size, encode, card, outputs, coding, question.single)

    async def _understand(self, card: Card, body: bytearray, media_type: str) -> Question:
        start = time.perf_counter()
        question = await _aside(len(body), understand, card, body, media_type, self._max_bytes)
        elapsed = time.perf_counter() - start
        self._metrics.phase_seconds.labels(card.model, question.grid, "parse").observe(elapsed)
        return question


def understand(card: Card, body: bytearray, media_type: str, max_bytes: int) -> Question:
    """Parse a body and check it against the card.

    Raises:
        Refused: One of its kinds.
    """
    names = [tensor.name for tensor in card.inputs]
    sent, coding = arrays.read(body, media_type, names, max_bytes)
    inputs, single = fields.batch(sent, card)
    return Question(inputs, single, coding, fields.grid_label(inputs[names[0]].shape[1:], card))


def encode(card: Card, outputs: dict[str, NDArray[np.float32]], coding: Coding, single: bool) -> bytes:
    """Check what the model answered and write it down in the question's rank.

    Raises:
        NonFiniteOutput: NaN or infinity in it.
    """
    fields.check_output(outputs)
    shown = {name: array[0] if single else array for name, array in outputs.items()}
    return arrays.write(card.model, card.version, shown, coding)


async def _aside(size: int, function: Callable[..., Result], *args: Any) -> Result:
    """Call a function, in a worker thread if its data are large."""
    return await asyncio.to_thread(function, *args) if size > _LARGE_BYTES else function(*args)
