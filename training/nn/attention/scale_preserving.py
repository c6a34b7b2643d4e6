r"""Attention without softmax: takes tokens and their positions, gives tokens.

Cao, NeurIPS 2021, arXiv 2105.14995, section 3:

.. math::
    \text{Galerkin:}\quad z = \tilde Q\,(\tilde K^T \tilde V)/n, \qquad
    \text{Fourier:}\quad z = (\tilde Q \tilde K^T)\,\tilde V / (n\sqrt{w}),

with :math:`n` sources and :math:`w` the head's width *after* the coordinates joined. Neither has a softmax, so matrix
products may be re-bracketed: both cost :math:`O(n w^2)` time and :math:`O(nw)` memory, and the mixing approximates an
integral over the domain.
"""

from __future__ import annotations

import math

from training.nn.attention.folding import centre, fold
from training.nn.attention.heads import HeadAttention, HeadNorm, refuse_mask, tracing
from training.nn.shapes import Mask, Mixed, Positions, Tokens


class GalerkinAttention(HeadAttention):
    r"""Mix as a Petrov-Galerkin projection, :math:`z = Q(\tilde K^T\tilde V)/n`; keys and values are normalised.

    `n` counts the sources, over which the sum is a mean. Tokens that ask each other are answered by `folding.fold`,
    which makes fewer passes over them.
    """

    pairwise = False

    def among(self, x: Tokens, positions: Positions | None) -> Tokens | None:
        return fold(self, x, positions) if positions is not None and self.folds(positions) else None

    def folds(self, positions: Positions) -> bool:
        """Tell whether positions fit, and the norm is that of a head's features."""
        fit = bool(self.coordinates) and (tracing() or positions.shape[-1] == self.coordinates)
        return fit and type(self.first_norm) is HeadNorm

    def prepare_inference(self) -> None:
        """Let the projections do a part of their norms: the same answers in less time, but no more training."""
        if type(self.first_norm) is HeadNorm:
            centre(self)

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        refuse_mask(mask, "galerkin")
        return Q @ self.drop(K.transpose(-2, -1) @ V / K.shape[-2])


class FourierAttention(HeadAttention):
    r"""Mix as a learned integral kernel, :math:`z = (\tilde Q\tilde K^T)V/(n\sqrt w)`; queries, keys are normalised.

    The product is bracketed as :math:`\tilde Q(\tilde K^T V)`, linear in :math:`n`, unless a mask or dropout acts on
    the :math:`n \times n` scores: a hidden pair's score is 0.
    """

    pairwise = True

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        scale = K.shape[-2] * math.sqrt(self.width)
        if mask is None and not self.rate:
            return Q @ (K.transpose(-2, -1) @ V / scale)
        scores = Q @ K.transpose(-2, -1) / scale
        if mask is not None:
            scores = scores.masked_fill(mask[:, None] == 0, 0.0)
        return self.drop(scores) @ V
