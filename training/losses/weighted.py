r"""The losses of the reference project on a line and on a plane, weighted by terms.

For the squared error :math:`e_b` of sample b, the loss is the mean of :math:`\sqrt{e_b}` (or of :math:`e_b` itself),
and the metric is one of

.. math::
    L1 = \mathrm{mean}_b \sqrt{e_b}, \qquad L2 = \sqrt{\mathrm{mean}_b\, e_b}, \qquad Linf = \max_b \sqrt{e_b}.

On a line, with sums over the n points of a sample, mesh width h, prediction p, truth u and its slope u',

.. math::
    e &= \beta \frac{\sum (p - u)^2}{\sum u^2} + \alpha h \frac{\sum (p' - K u')^2}{\sum u'^2}, \\
    r &= \gamma h \frac{\sum_{i=s}^{n-1-s} (u'_i - (p_{i+s} - p_{i-s}) / 2 s h)^2}{\sum u'^2}, \\
    o &= \delta h\, \mathrm{mean}_{ij} \big(A_{ij} (1 - \delta_{ij})\big)^2,

Each enters the total as the mean of its root over the batch. p' is a slope that the network predicts. A is
:math:`Y^\top Y` (feature by feature) or :math:`Y Y^\top` (token by token) of latent features Y `[token, channel]`.

The mesh width is a factor of every weight but the first. So the relative H1 error (s = 1, the inner points) enters with
:math:`\sqrt{\gamma h}`, which is 0.007 for 2048 points and gamma = 0.1 (Cao, NeurIPS 2021, section 5, and the code of
the reference project).

On a plane, with means over the points (and both components) of a sample, the true gradient g, the coefficient K of the
energy (1 if there is none) and :math:`\epsilon` = 1e-10,

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from training.losses.relative import Batch, Loss, expect_one_shape
from training.messages import lookup
from training.metrics.fields import root as root_of
from training.metrics.fields import unit
from training.nn.grids import Line, Plane, Tokens

PerSample = Float[Tensor, " batch"]
Number = Float[Tensor, ""]
LINE_AXES, PLANE_AXES = 2, 3  # of a batch of fields, with that of the samples
Reduction = Literal["L1", "L2", "Linf"]
#: The derivative along the rows' axis, then along the columns' axis.
Gradient = Float[Tensor, "batch row column 2"]


REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "L1": lambda squared: root_of(squared).mean(),
    "L2": lambda squared: root_of(squared.mean()),
    "Linf": lambda squared: root_of(squared).max(),
}
GRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "global": lambda latent: latent.mT @ latent,
    "local": lambda latent: latent @ latent.mT,
}


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
    return (root_of(squared) if root else squared).mean()


def reduce(squared: PerSample, reduction: Reduction) -> Number:
    """Return the metric of a batch; see the formulas of the module."""
    return lookup(REDUCTIONS, reduction, "reduction")(squared)


@dataclass(frozen=True, kw_only=True)
class Weighted:
    """The weights that both losses have; see the formulas of the module.

    Raises:
        ValueError: `h` is not positive.
        UnknownNameError: There is no such reduction.
    """

    h: float  # mesh width, equal along all axes
    beta: float = 1.0  # weight of the values
    gamma: float = 0.1  # of the slopes or the gradient of the prediction, by differences
    alpha: float = 0.0  # of those that the network predicts
    root: bool = True  # average the roots of the samples' errors, as the paper does; else their squares
    reduction: Reduction = "L1"  # of the metric

    def __post_init__(self) -> None:
        if not self.h > 0:
            raise ValueError(f"expected a positive mesh width but got {self.h}")
        lookup(REDUCTIONS, self.reduction, "reduction")

    def terms(self, values: PerSample, regulariser: PerSample | None, overlaps: Sequence[PerSample] = ()) -> Terms:
        """Return the terms of the loss, one that is missing as zero."""
        zero = values.new_zeros(())
        return Terms(
            error=mean(values, root=self.root),
            regulariser=zero if regulariser is None else mean(regulariser, root=self.root),
            orthogonality=sum((mean(overlap, root=self.root) for overlap in overlaps), zero),
            metric=reduce(values, self.reduction),
        )


@dataclass(frozen=True, kw_only=True)
class LineLoss(Weighted):
    """Weigh values, slopes and the orthogonality of latent features on a line (Cao, NeurIPS 2021, section 5).

    Raises:
        ValueError: `dilation` is odd or less than 2, or `h` is not positive.
        UnknownNameError: There is no such reduction or comparison of latents.

    Example:
        >>> truth = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
        >>> LineLoss(h=1.0)(truth, truth, torch.ones(1, 4)).total
        tensor(0.)
    """

    delta: float = 1e-4  # weight of the orthogonality
    dilation: int = 2  # the width 2s of the central difference in mesh widths, an even number
    gram: Literal["global", "local"] = "global"  # compare a latent's features over all tokens, or its tokens

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup(GRAMS, self.gram, "comparison of latents")
        if self.dilation < 2 or self.dilation % 2:
            raise ValueError(f"expected an even dilation of at least 2 but got {self.dilation}")

    def __call__(
        self,
        prediction: Line,
        truth: Line,
        slope: Line | None = None,
        *,
        predicted_slope: Line | None = None,
        coefficient: float | Line = 1.0,
        latents: Sequence[Tokens] = (),
    ) -> Terms:
        """Return the terms for p, u, u', p', K and a Y per layer. One is 0 if its weight or its argument is missing.

        Raises:
            ValueError: A field is not `[batch, point]`, or they differ in shape.
        """
        if prediction.ndim != LINE_AXES:
            raise ValueError(f"expected fields [batch, point] but got {tuple(prediction.shape)}")
        known = coefficient if isinstance(coefficient, Tensor) else None
        expect_one_shape(prediction, truth=truth, slope=slope, predicted_slope=predicted_slope, coefficient=known)
        values = self.beta * square(prediction - truth) / square(truth)
        if self.alpha and slope is not None and predicted_slope is not None:
            values = values + self.alpha * self.h * square(predicted_slope - coefficient * slope) / square(slope)
        rough = self.roughness(prediction, slope) if self.gamma and slope is not None else None
        return self.terms(values, rough, [self.overlap(latent) for latent in latents])

    def roughness(self, prediction: Line, slope: Line) -> PerSample:
        """Return r of each sample, the distance of the differences of p from u'."""
        s = self.dilation // 2
        difference = (prediction[:, 2 * s :] - prediction[:, : -2 * s]) / (2 * s * self.h)
        return self.gamma * self.h * square(slope[:, s:-s] - difference) / square(slope)

    def overlap(self, latent: Tokens) -> PerSample:
        """Return o of each sample, the distance of its latent features (or tokens) from orthogonality."""
        gram = GRAMS[self.gram](latent)
        off = gram - torch.diag_embed(gram.diagonal(dim1=1, dim2=2))
        return self.delta * self.h * off.square().mean(dim=(1, 2))


def square(x: Tensor) -> Tensor:
    """Return the sum of squares of each sample."""
    return x.square().sum(dim=1)


@dataclass(frozen=True, kw_only=True)
class PlaneLoss(Weighted):
    """Weigh values and gradients on a plane (Cao, NeurIPS 2021, section 5).

    Example:
        >>> truth = torch.rand(2, 5, 5)
        >>> PlaneLoss(h=0.2, gamma=0.0)(truth, truth).total
        tensor(0.)
    """

    epsilon: float = 1e-10  # avoids a division by zero for a sample that is zero everywhere

    def __call__(
        self,
        prediction: Plane,
        truth: Plane,
        gradient: Gradient | None = None,
        *,
        predicted_gradient: Gradient | None = None,
        coefficient: Plane | None = None,
    ) -> Terms:
        """Return the terms for p, u, g, p' and K. One is 0 if its weight or its argument is missing.

        Raises:
            ValueError: A field is not `[batch, row, column]`, or they differ in shape.
        """
        if prediction.ndim != PLANE_AXES:
            raise ValueError(f"expected fields [batch, row, column] but got {tuple(prediction.shape)}")
        expect_one_shape(prediction, truth=truth, coefficient=coefficient)
        both = prediction[..., None].expand(*prediction.shape, 2)
        expect_one_shape(both, gradient=gradient, predicted_gradient=predicted_gradient)
        K = (torch.ones_like(truth) if coefficient is None else coefficient)[..., None]
        values = self.beta * average((prediction - truth).square()) / (average(truth.square()) + self.epsilon)
        if self.alpha and gradient is not None and predicted_gradient is not None:
            flux = (K * (predicted_gradient - gradient)).square()
            values = values + self.alpha * average(flux) / self.energy(gradient, K)
        return self.terms(
            values, self.roughness(prediction, gradient, K) if self.gamma and gradient is not None else None
        )

    def energy(self, gradient: Gradient, K: Float[Tensor, "batch row column 1"]) -> PerSample:
        """Return N of each sample."""
        return 2 * average(K * gradient.square()) + self.epsilon

    def roughness(self, prediction: Plane, gradient: Gradient, K: Float[Tensor, "batch row column 1"]) -> PerSample:
        """Return r of each sample, the distance of the differences of p from g."""
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


def compute(predictions: Sequence[Tensor], batch: Batch, fit: Any) -> Tensor:
    """Return the loss of the one output, with `fit.gamma` and a mesh width of 1/n for n points per axis.

    Every sample is in a unit near its largest value: squares of 1e20 overflow, and those of 1e-22 are below epsilon.

    Raises:
        ValueError: The axes have different numbers of points: there is no one mesh width.
    """
    [prediction], [truth] = predictions, batch.outputs
    if len({*truth.shape[1:]}) > 1:
        raise ValueError(f"weighted: expected as many points on every axis but got {tuple(truth.shape[1:])}")
    h, one, slope = 1 / truth.shape[-1], unit(truth), batch.gradients
    if slope is not None:
        slope = slope / one.reshape(-1, *(1,) * (slope.ndim - 1))
    fields = prediction / one, truth / one, slope
    if truth.ndim == LINE_AXES:
        return LineLoss(h=h, gamma=fit.gamma)(*fields).total
    return PlaneLoss(h=h, gamma=fit.gamma)(*fields, coefficient=batch.weight).total


LOSS = Loss("weighted", compute, axes=2, gradients=lambda fit: fit.gamma > 0)
