"""What `physics` knows of the problem a card names: an input of its training distribution, and the classical answer.

The gateway asks for both as it asks Triton, but they cost it its own processor: one worker thread solves, at most
`WAITING` questions wait for it, and one question holds no more points than the model's largest grid. What takes
hundreds of solves has a worker of its own, so that nobody's example waits for an inversion.
"""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from physics import burgers, darcy, inversion, poisson
from serving.problem_details import BodyTooLarge, InvalidParameter, ModelFailed, NotImplementedHere, Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from serving.schemas import Card

WAITING = 8
RETRY_SECONDS = 2  # a solve on the largest grid takes about half a second


@dataclass(frozen=True)
class Problem:
    """A problem that has a classical solver.

    Attributes:
        example: (points per axis, seed) to an input field.
        solve: An input field to the output field; `points` tells it the answer's grid where the card fixes one.
        most: The most points that are solved at one time, by default those of the model's largest grid.
        slow: Whether a solve takes many seconds.
    """

    example: Callable[[int, int], NDArray[np.float64]]
    solve: Callable[..., NDArray[np.float64]]
    most: int | None = None
    slow: bool = False


PROBLEMS: Mapping[str, Problem] = {
    "darcy": Problem(darcy.example, darcy.solve),
    # Hundreds of solves: ten seconds for 141 x 141 points.
    "darcy_inverse": Problem(darcy.example_pressure, inversion.invert, most=141**2, slow=True),
    "burgers": Problem(burgers.example, burgers.solve),
    "poisson": Problem(poisson.example, poisson.solve),
}


class Worker:
    """One thread that solves, and those who wait for it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "classical")
        self._waiting = 0

    def close(self) -> None:
        """Drop what waits; what runs is finished."""
        self._thread.shutdown(cancel_futures=True)

    async def run(self, function: Callable[..., NDArray[Any]], *args: Any) -> NDArray[Any]:
        """Call a function in its turn.

        Raises:
            Overloaded: Too many questions wait.
        """
        if self._waiting >= WAITING:
            raise Overloaded(f"{self._waiting} questions wait for the classical solver", retry_after=RETRY_SECONDS)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)
        finally:
            self._waiting -= 1


class Classics:
    """Answers with the equations instead of a model."""

    def __init__(self) -> None:
        self._quick, self._slow = Worker(), Worker()

    def close(self) -> None:
        """Drop what waits; what runs is finished."""
        self._quick.close()
        self._slow.close()

    async def example(self, card: Card, points: int, seed: int) -> dict[str, NDArray[np.float32]]:
        """An input of the model's training distribution.

        Args:
            card: The model's card.
            points: Points per axis.
            seed: The same seed is the same field, on every grid.

        Raises:
            NotImplementedHere: The problem has no sampler.
            InvalidParameter: A grid outside the card's limits.
            Overloaded: Too many questions wait.
        """
        problem = _problem(card)
        if not card.grid.minimum <= points <= card.grid.maximum:
            raise InvalidParameter(
                f"grid is {points}; the model takes {card.grid.minimum} to {card.grid.maximum} points"
            )
        field = await self._quick.run(problem.example, points, seed)
        return {card.inputs[0].name: field.astype(np.float32)}

    async def predict(
        self, card: Card, inputs: Mapping[str, NDArray[np.float32]], deadline: float, request_id: str
    ) -> dict[str, NDArray[np.float32]]:
        """The classical answer, with the signature of `Dispatcher.predict`; the caller keeps the deadline.

        Raises:
            NotImplementedHere: The problem has no classical solver.
            BodyTooLarge: More points than are solved at one time.
            ModelFailed: The solver gave up.
            Overloaded: Too many questions wait.
        """
        del deadline, request_id
        problem = _problem(card)
        [batch] = inputs.values()
        most = problem.most or card.grid.maximum ** len(card.grid.axes)
        if batch.size > most:
            raise BodyTooLarge(
                f"{math.prod(batch.shape)} points; the classical solver takes at most {most} at one time"
            )
        worker = self._slow if problem.slow else self._quick
        try:
            fields = await worker.run(_solve_each, problem, batch, card.outputs[0].points)
        except (ArithmeticError, ValueError) as error:
            raise ModelFailed(f"the classical solver gave up: {error}") from error
        return {card.outputs[0].name: fields}


def _problem(card: Card) -> Problem:
    if card.problem not in PROBLEMS:
        raise NotImplementedHere(f'there is no classical solver for "{card.problem}"; there are {", ".join(PROBLEMS)}')
    return PROBLEMS[card.problem]


def _solve_each(problem: Problem, batch: NDArray[np.float32], points: tuple[int, ...] | None) -> NDArray[np.float32]:
    told = {} if points is None else {"points": points}
    return np.stack([problem.solve(field, **told) for field in batch]).astype(np.float32)
