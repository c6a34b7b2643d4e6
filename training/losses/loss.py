"""What a loss is: a function of predictions and a batch, found by the name that a recipe gives it.

A package of yours adds one by an entry point of the group `petrov.losses` whose object is a `Loss`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """Some samples in physical units, as a training step and a loss see them.

    Attributes:
        inputs: The arguments of the network in their order: fields `[batch, (component), *grid]`, parameters `[batch]`,
            states of trajectories with an axis of their history where that is more than one frame; tokens.
        outputs: What is to be predicted: fields `[batch, (component), *grid]` on the problem's output grid, of
            trajectories `[batch, frame, (component), *grid]`; labels.
        gradients: The outputs' gradients if the loss needs them.
        stored: The outputs as they were read, before their means over blocks, for losses of operators.
        noise: The inputs' noise where they have any: the root mean square over the points of its deviation, `[batch]`.
        weight: The weight of the gradient in the energy norm, where the problem has one.
    """

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    gradients: Tensor | None = None
    stored: Tensor | None = None
    noise: Tensor | None = None
    weight: Tensor | None = None


@dataclass(frozen=True)
class Loss:
    """A loss.

    Attributes:
        name: Its name in recipes, as in `loss = "relative"`.
        compute: Returns the loss, a number, of predictions in the form of `batch.outputs`, of the batch, and of the
            recipe's section `fit`, whose keys are the settings of the loss.
        axes: The most axes of a grid that it is defined for.
        gradients: Returns whether it compares with stored gradients under the settings of `fit`.
    """

    name: str
    compute: Callable[[Sequence[Tensor], Batch, Any], Tensor]
    axes: int = 3
    gradients: Callable[[Any], bool] = lambda fit: False  # noqa: ARG005 -- the settings do not matter
