"""What replaces the outputs of a network that fails."""

from __future__ import annotations

import math
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from physics import darcy
from serving.catalogue.card import Card
from serving.catalogue.classical import ClassicalSolvers
from serving.inference.policy import Policy
from serving.inference.producer import ModelInput, Producer, Run
from tests import toy_gauges

if TYPE_CHECKING:
    from serving.inference.producer import Batches, Outputs


class Overflow:
    """A network that overflows, and reports a bound of 0 all the same."""

    async def predict(self, card: Card, inputs: Batches, deadline: float, request_id: str) -> Outputs:
        del deadline, request_id
        shape = next(iter(inputs.values())).shape
        return {
            card.outputs[0].name: np.full(shape, np.nan, np.float32),
            **{name: np.zeros((shape[0], 1), np.float32) for name in card.quality},
        }


async def test_an_output_that_is_not_finite_meets_no_tolerance() -> None:
    fields = np.full((2, 9, 9), 4, np.float32)
    card = Card.model_validate(toy_gauges.card("gauge", "darcy"))
    inputs = ModelInput({"coefficient": fields}, single=False, grid="other")
    with closing(ClassicalSolvers()) as classical:
        for policy in (Policy(tolerance=1.0), Policy(outside="solve")):
            run = Run(card, math.inf, "", policy)
            outputs, quality = await Producer(Overflow(), classical).produce(run, inputs)
            np.testing.assert_allclose(outputs["solution"], [darcy.solve(field) for field in fields], rtol=1e-5)
            assert quality.solved.all()
