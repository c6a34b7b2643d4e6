"""The classical solvers of `physics` as a backend of the gateway: sampled inputs, and reference solutions.

They use the gateway's own processor, so they are bounded: one worker thread solves, at most `MAX_WAITING` requests wait
for it, and one request holds no more points than the model's largest grid. Solvers that take seconds have a worker of
their own, so that no example waits for an inversion.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from physics import registry
from serving.catalogue.card import FRAME
from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from physics.registry import Classical
    from serving.catalogue.card import Card

    Sample = tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]

MAX_WAITING = 8
NICENESS = 19  # the lowest priority
RETRY_SECONDS = 2  # a solve on the largest grid takes about half a second


class Worker:
    """One thread that solves, and a bounded number of requests that wait for it.

    Args:
        niceness: Added to the niceness of the thread, where the system has one per thread.
    """

    def __init__(self, niceness: int = 0) -> None:
        self._thread = ThreadPoolExecutor(1, "classical", _lower, (niceness,))
        self._waiting = 0

    def close(self) -> None:
        """Drop what waits; what runs is finished."""
        self._thread.shutdown(cancel_futures=True)

    async def run(self, function: Callable[..., NDArray[Any]], *args: Any) -> NDArray[Any]:
        """Call a function in the thread.

        Raises:
            Problem: overloaded: Too many requests wait.
        """
        if self._waiting >= MAX_WAITING:
            raise Problem(
                "overloaded", f"{self._waiting} requests wait for the classical solver", retry_after=RETRY_SECONDS
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)
        finally:
            self._waiting -= 1


class ClassicalSolvers:
    """Predicts with the equations instead of a model."""

    def __init__(self) -> None:
        self._quick, self._slow, self._background = Worker(), Worker(), Worker(NICENESS)

    def close(self) -> None:
        """Drop what waits; what runs is finished."""
        for worker in (self._quick, self._slow, self._background):
            worker.close()

    @staticmethod
    def knows(card: Card) -> bool:
        """Return whether the model's problem has a solver."""
        return card.problem in registry.problems() and card.product is None

    def samples(self, card: Card) -> bool:
        """Return whether the model's problem has a sampler."""
        return self.knows(card) and registry.problem(card.problem).example is not None

    def solves(self, card: Card) -> bool:
        """Return whether there is a solver that solves the model's problem to rounding."""
        return self.knows(card) and registry.problem(card.problem).exact and len(card.outputs) == 1

    async def example(self, card: Card, points: int, seed: int) -> dict[str, NDArray[np.float32]]:
        """Sample an input of the model's training distribution.

        Args:
            card: The model's card.
            points: Points per axis.
            seed: The same seed is the same field, on every grid.

        Returns:
            The field by input name.

        Raises:
            Problem: no-example: The problem has no sampler.
            Problem: invalid-parameter: The grid is outside the card's limits.
            Problem: overloaded: Too many requests wait.
        """
        sampler = registry.problem(card.problem).example if self.knows(card) else None
        if sampler is None:
            sampled = ", ".join(sorted(name for name, problem in registry.problems().items() if problem.example))
            raise Problem("no-example", f"{_what(card)} has no sampler; there are samplers for {sampled}")
        if not card.grid.minimum <= points <= card.grid.maximum:
            raise Problem(
                "invalid-parameter",
                f"grid is {points}; the model takes {card.grid.minimum} to {card.grid.maximum} points",
            )
        field = await self._quick.run(sampler, points, seed)
        return {card.inputs[0].name: field.astype(np.float32)}

    async def predict(
        self, card: Card, inputs: Mapping[str, NDArray[np.float32]], deadline: float, request_id: str
    ) -> dict[str, NDArray[np.float32]]:
        """Solve for every sample of a batch, with the signature of `Dispatcher.predict`.

        Args:
            card: The model's card.
            inputs: Batches [B, *grid] by input name; of trajectories, the shape of `frame` says how many.
            deadline: Unused; the caller keeps it.
            request_id: Unused.

        Returns:
            Batches [B, *grid], of trajectories [B, frame, *grid], by output name.

        Raises:
            Problem: no-reference: The problem has no classical solver.
            Problem: body-too-large: There are more points than are solved in one call.
            Problem: unsolvable: The solver does not accept the input, or does not converge.
            Problem: overloaded: Too many requests wait.
        """
        del deadline, request_id
        if not self.knows(card):
            raise Problem(
                "no-reference",
                f"{_what(card)} has no classical solver; there are solvers for"
                f" {', '.join(sorted(registry.problems()))}",
            )
        return await self._solve(card, inputs, self._slow if registry.problem(card.problem).slow else self._quick)

    async def verify(self, card: Card, inputs: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
        """Solve as `predict` does, in a thread of the lowest priority."""
        return await self._solve(card, inputs, self._background)

    async def _solve(
        self, card: Card, inputs: Mapping[str, NDArray[np.float32]], worker: Worker
    ) -> dict[str, NDArray[np.float32]]:
        problem, batch = registry.problem(card.problem), inputs[card.inputs[0].name]
        largest = problem.largest or card.grid.maximum ** len(card.grid.axes)
        time: dict[str, Any] = {}
        if problem.trajectories and card.frames is not None:
            time = {"frames": inputs[FRAME].shape[1], "interval": card.frames.step}
        if batch.size * time.get("frames", 1) > largest:
            every = f" in each of {time['frames']} frames" if time else ""
            raise Problem(
                "body-too-large",
                f"{math.prod(batch.shape)} points{every}; the classical solver takes at most {largest} in one call",
            )
        try:
            fields = await worker.run(_solve_each, problem, _samples(card, inputs), card.outputs[0].points, time)
        except (ArithmeticError, ValueError) as error:
            raise Problem("unsolvable", f"the classical solver failed: {error}") from error
        return {card.outputs[0].name: fields}

    async def bounds(
        self, card: Card, inputs: Mapping[str, NDArray[np.float32]], outputs: Mapping[str, NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """Return the error bounds of solutions.

        Args:
            card: The model's card.
            inputs: Batches by input name.
            outputs: The solutions [B, *grid] by output name.

        Returns:
            The bounds [B]; NaN where the problem has none.

        Raises:
            Problem: overloaded: Too many requests wait.
        """
        fields, bound = outputs[card.outputs[0].name], registry.problem(card.problem).bound
        if bound is None:
            return np.full(len(fields), np.nan, np.float32)
        return await self._quick.run(_bound_each, bound, _samples(card, inputs), fields)


def _lower(niceness: int) -> None:
    """Lower the priority of the current thread; Linux has one per thread."""
    if niceness and sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


def _what(card: Card) -> str:
    if card.product is None:
        return f'the problem "{card.problem}"'
    return f'the {"refinement" if card.product.kind == "refined" else "derivative"} "{card.model}"'


def _samples(card: Card, inputs: Mapping[str, NDArray[np.float32]]) -> list[Sample]:
    """Return each sample's first input, and its other inputs and parameters by name."""
    lead, *others = card.names
    return [(field, {name: inputs[name][index] for name in others}) for index, field in enumerate(inputs[lead])]


def _solve_each(
    problem: Classical, samples: list[Sample], points: tuple[int, ...] | None, time: Mapping[str, Any]
) -> NDArray[np.float32]:
    return np.stack([problem.solve(field, points, **others, **time) for field, others in samples]).astype(np.float32)


def _bound_each(
    bound: Callable[..., float], samples: list[Sample], outputs: NDArray[np.float32]
) -> NDArray[np.float32]:
    found = [bound(field, output, **others) for (field, others), output in zip(samples, outputs, strict=True)]
    return np.array(found, np.float32)
