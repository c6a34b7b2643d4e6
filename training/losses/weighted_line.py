r"""The weighted loss on a line: takes predicted and true values and slopes, gives the published loss and its parts.

With sums over the n points of a sample, mesh width h, prediction p, truth u and its slope u',

.. math::
    e &= \beta \frac{\sum (p - u)^2}{\sum u^2} + \alpha h \frac{\sum (p' - K u')^2}{\sum u'^2}, \\
    r &= \gamma h \frac{\sum_{i=s}^{n-1-s} (u'_i - (p_{i+s} - p_{i-s}) / 2 s h)^2}{\sum u'^2}, \\
    o &= \delta h\, \mathrm{mean}_{ij} \big(A_{ij} (1 - \delta_{ij})\big)^2,

and each enters the total as the mean of its root over the batch. p' is a slope that the network itself predicts. A is
:math:`Y^\top Y` (feature by feature) or :math:`Y Y^\top` (token by token) of latent features Y `[token, channel]`.

The mesh width stands in front of every weight but the first. So the relative H1 error (s = 1, the inner points) enters
with :math:`\sqrt{\gamma h}`: 0.007 for 2048 points and gamma = 0.1 (Cao, NeurIPS 2021, section 5, and the published
code).
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
    """Weigh values, slopes and the orthogonality of latent features on a line.

    Args:
        h: mesh width.
        beta: weight of the values.
        gamma: weight of the slopes of the prediction, by differences.
        alpha: weight of the slopes that the network predicts.
        delta: weight of the orthogonality.
        dilation: width 2s of the central difference in meshes, an even number.
        root: take the root of each sample's error, as published; otherwise its square is averaged.
        reduction: of the metric.
        gram: compare the latent's features over all tokens ("global") or its tokens ("local").
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
        """Give the loss and its parts; a part is zero where its weight is 0 or its argument is left out.

        Args:
            prediction: p.
            truth: u.
            slope: u', for gamma and alpha.
            predicted_slope: p', for alpha.
            coefficient: K.
            latents: features Y whose orthogonality counts, one a layer.
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
        """Give r of each sample: how far the differences of p are from u'."""
        s = self.dilation // 2
        difference = (prediction[:, 2 * s :] - prediction[:, : -2 * s]) / (2 * s * self.h)
        return self.gamma * self.h * square(slope[:, s:-s] - difference) / square(slope)

    def overlap(self, latent: Tokens) -> PerSample:
        """Give o of each sample: how far its latent features (or tokens) are from orthogonal."""
        gram = latent.mT @ latent if self.gram == "global" else latent @ latent.mT
        off = gram - torch.diag_embed(gram.diagonal(dim1=1, dim2=2))
        return self.delta * self.h * off.square().mean(dim=(1, 2))


def square(x: Tensor) -> Tensor:
    """Give the sum of squares of each sample."""
    return x.square().sum(dim=1)
