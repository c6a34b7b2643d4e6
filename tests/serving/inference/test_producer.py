"""What becomes of the outputs of a network that fails."""

from __future__ import annotations

import asyncio
from contextlib import closing

import numpy as np

from physics import darcy
from schema.card import Card
from serving.catalogue.catalogue import Catalogue
from serving.classical import ClassicalSolvers
from serving.inputs import Arrays, Prediction
from serving.limits import ANYONE
from serving.observe import Metrics
from serving.predict import Predictor
from serving.quality import Policy
from serving.settings import Settings
from serving.timing import TritonTimes
from serving.triton import Batch, Outputs, Run, Triton
from tests import toy_gauges
from tests.refusals import refused

TRITON = Triton("127.0.0.1:8000", 1)  # never called


class Overflow(Predictor):
    """A network that overflows, and reports a bound of 0 all the same."""

    async def infer(self, card: Card, inputs: Batch, run: Run) -> Outputs:  # noqa: ARG002
        shape = next(iter(inputs.values())).shape
        return {
            card.outputs[0].name: np.full(shape, np.nan, np.float32),
            **{name: np.zeros((shape[0], 1), np.float32) for name in card.quality},
        }


def predictor(classical: ClassicalSolvers, metrics: Metrics, shadow_share: float = 0.0) -> Predictor:
    settings = Settings(shadow_share=shadow_share)
    catalogue = Catalogue(settings, TRITON, metrics.catalogue)
    return Overflow(TRITON, catalogue, classical, TritonTimes(settings), metrics, settings)


async def test_an_output_that_is_not_finite_meets_no_tolerance() -> None:
    fields = np.full((2, 9, 9), 4, np.float32)
    card = Card.model_validate(toy_gauges.card("gauge", "darcy"))
    with closing(ClassicalSolvers()) as classical:
        for policy in (Policy(tolerance=1.0), Policy(outside="solve")):
            wanted = Prediction(card, "", ANYONE, policy)
            outputs = await predictor(classical, Metrics("0")).predict(wanted, Arrays({"coefficient": fields}))
            np.testing.assert_allclose(outputs["solution"], [darcy.solve(field) for field in fields], rtol=1e-5)


async def test_an_output_that_is_not_finite_has_no_true_error() -> None:
    card, metrics = Card.model_validate(toy_gauges.card("gauge", "darcy")), Metrics("0")
    with closing(ClassicalSolvers()) as classical:
        verifying = predictor(classical, metrics, shadow_share=1.0)
        for _ in range(2):
            with refused("non-finite-output"):
                await verifying.predict(Prediction(card, "", ANYONE), Arrays({"coefficient": np.full((9, 9), 4.0)}))
            await asyncio.sleep(0.2)
    assert b'petrov_true_error_sum{model="gauge"} NaN' not in metrics.text()
    assert b"petrov_true_error_count{" not in metrics.text()
