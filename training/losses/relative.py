r"""Relative errors per sample, and the loss made of them.

Both norms are discrete integrals over the grid relative to the true field, so units and mesh width cancel:

.. math::
    e_{L2} = \frac{\|p - u\|}{\|u\|}, \qquad e_{H1} = \frac{\|\nabla p - \nabla u\|}{\|\nabla u\|}

The gradient is the difference of neighbours (Cao, NeurIPS 2021, arXiv 2105.14995, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from training.losses.loss import Batch, Loss
from training.nn.shapes import Field

PerSample = Float[Tensor, " batch"]


def relative_l2(prediction: Field, truth: Field) -> PerSample:
    """Return the relative L2 error of each sample.

    Example:
        >>> relative_l2(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
        tensor([2.])
    """
    return norm(prediction - truth) / norm(truth)


def relative_h1(prediction: Field, truth: Field) -> PerSample:
    """Return the relative error of each sample's gradient, by differences of neighbours along every axis.

    Example:
        >>> relative_h1(torch.tensor([[0.0, 3.0, 6.0]]), torch.tensor([[0.0, 1.0, 2.0]]))
        tensor([2.])
    """
    error = torch.stack([norm(torch.diff(prediction - truth, dim=axis)) for axis in range(1, truth.ndim)])
    size = torch.stack([norm(torch.diff(truth, dim=axis)) for axis in range(1, truth.ndim)])
    return error.norm(dim=0) / size.norm(dim=0)


def training_loss(prediction: Field, truth: Field, h1: float) -> Float[Tensor, ""]:
    """Return the mean over the batch of e_L2 + h1 * e_H1, of fields `[batch, *grid]`.

    Example:
        >>> training_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]]), h1=0.1)
        tensor(2.2000)
    """
    loss = relative_l2(prediction, truth)
    return (loss + h1 * relative_h1(prediction, truth) if h1 else loss).mean()


def norm(x: Tensor) -> Tensor:
    """Return the Euclidean norm of each sample."""
    return x.flatten(1).norm(dim=1)


def compute(predictions: Sequence[Tensor], batch: Batch, fit: Any) -> Tensor:
    """Return the mean of `training_loss` over the outputs, with the weight `fit.h1`."""
    losses = [training_loss(one, truth, fit.h1) for one, truth in zip(predictions, batch.outputs, strict=True)]
    return losses[0] if len(losses) == 1 else torch.stack(losses).mean()


LOSS = Loss("relative", compute)
