r"""Terms and reductions that both weighted losses share.

For the squared error :math:`e_b` of sample b, the loss is the mean of :math:`\sqrt{e_b}` (or of :math:`e_b` itself),
and the metric is one of

.. math::
    L1 = \mathrm{mean}_b \sqrt{e_b}, \qquad L2 = \sqrt{\mathrm{mean}_b\, e_b}, \qquad Linf = \max_b \sqrt{e_b}.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor

PerSample = Float[Tensor, " batch"]
Number = Float[Tensor, ""]
Reduction = Literal["L1", "L2", "Linf"]


class Terms(NamedTuple):
    """The terms of a weighted loss. Training minimises `total`, the sum of the first three. The metric is reported."""

    error: Tensor
    regulariser: Tensor
    orthogonality: Tensor
    metric: Tensor

    @property
    def total(self) -> Tensor:
        """The sum that training minimises."""
        return self.error + self.regulariser + self.orthogonality


def mean(squared: PerSample, *, root: bool) -> Number:
    """Return the mean over the batch of the errors if `root`, otherwise of their squares."""
    return (squared.sqrt() if root else squared).mean()


def reduce(squared: PerSample, reduction: Reduction) -> Number:
    """Return the metric of a batch; see the formulas of the module."""
    if reduction == "L2":
        return squared.mean().sqrt()
    errors = squared.sqrt()
    return errors.mean() if reduction == "L1" else errors.max()
