r"""What a loss is, and the one that most recipes have: relative errors per sample.

A loss is a function of predictions and a batch, found by the name that a recipe gives it. A package of yours adds one
by an entry point of the group `petrov.losses` whose object is a `Loss`.

Both norms are sums over the grid relative to the true field, so units cancel:

.. math::
    e_{L2} = \frac{\|p - u\|}{\|u\|}, \qquad e_{D} = \frac{\|D (p - u)\|}{\|D u\|}

D u holds the differences of neighbours along every axis, without the pair across the end of a periodic axis (Cao,
NeurIPS 2021, arXiv 2105.14995, section 5). They are not divided by the spacing: where all axes have the same and none
is periodic, e_D is the H1 error of `training.metrics`, elsewhere it is not. `fit.h1` weighs e_D in every recipe.

The error of a number is in units of its deviation over the training samples: no unit and no offset changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from training.metrics.fields import norm, relative_l2, root, unit
from training.nn.grids import Features

PerSample = Float[Tensor, " batch"]


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
    # What every point counts in norms, `[batch, point]`, 0 at padding; None where all count alike. Predictions and
    # outputs that a loss sees are multiplied by its root, so that its norms are the weighted ones.
    measure: Tensor | None = None
    # The share of a sample's points that these are, `[batch]`, where a step sees some of them: what an integral over
    # them has to be divided by.
    share: Tensor | None = None
    axes: int = 0  # of the grid, the last ones of fields; 0 for all but that of the samples


@dataclass(frozen=True)
class Loss:
    """A loss; `gradients` returns whether it compares with stored gradients under the settings of `fit`."""

    name: str  # its name in recipes, as in `loss = "relative"`
    # Returns the loss, a number, of predictions in the form of `batch.outputs`, of the batch, and of the recipe's
    # section `fit`, whose keys are the settings of the loss.
    compute: Callable[[Sequence[Tensor], Batch, Any], Tensor]
    axes: int = 3  # the most axes of a grid that it is defined for
    gradients: Callable[[Any], bool] = lambda fit: False  # noqa: ARG005 -- the settings do not matter


def expect_one_shape(prediction: Tensor, **others: Tensor | None) -> None:
    """Require that tensors have the shape of a prediction: a loss of other shapes would compare unlike points.

    Raises:
        ValueError: One has another shape.

    Example:
        >>> expect_one_shape(torch.ones(2, 5, 1), truth=torch.ones(2, 5))
        Traceback (most recent call last):
        ValueError: expected a prediction and a truth of one shape but got (2, 5, 1) and (2, 5)
    """
    for name, each in others.items():
        if each is not None and each.shape != prediction.shape:
            found = f"{tuple(prediction.shape)} and {tuple(each.shape)}"
            raise ValueError(f"expected a prediction and a {name} of one shape but got {found}")


def relative_differences(prediction: Features, truth: Features, axes: int = 0) -> PerSample:
    """Return e_D of each sample, by differences of neighbours along every axis that are not divided by the spacing.

    The axes are the last ones, all but that of the samples by default: components of a vector are no neighbours. A
    truth that is constant up to rounding has no such error: it is 0.

    Example:
        >>> relative_differences(torch.tensor([[0.0, 3.0, 6.0]]), torch.tensor([[0.0, 1.0, 2.0]]))
        tensor([2.])
    """
    expect_one_shape(prediction, truth=truth)
    one = unit(truth)
    apart, truth = (prediction - truth) / one, truth / one
    along = range(truth.ndim - axes if axes else 1, truth.ndim)
    error = torch.stack([norm(torch.diff(apart, dim=axis)) for axis in along])
    size = torch.stack([norm(torch.diff(truth, dim=axis)) for axis in along]).norm(dim=0)
    varies = size > 4 * torch.finfo(size.dtype).eps * norm(truth)
    return torch.where(varies, error.norm(dim=0) / torch.where(varies, size, 1), 0)


def training_loss(prediction: Features, truth: Features, h1: float, axes: int = 0) -> Float[Tensor, ""]:
    """Return the mean over the batch of e_L2 + h1 * e_D, of fields `[batch, (component), *grid]`; see both for `axes`.

    Example:
        >>> training_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]]), h1=0.1)
        tensor(2.2000)
    """
    expect_one_shape(prediction, truth=truth)
    loss = relative_l2(prediction, truth)
    return (loss + h1 * relative_differences(prediction, truth, axes) if h1 else loss).mean()


def compute(predictions: Sequence[Tensor], batch: Batch, fit: Any) -> Tensor:
    """Return the mean of `training_loss` over the outputs, with the weight `fit.h1`.

    Of a sample of which some points are drawn the true field may be zero at all of these: it has no relative error
    there, and counts as one without any.
    """
    losses = []
    for prediction, truth in zip(predictions, batch.outputs, strict=True):
        pair = prediction, truth
        if batch.share is not None:
            known = truth.flatten(1).any(dim=1).reshape(-1, *(1,) * (truth.ndim - 1))
            pair = torch.where(known, prediction, 1.0), torch.where(known, truth, 1.0)
        losses.append(training_loss(*pair, fit.h1, batch.axes))
    return losses[0] if len(losses) == 1 else torch.stack(losses).mean()


LOSS = Loss("relative", compute)


# Numbers


def scalar_squares(prediction: Tensor, truth: Tensor, deviation: Tensor) -> Tensor:
    """Return the square of the error of every sample `[batch]` in deviations, the mean over the components.

    A prediction of the mean of the training samples has an error near 1.

    Args:
        prediction: Numbers `[batch, (component)]`.
        truth: The true ones.
        deviation: Of the training samples, `[(component)]`.

    Example:
        >>> import torch
        >>> scalar_squares(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([1.0, 2.0]))
        tensor([0.5000])
    """
    expect_one_shape(prediction, truth=truth)
    if deviation.shape not in (prediction.shape[1:], ()):
        found = f"{tuple(deviation.shape)} for {tuple(prediction.shape)}"
        raise ValueError(f"expected a deviation per component but got {found}")
    squares = ((prediction - truth) / deviation).square()
    return squares if squares.ndim == 1 else squares.mean(dim=1)


def scalar_errors(prediction: Tensor, truth: Tensor, deviation: Tensor) -> Tensor:
    """Return the error of every sample `[batch]` in deviations; see `scalar_squares`."""
    return root(scalar_squares(prediction, truth, deviation))
