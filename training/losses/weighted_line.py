r"""The loss of the reference project on a line, weighted by terms.

With sums over the n points of a sample, mesh width h, prediction p, truth u and its slope u',

.. math::
    e &= \beta \frac{\sum (p - u)^2}{\sum u^2} + \alpha h \frac{\sum (p' - K u')^2}{\sum u'^2}, \\
    r &= \gamma h \frac{\sum_{i=s}^{n-1-s} (u'_i - (p_{i+s} - p_{i-s}) / 2 s h)^2}{\sum u'^2}, \\
    o &= \delta h\, \mathrm{mean}_{ij} \big(A_{ij} (1 - \delta_{ij})\big)^2,

Each enters the total as the mean of its root over the batch. p' is a slope that the network predicts. A is
:math:`Y^\top Y` (feature by feature) or :math:`Y Y^\top` (token by token) of latent features Y `[token, channel]`.

The mesh width is a factor of every weight but the first. So the relative H1 error (s = 1, the inner points) enters with
:math:`\sqrt{\gamma h}`, which is 0.007 for 2048 points and gamma = 0.1 (Cao, NeurIPS 2021, section 5, and the code of
the reference project).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from training.losses.weighted import PerSample, Reduction, Terms, mean, reduce
from training.nn.shapes import Line, Tokens


@dataclass(frozen=True)
class LineLoss:
    """Weigh values, slopes and the orthogonality of latent features on a line; see the formulas of the module.

    Args:
        h: The mesh width.
        beta: The weight of the values.
        gamma: The weight of the slopes of the prediction, by differences.
        alpha: The weight of the slopes that the network predicts.
        delta: The weight of the orthogonality.
        dilation: The width 2s of the central difference in mesh widths, an even number.
        root: Average the roots of the samples' errors, as the paper does. Otherwise average their squares.
        reduction: The reduction of the metric.
        gram: Compare the latent's features over all tokens ("global") or its tokens ("local").

    Raises:
        ValueError: `dilation` is odd or less than 2.

    References:
        | Choose a Transformer: Fourier or Galerkin (Cao, NeurIPS 2021), section 5
        | https://arxiv.org/abs/2105.14995

    Example:
        >>> truth = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
        >>> LineLoss(h=1.0)(truth, truth, torch.ones(1, 4)).total
        tensor(0.)
    """

    h: float
    beta: float = 1.0
    gamma: float = 0.1
    alpha: float = 0.0
    delta: float = 1e-4
    dilation: int = 2
    root: bool = True
    reduction: Reduction = "L1"
    gram: Literal["global", "local"] = "global"

    def __post_init__(self) -> None:
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
        """Return the terms of the loss. A term is zero if its weight is 0 or its argument is missing.

        Args:
            prediction: p, of shape `[batch, point]`.
            truth: u, of the same shape.
            slope: u', for gamma and alpha.
            predicted_slope: p', for alpha.
            coefficient: K.
            latents: The features Y whose orthogonality is penalised, one tensor `[batch, token, channel]` per layer.
        """
        values = self.beta * square(prediction - truth) / square(truth)
        if self.alpha and slope is not None and predicted_slope is not None:
            values = values + self.alpha * self.h * square(predicted_slope - coefficient * slope) / square(slope)
        zero = values.new_zeros(())
        return Terms(
            error=mean(values, root=self.root),
            regulariser=mean(self.roughness(prediction, slope), root=self.root)
            if self.gamma and slope is not None
            else zero,
            orthogonality=sum((mean(self.overlap(latent), root=self.root) for latent in latents), zero),
            metric=reduce(values, self.reduction),
        )

    def roughness(self, prediction: Line, slope: Line) -> PerSample:
        """Return r of each sample, the distance of the differences of p from u'."""
        s = self.dilation // 2
        difference = (prediction[:, 2 * s :] - prediction[:, : -2 * s]) / (2 * s * self.h)
        return self.gamma * self.h * square(slope[:, s:-s] - difference) / square(slope)

    def overlap(self, latent: Tokens) -> PerSample:
        """Return o of each sample, the distance of its latent features (or tokens) from orthogonality."""
        gram = latent.mT @ latent if self.gram == "global" else latent @ latent.mT
        off = gram - torch.diag_embed(gram.diagonal(dim1=1, dim2=2))
        return self.delta * self.h * off.square().mean(dim=(1, 2))


def square(x: Tensor) -> Tensor:
    """Return the sum of squares of each sample."""
    return x.square().sum(dim=1)
