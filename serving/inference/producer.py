"""Compute the outputs of a request: by the model and, where the policy demands it, by its refinement or the solver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from serving.catalogue.card import FRAME
from serving.errors import Problem
from serving.inference import checks
from serving.inference.policy import Case
from serving.quality import Quality, split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from serving.catalogue.card import Card
    from serving.inference.policy import Policy

    Batches = Mapping[str, NDArray[np.float32]]
    Outputs = dict[str, NDArray[np.float32]]


class Solver(Protocol):
    """What turns inputs into outputs: the model in Triton, or the classical solver."""

    async def predict(self, card: Card, inputs: Batches, deadline: float, request_id: str) -> Outputs:
        """Return outputs `[B, ...]` by name, in the order of the inputs; `deadline` is on the event loop's clock."""
        ...


class Fallback(Solver, Protocol):
    """The classical solvers, which solve where a network's output is not accurate enough."""

    def solves(self, card: Card) -> bool:
        """Return whether there is a solver that solves the model's problem to rounding."""
        ...

    async def verify(self, card: Card, inputs: Batches) -> Outputs:
        """Return outputs as `predict` does, at the lowest priority."""
        ...

    async def bounds(self, card: Card, inputs: Batches, outputs: Batches) -> NDArray[np.float32]:
        """Return the error bounds `[B]` of its solutions, NaN where the problem has none."""
        ...


@dataclass(frozen=True)
class ModelInput:
    """The checked inputs of a request.

    Attributes:
        arrays: Batches `[B, ...]` by name.
        single: Whether the request was one sample, without a batch axis.
        grid: Its grid as a metrics label.
    """

    arrays: dict[str, NDArray[np.float32]]
    single: bool
    grid: str

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(next(iter(self.arrays.values())))


@dataclass(frozen=True)
class Run:
    """What one prediction has to do.

    Attributes:
        card: Of the version to run.
        deadline: On the clock of the event loop.
        request_id: For Triton's log.
        policy: What the caller wants where an output may not be accurate enough.
    """

    card: Card
    deadline: float
    request_id: str
    policy: Policy


def replaced(outputs: Outputs, mask: NDArray[np.bool_], others: Batches) -> Outputs:
    """Return outputs `[B, ...]` with those of some samples replaced.

    Args:
        outputs: By name; Triton's arrays are read-only.
        mask: `[B]`, which samples.
        others: The outputs of these samples.
    """
    found = {name: array.copy() for name, array in outputs.items()}
    for name, array in found.items():
        array[mask] = others[name]
    return found


class Producer:
    """Computes outputs and what is known about them.

    Args:
        solver: Computes the outputs.
        classical: Computes those that are not accurate enough; `solver` itself for reference solutions.
        refinement: Returns the card of the graph that computes the same with smaller error bounds, if one is served.
    """

    def __init__(
        self, solver: Solver, classical: Fallback, refinement: Callable[[Card], Card | None] | None = None
    ) -> None:
        self._solver = solver
        self._classical = classical
        self._refinement = refinement

    def check(self, run: Run) -> None:
        """Refuse a policy that the model cannot meet, before anything is computed.

        Raises:
            Problem: One of its kinds.
        """
        run.policy.check(Case(run.card, self._classical.solves(run.card)))

    async def produce(self, run: Run, inputs: ModelInput) -> tuple[Outputs, Quality]:
        """Return outputs that the policy accepts, and their quality.

        Args:
            run: What has to be done.
            inputs: The checked inputs.

        Raises:
            Problem: One of its kinds.
        """
        if self._solver is self._classical:
            outputs = await self._classical.predict(run.card, inputs.arrays, run.deadline, run.request_id)
            bounds = await self._classical.bounds(run.card, inputs.arrays, outputs)
            return outputs, Quality({}, np.ones(inputs.count, np.bool_)).bounded(bounds)
        if run.policy.bypasses(run.card):
            return await self._only_solved(run, inputs)
        results = await self._solver.predict(run.card, inputs.arrays, run.deadline, run.request_id)
        outputs, quality = split(results, run.card.quality, trajectories=run.card.frames is not None)
        if run.card.frames is not None:
            quality = quality.estimated(run.card.estimates(inputs.arrays[FRAME].shape[1], run.policy.span.after))
        if not run.policy.demands:
            return outputs, quality
        return await self._accepted(run, inputs, *await self._refined(run, inputs, outputs, quality))

    async def _refined(
        self, run: Run, inputs: ModelInput, outputs: Outputs, quality: Quality
    ) -> tuple[Outputs, Quality]:
        """Replace outputs whose error bounds are too large by those of the model's refinement, if it has one."""
        coarse, card = run.policy.coarse(quality.worst), self._refinement(run.card) if self._refinement else None
        if card is None or not coarse.any():
            return outputs, quality
        some = {name: array[coarse] for name, array in inputs.arrays.items()}
        try:
            results = await self._solver.predict(card, some, run.deadline, run.request_id)
        except Problem as problem:
            if problem.kind != "model-not-ready":  # it has just gone
                raise
            return outputs, quality
        refined, known = split(results, run.card.quality, trajectories=run.card.frames is not None)
        return replaced(outputs, coarse, refined), quality.refine(coarse, known)

    async def _accepted(
        self, run: Run, inputs: ModelInput, outputs: Outputs, quality: Quality
    ) -> tuple[Outputs, Quality]:
        """Replace the network's outputs by classical solutions where the policy demands it."""
        case = self._case(run, inputs)
        unmet = run.policy.unmet(case, quality)
        if case.solver and run.policy.solves:
            unmet |= checks.not_finite(outputs)  # whatever the network says of them
        if not unmet.any():
            return outputs, quality
        solutions, bounds = await self._solve(run, inputs, unmet)
        quality = quality.solve(unmet, bounds)
        run.policy.check_solutions(case, quality)
        return replaced(outputs, unmet, solutions), quality

    async def _only_solved(self, run: Run, inputs: ModelInput) -> tuple[Outputs, Quality]:
        every = np.ones(inputs.count, np.bool_)
        solutions, bounds = await self._solve(run, inputs, every)
        quality = Quality({}, every).bounded(bounds)
        run.policy.check_solutions(self._case(run, inputs), quality)
        return solutions, quality

    async def _solve(
        self, run: Run, inputs: ModelInput, mask: NDArray[np.bool_]
    ) -> tuple[Outputs, NDArray[np.float32]]:
        """Return classical solutions of some samples and their bounds: one by one, so that others wait for one only."""
        outputs: list[Outputs] = []
        bounds: list[NDArray[np.float32]] = []
        for index in np.flatnonzero(mask):
            one = {name: array[index : index + 1] for name, array in inputs.arrays.items()}
            outputs.append(await self._classical.predict(run.card, one, run.deadline, run.request_id))
            bounds.append(await self._classical.bounds(run.card, one, outputs[-1]))
        return {name: np.concatenate([each[name] for each in outputs]) for name in outputs[0]}, np.concatenate(bounds)

    def _case(self, run: Run, inputs: ModelInput) -> Case:
        return Case(run.card, self._classical.solves(run.card), inputs.single)
