r"""What training minimises and what is reported: takes predicted and true fields, gives a number a sample.

Both norms are discrete integrals over the grid, relative to the true field, so units and mesh width cancel:

.. math::
    e_{L2} = \frac{\|p - u\|}{\|u\|}, \qquad e_{H1} = \frac{\|\nabla p - \nabla u\|}{\|\nabla u\|},

with differences of neighbours as the gradient (paper, section 5; the published loss weighs the second by a small
factor).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from training.nn.shapes import Field

PerSample = Float[Tensor, " batch"]


def relative_l2(prediction: Field, truth: Field) -> PerSample:
    """Give the relative L2 error of each sample."""
    return norm(prediction - truth) / norm(truth)


def relative_h1(prediction: Field, truth: Field) -> PerSample:
    """Give the relative error of each sample's gradient, by differences of neighbours along every axis."""
    error = torch.stack([norm(torch.diff(prediction - truth, dim=axis)) for axis in range(1, truth.ndim)])
    size = torch.stack([norm(torch.diff(truth, dim=axis)) for axis in range(1, truth.ndim)])
    return error.norm(dim=0) / size.norm(dim=0)


def training_loss(prediction: Field, truth: Field, h1: float) -> Float[Tensor, ""]:
    """Give the mean over the batch of e_L2 + h1 * e_H1."""
    loss = relative_l2(prediction, truth)
    return (loss + h1 * relative_h1(prediction, truth) if h1 else loss).mean()


def norm(x: Tensor) -> Tensor:
    """Give the Euclidean norm of each sample."""
    return x.flatten(1).norm(dim=1)
