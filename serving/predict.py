"""The path of a request, from the bytes of its body to those of its response; every protocol calls it.

    admit     `serving.limits`           counts the request and its bytes until its response has been sent
    decode    `Exchange.read`            bytes to arrays by name, in the protocol's own format
    check     `serving.checks`           arrays against the model's card, as batches
    pay       `Caller.spend`             from the rate of the caller's key, before anything is computed
    run       `Predictor._run`           the model in Triton (`serving.run`), its refinement, the classical solver
    judge     `Policy`, `respond`        what may be sent: error bounds, inputs outside, NaN
    encode    `Exchange.write`           arrays and their quality to bytes

A protocol translates. It finds the card of the version (`catalogue.newest`, `find` or `derivative`), and awaits

    written = await service.predictor.predict(Prediction(card, request_id, caller, policy), exchange)

with a `Prediction` of what the caller wants, and an `Exchange` of the body, which returns arrays by name and is passed
outputs by name and what is known about them.

`serving.codecs.formats.Arrays` is the exchange of arrays that are in memory already. A trajectory is sent frame by
frame by `Predictor.stream`. Large bodies are parsed and encoded in a thread, so that the event loop serves others
meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from serving import checks
from serving.catalogue.card import FRAME
from serving.errors import Problem
from serving.quality import ANY, ERROR_BOUND, NETWORK, REFINED, SOLVE_BOUND, SOLVER, Policy, Quality, split
from serving.run import Rollout

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from serving.catalogue.card import Card
    from serving.catalogue.repository import Version
    from serving.classical import ClassicalSolvers
    from serving.limits import Caller
    from serving.observe import Metrics
    from serving.run import Runner
    from serving.triton import Outputs

    Successor = Callable[[str, float], Awaitable[Version]]

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
Written_co = TypeVar("Written_co", covariant=True)
SOLVER_COST = 8  # of a classical solution, in samples
_LARGE_BYTES = 2**20  # some ten milliseconds of JSON; a thread costs a tenth of one


class Exchange(Protocol[Written_co]):
    """A body in some wire format, and the writer of its response.

    Attributes:
        size: Bytes of the body.
        frames: Frames of a trajectory that the body asks for, known after `read`; None where it does not say.
    """

    @property
    def size(self) -> int: ...

    @property
    def frames(self) -> int | None: ...

    def read(self, names: Sequence[str], max_bytes: int, optional: Collection[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the arrays of these names, each of at most so many bytes as float32; optional ones may be missing."""
        ...

    def write(
        self, model: str, version: int, outputs: Mapping[str, NDArray[np.float32]], quality: Quality
    ) -> Written_co:
        """Return the response; called after `read`. Outputs of a single sample have no batch axis, its quality has."""
        ...


@dataclass(frozen=True)
class Prediction:
    """What is wanted, beside the arrays.

    Attributes:
        card: Of the version to run.
        id: Of the request, for Triton's log.
        caller: Pays once the arrays are checked, whether the rest succeeds or not.
        policy: What the caller wants where an output may not be accurate enough.
        seconds: How long the caller waits.
        successor: Returns the version of a model to run where this one has gone, after some seconds at most; None if
            the caller named the version.
        reference: Whether the classical solver computes the outputs instead of the model.
        deadline: On the clock of the event loop; set on the way.
    """

    card: Card
    id: str
    caller: Caller
    policy: Policy = ANY
    seconds: float = math.inf
    successor: Successor | None = None
    reference: bool = False
    deadline: float = math.inf


class Inputs(NamedTuple):
    """Checked inputs: batches `[B, ...]` by name, whether the request was one sample, and the grid's metrics label.

    `cost` is for how many samples one counts: by its points above the largest declared grid, and its frames.
    """

    arrays: dict[str, NDArray[np.float32]]
    single: bool
    grid: str
    cost: int

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(next(iter(self.arrays.values())))


class Frame(NamedTuple, Generic[Result]):
    """One frame of trajectories: its number, from 1, whether it is the last one, and what the exchange wrote."""

    number: int
    last: bool
    written: Result


class Predictor:
    """Computes responses.

    Args:
        runner: Runs models in Triton.
        classical: The classical solvers.
        refinement: Returns the card of the graph that computes the same with smaller error bounds, if one is served.
        metrics: Records phases and quality.
        max_bytes: The largest size of one input as float32.
        max_rollout_bytes: The largest size of all frames of a streamed trajectory.
        seconds: The longest time that one prediction, or one frame after another, may take.
        shadow_share: Share of predictions that are also solved classically in the background.

    Attributes:
        until: When no further frames are computed, on the clock of the event loop: the service is shutting down.
    """

    def __init__(
        self,
        runner: Runner,
        classical: ClassicalSolvers,
        refinement: Callable[[Card], Card | None],
        metrics: Metrics,
        *,
        max_bytes: int,
        max_rollout_bytes: int,
        seconds: float,
        shadow_share: float,
    ) -> None:
        self._runner, self._classical, self._refinement, self._metrics = runner, classical, refinement, metrics
        self._max_bytes, self._max_rollout_bytes, self._seconds = max_bytes, max_rollout_bytes, seconds
        self._shadow_share = shadow_share
        self._verifying: asyncio.Task[None] | None = None
        self.until = math.inf

    async def predict(self, request: Prediction, exchange: Exchange[Result]) -> Result:
        """Return what the exchange writes.

        Raises:
            Problem: One of its kinds.
        """
        async with self._limited(request.card, min(request.seconds, self._seconds)) as deadline:
            request = replace(request, deadline=deadline)
            try:
                return await self._predict(request, exchange)
            except Problem as problem:
                return await self._predict(await _successor(request, problem), exchange)

    async def _predict(self, request: Prediction, exchange: Exchange[Result]) -> Result:
        card, metrics = request.card, self._metrics
        inputs = await self._parse(request, exchange, self._max_bytes)
        outputs, quality = await self._run(request, inputs)
        metrics.quality(card.model, quality)
        if random.random() < self._shadow_share:  # noqa: S311  a sample
            self._verify(card, inputs, outputs, quality)
        with metrics.phase(card.model, inputs.grid, "encode"):
            size = sum(array.nbytes for array in outputs.values())
            written: Result
            written, quality = await offload(size, respond, request, inputs, exchange, outputs, quality)
        if quality.failed is not None and quality.failed.any():
            metrics.model_failures.labels(card.model, card.version, "non-finite-output").inc()
        return written

    async def _parse(self, request: Prediction, exchange: Exchange[Any], frame_bytes: int) -> Inputs:
        """Return the inputs of a body, decoded, checked against the card and paid for."""
        start, card = time.perf_counter(), request.card
        if request.policy is not ANY:
            request.policy.check(card, solver=self._classical.solves(card))
        inputs = await offload(exchange.size, parse, request, exchange, self._max_bytes, frame_bytes)
        self._metrics.parsed(card.model, inputs.grid, time.perf_counter() - start)
        solved = request.reference or request.policy.bypasses(card)
        request.caller.spend(inputs.samples, inputs.cost * (SOLVER_COST if solved else 1))
        return inputs

    async def _run(self, request: Prediction, inputs: Inputs) -> tuple[Outputs, Quality]:
        """Return outputs that the policy accepts, and their quality.

        The model computes them, then its refinement those whose bounds are too large and those of foreign inputs, then
        the classical solver those that are still not accurate enough.
        """
        card, policy, arrays, single = request.card, request.policy, inputs.arrays, inputs.single
        every = np.ones(inputs.samples, np.bool_)
        by_solver = Quality({}, np.full(inputs.samples, SOLVER, np.int8))
        if request.reference:
            outputs, bounds = await self._classical.solve(card, arrays, "reference")
            return outputs, by_solver.bounded(bounds)
        if policy.bypasses(card):
            return await self._solved(request, inputs, every, {}, by_solver)
        results = await self._runner.infer(card, arrays, request.deadline, request.id)
        outputs, quality = split(results, card.quality, trajectories=card.frames is not None)
        if card.frames is not None:
            quality = quality.estimated(card.estimates(arrays[FRAME].shape[1], policy.after))
        coarse, finer = policy.coarse(card, quality), self._refinement(card)
        if not policy.demands and not coarse.any():
            return outputs, quality
        if coarse.any() and finer is not None:
            request.caller.owe(int(coarse.sum()) * inputs.cost)
            outputs, quality = await self._refined(request, finer, inputs, coarse, outputs, quality)
        solver = self._classical.solves(card)
        unmet = policy.unmet(card, quality, finer, solver=solver, single=single)
        if solver and policy.outside != "refuse":
            unmet |= checks.not_finite(outputs)  # whatever the network says of them
        # An inexact solver continues what the network knows nothing about, too; it is better, and meets no demand.
        foreign = quality.foreign(card) & ~unmet if self._classical.knows(card) else np.zeros_like(unmet)
        if not (unmet | foreign).any():
            return outputs, quality
        request.caller.owe(int((unmet | foreign).sum()) * inputs.cost * SOLVER_COST)
        return await self._solved(request, inputs, unmet | foreign, outputs, quality, foreign)

    async def _refined(
        self,
        request: Prediction,
        finer: Card,
        inputs: Inputs,
        mask: NDArray[np.bool_],
        outputs: Outputs,
        quality: Quality,
    ) -> tuple[Outputs, Quality]:
        """Replace some outputs by those of the refinement, unless it has just gone."""
        some = {name: array[mask] for name, array in inputs.arrays.items()}
        try:
            results = await self._runner.infer(finer, some, request.deadline, request.id)
        except Problem as problem:
            if problem.kind != "model-not-ready":
                raise
            return outputs, quality
        refined, known = split(results, finer.quality, trajectories=finer.frames is not None)
        return _replaced(outputs, mask, refined), quality.continued(mask, REFINED, known.numbers)

    async def _solved(
        self,
        request: Prediction,
        inputs: Inputs,
        mask: NDArray[np.bool_],
        outputs: Outputs,
        quality: Quality,
        foreign: NDArray[np.bool_] | None = None,
    ) -> tuple[Outputs, Quality]:
        """Replace some outputs, or all, by classical solutions.

        They are solved one by one, so that others wait for one only, and the first that misses the tolerance ends it.
        A foreign one that the solver does not accept keeps the output of the network.
        """
        card, mask = request.card, mask.copy()
        solutions: list[Outputs] = []
        bounds: list[NDArray[np.float32]] = []
        for index in np.flatnonzero(mask):
            one = {name: array[index : index + 1] for name, array in inputs.arrays.items()}
            try:
                solution, bound = await self._classical.solve(card, one, "tolerance")
            except Problem as problem:
                if foreign is None or not foreign[index] or problem.kind not in {"unsolvable", "body-too-large"}:
                    raise
                mask[index] = False
                continue
            solutions.append(solution)
            bounds.append(bound)
            known = Quality({}, np.full(1, SOLVER, np.int8)).bounded(bounds[-1])
            request.policy.require(card, known, single=inputs.single, first=int(index))
        if not solutions:
            return outputs, quality
        joined = {name: np.concatenate([each[name] for each in solutions]) for name in solutions[0]}
        found = np.concatenate(bounds)
        if not outputs:
            return joined, quality.bounded(found)
        # Both bounds are distances to the solution that the solver computes; the rest was about the network's output.
        both = dict.fromkeys((ERROR_BOUND, SOLVE_BOUND), found)
        return _replaced(outputs, mask, joined), quality.continued(mask, SOLVER, both)

    def _verify(self, card: Card, inputs: Inputs, outputs: Outputs, quality: Quality) -> None:
        """Verify one sample in the background, one at a time, where it can be solved; no response waits."""
        if (self._verifying is not None and not self._verifying.done()) or not self._classical.solves(card):
            return
        index, name = random.randrange(inputs.samples), card.outputs[0].name  # noqa: S311  a sample
        output = outputs[name][index].astype(np.float64)
        if quality.by[index] != NETWORK or not np.isfinite(output).all():  # a failure is counted as one
            return
        one = {each: array[index : index + 1].copy() for each, array in inputs.arrays.items()}

        async def verify() -> None:
            try:
                solutions, _ = await self._classical.solve(card, one, "shadow")
            except Problem as problem:
                logger.debug("%s is not verified: %s", card.model, problem.detail)
                return
            solution = solutions[name][0].astype(np.float64)
            size = max(float(np.linalg.norm(solution)), np.finfo(float).tiny)
            error = float(np.linalg.norm(output - solution)) / size
            if math.isfinite(error):  # one that is not would make every later sum so
                self._metrics.true_error.labels(card.model).observe(error)

        self._verifying = asyncio.create_task(verify())

    def close(self) -> None:
        """Drop what is being verified."""
        if self._verifying is not None:
            self._verifying.cancel()

    async def stream(self, request: Prediction, exchange: Exchange[Result]) -> AsyncGenerator[Frame[Result]]:
        """Yield the frames of trajectories as they are computed; one call of the model is computed ahead.

        Memory holds two calls of the model, whatever the length: no further call begins before the frames of the one
        before the last have been taken. Every call has the time limit of one prediction.

        Raises:
            Problem: One of its kinds; after the first frame, too.
        """
        async with self._limited(request.card, self._seconds) as deadline:
            request = replace(request, deadline=deadline)
            try:
                trajectory = await self._begin(request, exchange)
            except Problem as problem:
                trajectory = await self._begin(await _successor(request, problem), exchange)
        upcoming: asyncio.Task[None] | None = None
        try:
            while trajectory.rollout.left or trajectory.frames:
                upcoming = asyncio.create_task(self._proceed(trajectory)) if trajectory.rollout.left else None
                frames, trajectory.frames = trajectory.frames, []
                for index, (outputs, quality) in enumerate(frames):
                    async with self._limited(trajectory.request.card, self._seconds):
                        written = await self._written(trajectory, outputs, quality, exchange)
                    yield Frame(trajectory.number, last=upcoming is None and index == len(frames) - 1, written=written)
                if upcoming is not None:
                    await upcoming
        finally:
            if upcoming is not None:
                upcoming.cancel()
                with suppress(asyncio.CancelledError, Problem):
                    await upcoming

    async def _begin(self, request: Prediction, exchange: Exchange[Any]) -> _Trajectory:
        """Return trajectories with the frames of the first call."""
        card, policy = request.card, request.policy
        if card.frames is None:
            raise Problem("invalid-parameter", f'"{card.model}" computes no trajectories: use predict')
        if policy.tolerance is not None or policy.outside == "solve":
            raise Problem("invalid-parameter", "tolerance and outside=solve replace whole trajectories: use predict")
        inputs = await self._parse(request, exchange, self._max_rollout_bytes)
        trajectory = _Trajectory(request, inputs)
        await self._call(trajectory, request.deadline)
        return trajectory

    async def _proceed(self, trajectory: _Trajectory) -> None:
        """Compute the frames of the next call of the model."""
        if asyncio.get_running_loop().time() > self.until:
            detail = f"the service is shutting down; {trajectory.computed} frames are computed"
            raise Problem("unavailable", detail)
        async with self._limited(trajectory.request.card, self._seconds) as deadline:
            await self._call(trajectory, deadline)

    async def _call(self, trajectory: _Trajectory, deadline: float) -> None:
        """Compute the frames of one call; refuse to go on from a state outside, where the caller says so."""
        request, inputs, rollout = trajectory.request, trajectory.inputs, trajectory.rollout
        card, policy, start = request.card, request.policy, rollout.start
        results = await rollout.proceed(self._runner, deadline, request.id)
        outputs, quality = split(results, card.quality, trajectories=True)
        count = int(start[FRAME].shape[1])
        quality = quality.estimated(card.estimates(count, trajectory.computed))
        policy.unmet(card, quality, solver=False, single=inputs.single)
        foreign = quality.foreign(card)
        if foreign.any() and self._classical.knows(card):
            frames = int(inputs.arrays[FRAME].shape[1])
            request.caller.owe(math.ceil(int(foreign.sum()) * inputs.cost * SOLVER_COST * count / frames))
            outputs, quality = await self._solved(
                request, inputs._replace(arrays=start), foreign, outputs, quality, foreign
            )
            rollout.follow(start, outputs)
        trajectory.computed += count
        trajectory.frames = [
            ({name: array[:, index] for name, array in outputs.items()}, quality.frame(index)) for index in range(count)
        ]

    async def _written(
        self, trajectory: _Trajectory, outputs: Outputs, quality: Quality, exchange: Exchange[Result]
    ) -> Result:
        """Return the next frame as the exchange writes it; what follows from a state that is not finite is NaN."""
        request, inputs, metrics = trajectory.request, trajectory.inputs, self._metrics
        model = request.card.model
        outputs = {name: array.copy() for name, array in outputs.items()}
        for array in outputs.values():
            array[trajectory.failed] = np.nan
        quality = replace(quality, left=trajectory.outside)
        if trajectory.number == request.policy.after:
            metrics.quality(model, quality)
        elif quality.outside is not None:
            metrics.outside.labels(model).inc(int((quality.outside & ~trajectory.outside).sum()))
        if quality.outside is not None:
            trajectory.outside = quality.outside
        size = sum(array.nbytes for array in outputs.values())
        written: Result
        written, quality = await offload(size, respond, request, inputs, exchange, outputs, quality)
        if quality.failed is not None:
            trajectory.failed = quality.failed
        trajectory.number += 1
        metrics.frames.labels(model).inc(inputs.samples)
        return written

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


class _Trajectory:
    """The trajectories of one request.

    Attributes:
        rollout: How far they have been computed.
        frames: Frames that are computed and not sent: views of outputs `[B, ...]` by name, and their quality.
        computed: Number of the last of them.
        number: Number of the last frame that was sent.
        outside: `[B]`, whether each trajectory has been outside.
        failed: `[B]`, whether each has had a state that is not finite.
    """

    def __init__(self, request: Prediction, inputs: Inputs) -> None:
        self.request, self.inputs, self.rollout = request, inputs, Rollout(request.card, inputs.arrays)
        self.frames: list[tuple[Outputs, Quality]] = []
        self.computed = self.number = request.policy.after
        self.outside: NDArray[np.bool_] = np.zeros(inputs.samples, np.bool_)
        self.failed: NDArray[np.bool_] = np.zeros(inputs.samples, np.bool_)


async def _successor(request: Prediction, problem: Problem) -> Prediction:
    """Return the request for the version that is served where its own has gone; raise any other problem."""
    if problem.kind != "model-not-ready" or request.successor is None:
        raise problem
    left = request.deadline - asyncio.get_running_loop().time()
    version = await request.successor(request.card.model, left / 2)  # the rest of the time is the work's
    return replace(request, card=version.card)


def parse(request: Prediction, exchange: Exchange[Any], max_bytes: int, frame_bytes: int) -> Inputs:
    """Decode a body and check it against the card.

    Args:
        request: What is wanted.
        exchange: The body.
        max_bytes: The largest size of one input as float32.
        frame_bytes: The largest size of all frames of an output as float32.
    """
    card = request.card
    arrays, single = checks.batch(exchange.read(card.names, max_bytes, card.optional), card)
    grid = card.grid_of(arrays)
    cost = math.ceil(math.prod(grid) / card.grid.most_points) or 1
    if card.frames is not None or exchange.frames is not None:
        policy = request.policy.asking(exchange.frames).asking(checks.sent_frames(arrays, card))
        if (frames := policy.count(card)) is not None:
            arrays[FRAME] = checks.frames(arrays, frames, card, frame_bytes)
            cost *= frames
    return Inputs(arrays, single, checks.grid_label(grid, card), cost)


def respond(
    request: Prediction, inputs: Inputs, exchange: Exchange[Result], outputs: Outputs, quality: Quality
) -> tuple[Result, Quality]:
    """Return what the exchange writes: of all samples or, where the caller takes them alone, of those that are finite.

    Raises:
        Problem: non-finite-output: The model's output for a sample is not finite, or for all of them.
    """
    failed, partial, card = checks.not_finite(outputs), request.policy.partial, request.card
    if failed.any():
        if failed.all() or not partial:
            raise checks.output_fault(outputs, failed, card, single=inputs.single)
        outputs = {name: array.copy() for name, array in outputs.items()}  # Triton's arrays are read-only
        for array in outputs.values():
            array[failed] = np.nan
    if partial:
        quality = quality.fail(failed)
    shown = {name: array[0] for name, array in outputs.items()} if inputs.single else outputs
    return exchange.write(card.model, card.version, shown, quality), quality


async def offload(size: int, function: Callable[..., Result], *args: Any) -> Result:
    """Call a function on data of that many bytes: in a worker thread if they are large, else at once."""
    return await asyncio.to_thread(function, *args) if size > _LARGE_BYTES else function(*args)


def _replaced(outputs: Outputs, mask: NDArray[np.bool_], others: Mapping[str, NDArray[np.float32]]) -> Outputs:
    """Return outputs `[B, ...]`, which may be read-only, with those of some samples replaced."""
    found = {name: array.copy() for name, array in outputs.items()}
    for name, array in found.items():
        array[mask] = others[name]
    return found
