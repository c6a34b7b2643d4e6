"""The path of a request, from the bytes of its body to those of its response; every protocol calls it.

    admit     `serving.limits`           counts the request and its bytes until its response has been sent
    decode    `Exchange.read`            bytes to arrays by name, in the protocol's own format
    check     `serving.checks`           arrays against the model's card, as batches
    pay       `Caller.spend`             from the rate of the caller's key, before anything is computed: these three in
                                         `serving.inputs`
    run       `Predictor.infer`          the model in Triton, trajectories by `serving.frames`
    judge     `Policy`, `_improve`       what has to be refined or solved classically, or refused
    encode    `respond`                  arrays and their quality to bytes; NaN is refused

A protocol translates. It finds the card of the version (`catalogue.newest`, `find` or `derivative`), and awaits

    written = await service.predictor.predict(Prediction(card, request_id, caller, policy), exchange)

with a `Prediction` of what the caller wants, and an `Exchange` of the body, which returns arrays by name and is passed
outputs by name and what is known about them. `serving.rollout` sends a trajectory frame by frame. Large bodies are
parsed and encoded in a thread, so that the event loop serves others meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schema.card import FRAME, Card
from serving import checks, padding, system
from serving.catalogue.catalogue import Catalogue
from serving.classical import ClassicalSolvers
from serving.errors import Problem
from serving.frames import Rollout
from serving.inputs import SOLVER_COST, Exchange, InputReader, Inputs, Prediction, Result, offload, output_bytes
from serving.observe import Metrics
from serving.quality import ERROR_BOUND, REFINED, SOLVE_BOUND, SOLVER, Quality, Verdict, split
from serving.settings import Settings
from serving.timing import TritonTimes
from serving.triton import RUN_BYTES, RUNS_IN_SHARED_MEMORY, Batch, Outputs, Run, Triton

logger = logging.getLogger(__name__)


class Predictor:
    """Computes responses.

    Attributes:
        reader: Reads the inputs of requests.
        until: When no further frames are computed, on the clock of the event loop: the service is shutting down.
    """

    def __init__(
        self,
        triton: Triton,
        catalogue: Catalogue,
        classical: ClassicalSolvers,
        times: TritonTimes,
        metrics: Metrics,
        settings: Settings,
    ) -> None:
        self._triton, self._catalogue, self._times = triton, catalogue, times
        self.classical, self.metrics, self.settings = classical, metrics, settings
        memory = system.shared_memory() if settings.embedded else None
        self._run_bytes = RUN_BYTES if memory is None else min(RUN_BYTES, memory[0] // RUNS_IN_SHARED_MEMORY)
        self.reader = InputReader(classical, metrics, settings, self._run_bytes)
        self.until = math.inf

    async def predict(self, request: Prediction, exchange: Exchange[Result]) -> Result:
        """Return what the exchange writes, or raise a `Problem`."""
        async with self.limited(request.card, begun=request.begun) as limit:
            request = replace(request, limit=limit)
            while True:
                try:
                    inputs = await self.reader.read(request, exchange, self.settings.max_body_bytes)
                    outputs, quality = await self._run(request, inputs)
                    break
                except Problem as problem:
                    request = await self.successor(request, problem)
            card, metrics = request.card, self.metrics
            metrics.quality(card, quality)
            if random.random() < self.settings.shadow_share:  # noqa: S311  a sample
                self.classical.verify(card, inputs.arrays, outputs, quality, metrics.true_error)
            with metrics.phase(card.model, inputs.grid, "encode"):
                size = sum(array.nbytes for array in outputs.values())
                written: Result
                written, quality = await offload(size, respond, request, inputs, exchange, outputs, quality)
            if quality.failed is not None and quality.failed.any():
                metrics.model_failures.labels(card.model, card.version, "non-finite-output").inc()
            if request.ticket is not None:  # the response is counted while it is sent
                request.ticket.settle(exchange.size)
            return written

    async def _run(self, request: Prediction, inputs: Inputs) -> tuple[Outputs, Quality]:
        """Return outputs that the policy accepts, and their quality."""
        card, policy, arrays, run = request.card, request.policy, inputs.arrays, request.run
        if request.reference:
            outputs, bounds = await self.classical.solve(card, arrays, "reference")
            quality = Quality.classical(bounds)
            policy.require(card, quality, single=inputs.single)
            return outputs, quality
        if policy.bypasses(card):
            return await self.solved(request, inputs, np.ones(inputs.samples, np.bool_))
        if card.frames is not None and card.product is None:
            async with self._catalogue.loaded(card, run):  # between two calls, too
                results = await Rollout(card, arrays).finish(self.infer, replace(run, held=True))
        else:  # a product of a trajectory is one call: its backward pass needs all frames
            results = await self.infer(card, arrays, run)
        outputs, quality = split(results, card.quality, trajectories=card.frames is not None)
        if card.frames is not None:
            quality = quality.estimated(card.estimates, arrays[FRAME].shape[1], policy.after)
        verdict = policy.judge(card, quality)
        if policy.tolerance is None and policy.outside == "answer" and not np.any(verdict):
            return outputs, quality
        return await self._improve(request, inputs, outputs, quality, verdict)

    def held(self, card: Card) -> AbstractContextManager[None]:
        """Return a context in which the model stays loaded between two calls, which say so (`held`)."""
        return self._catalogue.held(card)

    async def infer(self, card: Card, inputs: Batch, run: Run) -> Outputs:
        """Return outputs `[B, ...]` for inputs `[B, ...]` by name, in calls of at most one batch of the model.

        The caller waits until the deadline of the run, and cancels what is not done. Triton queues
        calls and merges those of one shape. A request has one call more in flight than the model has instances: it
        keeps all of them busy, and another request waits for few of its calls.
        """
        async with self._catalogue.loaded(card, run):
            count = len(inputs[card.names[0]])
            size = min(card.limits.batch, self._run_bytes // sum(array[:1].nbytes for array in inputs.values()))
            if count > 1:  # a product of a trajectory returns many frames for one
                size = min(size, self._triton.reply_bytes * count // output_bytes(inputs, card, None))
            if count <= (size := size or 1):
                return await self._call(card, inputs, run)
            outputs: dict[int, Outputs] = {}
            starts = iter(range(0, count, size))

            async def work() -> None:
                for start in starts:
                    piece = {name: array[start : start + size] for name, array in inputs.items()}
                    outputs[start] = await self._call(card, piece, run)

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(1 + await self._triton.instances(card.model, card.version)):
                        group.create_task(work())
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None

            return await _joined([outputs[each] for each in sorted(outputs)])

    async def _call(self, card: Card, inputs: Batch, run: Run) -> Outputs:
        """Run a model once; again where another gateway has unloaded it in between, until the deadline."""
        while True:
            try:
                return await self._attempt(card, inputs, run)
            except Problem as problem:
                if problem.kind != "model-not-ready" or not await self._catalogue.returns(card, run):
                    raise

    async def _attempt(self, card: Card, inputs: Batch, run: Run) -> Outputs:
        lead, metrics = inputs[card.names[0]], self.metrics
        size = sum(array.nbytes for array in inputs.values())
        sent = await offload(size, padding.padded, inputs, card) if card.padded else inputs
        grid = checks.grid_label(card.grid_of(inputs), card)
        try:
            with metrics.phase(card.model, grid, "triton") as trace:
                outputs = await self._triton.infer(card.model, card.version, sent, replace(run, trace=trace))
        except Problem as problem:
            if problem.kind == "triton-unavailable":
                raise  # it may be this call alone; the next look of the catalogue says whether Triton is lost
            if problem.kind == "model-not-ready":
                self._catalogue.withdraw(card)
            elif problem.kind == "shared-memory-full":
                self._catalogue.exhaust(card)
            elif problem.kind == "model-failed":
                self._catalogue.doubt(card)
            notes = "\n".join(getattr(problem, "__notes__", ()))
            logger.warning("%s version %d id=%s: %s %s", card.model, card.version, run.id, problem.detail, notes)
            raise
        self._times.spend(run.id)
        # Triton sends no tensor [batch].
        numbers = {tensor.name for tensor in card.outputs if tensor.axes == ("batch",)}
        outputs = {name: each.reshape(-1) if name in numbers else each for name, each in outputs.items()}
        if sent is not inputs:  # padding has no outputs
            axis, points = card.grid.axes[0], card.grid_of(inputs)[0]
            on_points = {tensor.name: tensor.axes.index(axis) for tensor in card.outputs if axis in tensor.axes}
            outputs = {
                name: each[(slice(None),) * on_points[name] + (slice(points),)] if name in on_points else each
                for name, each in outputs.items()
            }
        metrics.batch_fields.labels(card.model).observe(len(lead))
        metrics.fields.labels(card.model, grid).inc(len(lead))
        return outputs

    async def _improve(
        self, request: Prediction, inputs: Inputs, outputs: Outputs, quality: Quality, verdict: Verdict
    ) -> tuple[Outputs, Quality]:
        """Replace what is not good enough by outputs of the refinement, and what is left by classical solutions."""
        card, policy, single = request.card, request.policy, inputs.single
        solver, finer = self.classical.solves(card), self._catalogue.refinement(card)
        policy.refuse_outside(card, quality, verdict, solver=solver, single=single)
        coarse = (verdict.loose | verdict.out_of_distribution) & ~verdict.outside
        if coarse.any() and finer is not None:
            outputs, quality = await self._refined(request, inputs, outputs, quality, coarse, finer)
            verdict = policy.judge(card, quality, finer)
        unmet, unusual = verdict.outside, verdict.out_of_distribution
        if solver:
            unmet = unmet | verdict.loose
            if policy.outside != "refuse":
                size = sum(array.nbytes for array in outputs.values())
                unmet = unmet | await offload(size, checks.not_finite, outputs)  # whatever the network says of them
        else:
            policy.require(card, quality, single=single)
        # An inexact solver continues what the network knows nothing about, too; it is better, and meets no demand.
        unusual = unusual & ~unmet if self.classical.knows(card) else np.zeros_like(unmet)
        if not (unmet | unusual).any():
            return outputs, quality
        request.caller.owe(int((unmet | unusual).sum()) * inputs.cost * SOLVER_COST)
        _hold(request, unmet | unusual, outputs)
        return await self.solved(request, inputs, unmet | unusual, (outputs, quality), unusual)

    async def _refined(
        self,
        request: Prediction,
        inputs: Inputs,
        outputs: Outputs,
        quality: Quality,
        mask: NDArray[np.bool_],
        finer: Card,
    ) -> tuple[Outputs, Quality]:
        """Return outputs of which some samples are those of the refinement, unless that has just gone."""
        arrays = inputs.arrays
        request.caller.owe(int(mask.sum()) * inputs.cost)
        _hold(request, mask, arrays, outputs)
        size = sum(array.nbytes for array in arrays.values())
        some = await offload(size, lambda: {name: _chosen(array, mask) for name, array in arrays.items()})
        try:
            results = await self.infer(finer, some, request.run)
        except Problem as problem:
            if problem.kind != "model-not-ready":
                raise
            return outputs, quality
        refined, known = split(results, finer.quality, trajectories=finer.frames is not None)
        return await _replaced(outputs, mask, refined), quality.continued(mask, REFINED, known.numbers)

    async def solved(
        self,
        request: Prediction,
        inputs: Inputs,
        mask: NDArray[np.bool_],
        found: tuple[Outputs, Quality] | None = None,
        unusual: NDArray[np.bool_] | None = None,
    ) -> tuple[Outputs, Quality]:
        """Return classical solutions of all samples or, where outputs have been found, these with some replaced.

        They are solved one by one, so that others wait for one only, and the first that misses the tolerance ends it.
        An unusual one that the solver does not accept keeps the output of the network.
        """
        card, mask = request.card, mask.copy()
        solutions: list[Outputs] = []
        bounds: list[NDArray[np.float32]] = []
        for index in np.flatnonzero(mask):
            one = {name: array[index : index + 1] for name, array in inputs.arrays.items()}
            try:
                solution, bound = await self.classical.solve(card, one, "tolerance")
            except Problem as problem:
                if unusual is None or not unusual[index] or problem.kind not in {"unsolvable", "body-too-large"}:
                    raise
                mask[index] = False
                continue
            solutions.append(solution)
            bounds.append(bound)
            request.policy.require(card, Quality.classical(bound), single=inputs.single, first=int(index))
        if found is not None and not solutions:
            return found
        joined = await _joined(solutions)
        known = np.concatenate(bounds)
        if found is None:
            return joined, Quality.classical(known)
        # Both bounds are distances to the solution that the solver computes; the rest was about the network's output.
        both = dict.fromkeys((ERROR_BOUND, SOLVE_BOUND), known)
        return await _replaced(found[0], mask, joined), found[1].continued(mask, SOLVER, both)

    @asynccontextmanager
    async def limited(
        self, card: Card, end: float = math.inf, begun: float | None = None
    ) -> AsyncIterator[asyncio.Timeout]:
        """Return a context that ends with an error after `request_seconds`, or at an end before; it counts failures.

        What it yields may be rescheduled. The seconds count from the time that it has `begun`, or from now on.
        """
        start = asyncio.get_running_loop().time() if begun is None else begun
        limit = asyncio.timeout_at(min(start + self.settings.request_seconds, end))
        try:
            async with limit:
                yield limit
        except TimeoutError as error:
            seconds = (limit.when() or start) - start
            raise Problem("deadline-exceeded", f"no response within {seconds:.3g} s") from error
        except Problem as error:
            if error.status == 502:
                self.metrics.model_failures.labels(card.model, card.version, error.kind).inc()
            raise

    async def successor(self, request: Prediction, problem: Problem) -> Prediction:
        """Return the request for the version that is served where its own has just gone; else raise the problem."""
        if problem.kind != "model-not-ready" or not request.latest:
            raise problem
        left = request.deadline - asyncio.get_running_loop().time()  # half of it is the work's
        card = await self._catalogue.newest(request.card.model, seconds=left / 2)
        return replace(request, card=card, latest=False, paid=True)

    def check(self, card: Card) -> None:
        """Raise the problem (404) of a version that is not served although its model is, or whose model has gone."""
        try:
            self._catalogue.find(card.model, card.version)
        except Problem as problem:
            if problem.status != 503:
                raise


def respond(
    request: Prediction, inputs: Inputs, exchange: Exchange[Result], outputs: Outputs, quality: Quality
) -> tuple[Result, Quality]:
    """Return what the exchange writes: of all samples or, where the caller takes them alone, of those that are finite.

    An output that is not finite is the model's failure (`non-finite-output`), of one sample or of all of them.
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
    shown = {name: np.asarray(array[0]) for name, array in outputs.items()} if inputs.single else outputs
    return exchange.write(card, shown, quality), quality


def _chosen(array: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[Any]:
    """Return some samples of an array; a view where all of them are one."""
    return array[mask] if array.strides[0] else array[: int(mask.sum())]


def _hold(request: Prediction, mask: NDArray[np.bool_], *batches: Batch) -> None:
    """Count the memory of some samples of arrays once more, before they are copied or computed anew."""
    if request.ticket is not None:
        size = sum(array.nbytes for batch in batches for array in batch.values() if array.strides[0])
        request.ticket.hold(size * int(mask.sum()) // len(mask))


async def _joined(parts: Sequence[Outputs]) -> Outputs:
    """Return the outputs of samples in parts as those of all."""

    def join() -> Outputs:
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    return await offload(sum(array.nbytes for part in parts for array in part.values()), join)


async def _replaced(outputs: Outputs, mask: NDArray[np.bool_], others: Mapping[str, NDArray[np.float32]]) -> Outputs:
    """Return outputs `[B, ...]`, which may be read-only, with those of some samples replaced."""

    def replaced() -> Outputs:
        found = {name: array.copy() for name, array in outputs.items()}
        for name, array in found.items():
            array[mask] = others[name]
        return found

    return await offload(sum(array.nbytes for array in outputs.values()), replaced)
