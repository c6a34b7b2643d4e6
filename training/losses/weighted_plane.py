r"""The weighted loss on a plane: takes predicted and true values and gradients, gives the published loss and its parts.

With means over the points (and both components) of a sample, mesh width h, prediction p, truth u, its gradient g, the
coefficient K of the energy (1 if there is none) and :math:`\epsilon` = 1e-10,

.. math::
    N &= 2\, \mathrm{mean}(K g^2) + \epsilon, \\
    e &= \beta \frac{\mathrm{mean} (p - u)^2}{\mathrm{mean}\, u^2 + \epsilon}
        + \alpha \frac{\mathrm{mean} (K (p' - g))^2}{N}, \\
    r &= \gamma h \frac{\mathrm{mean}_{inner} (K (g - D p))^2}{N},

and each enters the total as the mean of its root over the batch. D is the central difference over 2h, taken at the
points that have four neighbours; p' is a gradient that the network itself predicts. K stands squared above the line and
to the first power below it: r is the flux's error in units of the energy, as the published code computes it (Cao,
NeurIPS 2021, section 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from training.losses.weighted import PerSample, Reduction, Terms, mean, reduce
from training.nn.shapes import Plane

#: Along rows first, then along columns.
Gradient = Float[Tensor, "batch row column 2"]


@dataclass(frozen=True)
class PlaneLoss:
    """Weigh values and gradients on a plane.

    Args:
        h: mesh width, the same along both axes.
        beta: weight of the values.
        gamma: weight of the gradient of the prediction, by differences.
        alpha: weight of the gradient that the network predicts.
        epsilon: keeps a sample that is zero everywhere from dividing by zero.
        root: take the root of each sample's error, as published; otherwise its square is averaged.
        reduction: of the metric.
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
        """Give the loss and its parts; a part is zero where its weight is 0 or its argument is left out.

        Args:
            prediction: p.
            truth: u.
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
        """Give N of each sample."""
        return 2 * average(K * gradient.square()) + self.epsilon

    def roughness(self, prediction: Plane, gradient: Gradient, K: Float[Tensor, "batch row column 1"]) -> PerSample:
        """Give r of each sample: how far the differences of p are from g."""
        error = inner(K) * (inner(gradient) - central(prediction, self.h))
        return self.gamma * self.h * average(error.square()) / self.energy(gradient, K)


def central(field: Plane, h: float) -> Float[Tensor, "batch _ _ 2"]:
    """Give the central differences at the inner points, along rows first."""
    rows = field[:, 2:, 1:-1] - field[:, :-2, 1:-1]
    columns = field[:, 1:-1, 2:] - field[:, 1:-1, :-2]
    return torch.stack([rows, columns], dim=-1) / (2 * h)


def inner(x: Tensor) -> Tensor:
    """Cut the outermost ring of points `[batch, row, column, ...]`."""
    return x[:, 1:-1, 1:-1]


def average(x: Tensor) -> Tensor:
    """Give the mean of each sample."""
    return x.flatten(1).mean(dim=1)
