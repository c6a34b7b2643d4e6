r"""Attention without softmax: Galerkin and Fourier attention.

.. math::
    \text{Galerkin:}\quad z = \tilde Q\,(\tilde K^T \tilde V)/n, \qquad
    \text{Fourier:}\quad z = (\tilde Q \tilde K^T)\,\tilde V / (n\sqrt{w})

Here :math:`n` is the number of sources and :math:`w` the width of a head including the coordinates. Without a softmax
the matrix products are associative. So both cost :math:`O(n w^2)` time and :math:`O(nw)` memory, and the mixing
approximates an integral over the domain (Cao, NeurIPS 2021, arXiv 2105.14995, section 3).
"""

from __future__ import annotations

import math

from training.nn.attention.folding import centre, fold
from training.nn.attention.heads import HeadAttention, HeadNorm, refuse_mask, tracing
from training.nn.shapes import Mask, Mixed, Positions, Tokens


class GalerkinAttention(HeadAttention):
    r"""Mix as a Petrov-Galerkin projection, with normalised keys and values.

    .. math::
        z = Q(\tilde K^T\tilde V)/n

    :math:`n` is the number of sources, so the sum over them is a mean. Self-attention is computed by `folding.fold`,
    which reads and writes the tokens fewer times.

    Args:
        channels: The number of features per token, a multiple of `heads`.
        heads: The number of heads.
        coordinates: The number of coordinates of a position; 0 for tokens without positions.
        options: The keywords of `HeadAttention`.

    References:
        | Choose a Transformer: Fourier or Galerkin (Cao, NeurIPS 2021)
        | https://arxiv.org/abs/2105.14995

    Example:
        >>> attention = GalerkinAttention(64, heads=4, coordinates=1)
        >>> attention(torch.randn(2, 100, 64), positions=torch.linspace(0, 1, 100)[:, None]).shape
        torch.Size([2, 100, 64])
    """

    pairwise = False

    def fast_self_attention(self, x: Tokens, positions: Positions | None) -> Tokens | None:
        return fold(self, x, positions) if positions is not None and self.folds(positions) else None

    def folds(self, positions: Positions) -> bool:
        """Return whether the positions fit and the norm is over the features of a head."""
        fit = bool(self.coordinates) and (tracing() or positions.shape[-1] == self.coordinates)
        return fit and type(self.first_norm) is HeadNorm

    def prepare_inference(self) -> None:
        """Move the centring of keys and values into their projections. The output stays equal. For inference only."""
        if type(self.first_norm) is HeadNorm:
            centre(self)

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        refuse_mask(mask, "galerkin")
        return Q @ self.drop(K.transpose(-2, -1) @ V / K.shape[-2])


class FourierAttention(HeadAttention):
    r"""Mix by a learned integral kernel, with normalised queries and keys.

    .. math::
        z = (\tilde Q\tilde K^T)V/(n\sqrt w)

    The product is computed as :math:`\tilde Q(\tilde K^T V)`, in linear time. With a mask or with dropout, which act on
    the :math:`n \times n` scores, it is computed in the order of the formula. The score of a masked pair is 0.

    Args:
        channels: The number of features per token, a multiple of `heads`.
        heads: The number of heads.
        coordinates: The number of coordinates of a position; 0 for tokens without positions.
        options: The keywords of `HeadAttention`.

    References:
        | Choose a Transformer: Fourier or Galerkin (Cao, NeurIPS 2021)
        | https://arxiv.org/abs/2105.14995

    Example:
        >>> attention = FourierAttention(64, heads=4, coordinates=1)
        >>> attention(torch.randn(2, 100, 64), positions=torch.linspace(0, 1, 100)[:, None]).shape
        torch.Size([2, 100, 64])
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
