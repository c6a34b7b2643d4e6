"""A served model as the forward model of a posterior, called from the thread of a job."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from serving.codecs.arrays import Arrays
from serving.errors import Problem
from serving.predict import Prediction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from physics.sensing import Sensing
    from serving.catalogue.card import Card
    from serving.inversion.job import Job
    from serving.limits import Caller
    from serving.predict import Predictor

    Fields = NDArray[np.float64]


@dataclass(frozen=True)
class Cards:
    """A model and its derivatives, all of one version."""

    model: Card
    vjp: Card
    jvp: Card


@dataclass(frozen=True, eq=False)
class ServedModel:
    """The `Forward` of `serving.inversion.posterior` that a client of the service would have.

    Attributes:
        predictor: Runs the model, in batches with the predictions of others.
        cards: The model.
        sensing: Its unknown input and its measured output.
        job: The job that it runs for.
        caller: Pays for the samples.
    """

    predictor: Predictor
    cards: Cards
    sensing: Sensing
    job: Job
    caller: Caller

    def solve(self, inputs: Fields) -> Fields:
        """Return the outputs of inputs, `[batch, rows, columns]`."""
        [output] = self._run(self.cards.model, {self.sensing.unknown: inputs}, self.sensing.measured)
        return output

    def pull(self, inputs: Fields, cotangents: Fields) -> tuple[Fields, Fields]:
        """Return the outputs, and the gradients of the inner products of outputs and cotangents."""
        unknown, measured = self.sensing.unknown, self.sensing.measured
        arrays = {unknown: inputs, f"cotangents.{measured}": cotangents}
        output, gradients = self._run(self.cards.vjp, arrays, measured, f"gradients.{unknown}")
        return output, gradients

    def push(self, inputs: Fields, tangents: Fields) -> tuple[Fields, Fields]:
        """Return the outputs, and their derivatives along the tangents."""
        unknown, measured = self.sensing.unknown, self.sensing.measured
        arrays = {unknown: inputs, f"tangents.{unknown}": tangents}
        output, derivatives = self._run(self.cards.jvp, arrays, measured, f"tangents.{measured}")
        return output, derivatives

    def _run(self, card: Card, arrays: Mapping[str, Fields], *names: str) -> list[Fields]:
        self.job.check()
        sent = Arrays({name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()})
        outputs: Mapping[str, NDArray[Any]] = self.job.call(self._predict(card, sent))
        return [np.asarray(outputs[name], dtype=np.float64) for name in names]

    async def _predict(self, card: Card, arrays: Arrays) -> Mapping[str, NDArray[np.float32]]:
        """Predict; wait where the service is busy or the key is over its rate, as the job's time limit allows."""
        while True:
            try:
                return await self.predictor.predict(Prediction(card, self.job.id, self.caller), arrays)
            except Problem as problem:
                if problem.status not in {429, 503}:
                    raise
                await asyncio.sleep(float(problem.headers["Retry-After"]))
