"""What a loss is: a function of predictions and a batch, found by the name that a recipe gives it.

A package of yours adds one by an entry point of the group `petrov.losses` whose object is a `Loss`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """Some samples in physical units, as a training step and a loss see them."""

    # The arguments of the network in their order: fields `[batch, (component), *grid]`, parameters `[batch]`, states of
    # trajectories with an axis of their history where that is more than one frame; tokens.
    inputs: Sequence[Tensor]
    # What is to be predicted: fields `[batch, (component), *grid]` on the problem's output grid, of trajectories
    # `[batch, frame, (component), *grid]`; labels.
    outputs: Sequence[Tensor]
    gradients: Tensor | None = None  # the outputs' gradients if the loss needs them
    # The outputs as they were read, before their means over blocks, for losses of operators.
    stored: Tensor | None = None
    # The inputs' noise where they have any: the root mean square over the points of its deviation, `[batch]`.
    noise: Tensor | None = None
    weight: Tensor | None = None  # the weight of the gradient in the energy norm, where the problem has one


@dataclass(frozen=True)
class Loss:
    """A loss; `gradients` returns whether it compares with stored gradients under the settings of `fit`."""

    name: str  # its name in recipes, as in `loss = "relative"`
    # Returns the loss, a number, of predictions in the form of `batch.outputs`, of the batch, and of the recipe's
    # section `fit`, whose keys are the settings of the loss.
    compute: Callable[[Sequence[Tensor], Batch, Any], Tensor]
    axes: int = 3  # the most axes of a grid that it is defined for
    gradients: Callable[[Any], bool] = lambda fit: False  # noqa: ARG005 -- the settings do not matter
