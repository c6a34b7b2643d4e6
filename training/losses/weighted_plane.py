r"""The loss of the reference project on a plane, weighted by terms.

With means over the points (and both components) of a sample, mesh width h, prediction p, truth u, its gradient g, the
coefficient K of the energy (1 if there is none) and :math:`\epsilon` = 1e-10,

.. math::
    N &= 2\, \mathrm{mean}(K g^2) + \epsilon, \\
    e &= \beta \frac{\mathrm{mean} (p - u)^2}{\mathrm{mean}\, u^2 + \epsilon}
        + \alpha \frac{\mathrm{mean} (K (p' - g))^2}{N}, \\
    r &= \gamma h \frac{\mathrm{mean}_{inner} (K (g - D p))^2}{N},

Each enters the total as the mean of its root over the batch. D is the central difference over 2h at the points that
have four neighbours. p' is a gradient that the network predicts. K is squared in the numerator and not in the
denominator: r is the error of the flux in units of the energy, as the code of the reference project computes it (Cao,
NeurIPS 2021, section 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from training.losses.weighted import PerSample, Reduction, Terms, mean, reduce
from training.nn.shapes import Plane

#: The derivative along the rows' axis, then along the columns' axis.
Gradient = Float[Tensor, "batch row column 2"]


@dataclass(frozen=True)
class PlaneLoss:
    """Weigh values and gradients on a plane; see the formulas of the module.

    Args:
        h: The mesh width, equal along both axes.
        beta: The weight of the values.
        gamma: The weight of the gradient of the prediction, by differences.
        alpha: The weight of the gradient that the network predicts.
        epsilon: Avoids a division by zero for a sample that is zero everywhere.
        root: Average the roots of the samples' errors, as the paper does. Otherwise average their squares.
        reduction: The reduction of the metric.

    References:
        | Choose a Transformer: Fourier or Galerkin (Cao, NeurIPS 2021), section 5
        | https://arxiv.org/abs/2105.14995

    Example:
        >>> truth = torch.rand(2, 5, 5)
        >>> PlaneLoss(h=0.2, gamma=0.0)(truth, truth).total
        tensor(0.)
    """

    h: float
    beta: float = 1.0
    gamma: float = 0.1
    alpha: float = 0.0
    epsilon: float = 1e-10
    root: bool = True
    reduction: Reduction = "L1"

    def __call__(
        self,
        prediction: Plane,
        truth: Plane,
        gradient: Gradient | None = None,
        *,
        predicted_gradient: Gradient | None = None,
        coefficient: Plane | None = None,
    ) -> Terms:
        """Return the terms of the loss. A term is zero if its weight is 0 or its argument is missing.

        Args:
            prediction: p, of shape `[batch, row, column]`.
            truth: u, of the same shape.
            gradient: g, for gamma and alpha.
            predicted_gradient: p', for alpha.
            coefficient: K.
        """
        K = (torch.ones_like(truth) if coefficient is None else coefficient)[..., None]
        values = self.beta * average((prediction - truth).square()) / (average(truth.square()) + self.epsilon)
        if self.alpha and gradient is not None and predicted_gradient is not None:
            flux = (K * (predicted_gradient - gradient)).square()
            values = values + self.alpha * average(flux) / self.energy(gradient, K)
        zero = values.new_zeros(())
        return Terms(
            error=mean(values, root=self.root),
            regulariser=mean(self.roughness(prediction, gradient, K), root=self.root)
            if self.gamma and gradient is not None
            else zero,
            orthogonality=zero,
            metric=reduce(values, self.reduction),
        )

    def energy(self, gradient: Gradient, K: Float[Tensor, "batch row column 1"]) -> PerSample:
        """Return N of each sample."""
        return 2 * average(K * gradient.square()) + self.epsilon

    def roughness(self, prediction: Plane, gradient: Gradient, K: Float[Tensor, "batch row column 1"]) -> PerSample:
        """Return r of each sample, the distance of the differences of p from g.

        Args:
            prediction: p, of shape `[batch, row, column]`.
            gradient: g, of shape `[batch, row, column, 2]`.
            K: The coefficient, of shape `[batch, row, column, 1]`.
        """
        error = inner(K) * (inner(gradient) - central(prediction, self.h))
        return self.gamma * self.h * average(error.square()) / self.energy(gradient, K)


def central(field: Plane, h: float) -> Float[Tensor, "batch _ _ 2"]:
    """Return the central differences at the inner points, along the rows' axis first."""
    rows = field[:, 2:, 1:-1] - field[:, :-2, 1:-1]
    columns = field[:, 1:-1, 2:] - field[:, 1:-1, :-2]
    return torch.stack([rows, columns], dim=-1) / (2 * h)


def inner(x: Tensor) -> Tensor:
    """Return the points of `[batch, row, column, ...]` without the outermost ones."""
    return x[:, 1:-1, 1:-1]


def average(x: Tensor) -> Tensor:
    """Return the mean of each sample."""
    return x.flatten(1).mean(dim=1)
