r"""Positive feature maps, whose inner products are the kernels of linear attention.

.. math::
    k(q, k) = \phi(q)^T\phi(k), \qquad \phi(x) > 0

:math:`x` is a row of the head's width :math:`n`. Yorsh & Kovalenko, *Linear Self-Attention Approximation via Trainable
Feedforward Kernel*, arXiv 2211.04076, train a map for each head:

| map | formula | parameters of a head |
|---|---|---|
| softplus | Softplus(x W) | n^2 |
| GLU, u units | units x Wf * sigmoid(x Wg), the last Softplus(x Wf) * sigmoid(x Wg) | 2 u n^2 |
| O-GLU | the same with nearly orthogonal Wf | 2 u n^2 |
| AO-GLU | the same with Wg = A B, A of n x r, B of r x n, r = n/4 | 3/2 u n^2 |
| elu | elu(x) + 1 (Katharopoulos et al., ICML 2020, arXiv 2006.16236) | 0 |
| random | positive random features of exp(q k / sqrt(n)) (Choromanski et al., ICLR 2021, arXiv 2009.14794) | 0 |

The orthogonal variants start orthogonal, and their loss has a penalty; the others start with Glorot's numbers. See
`training.nn.attention.matrices`. A map costs :math:`O(n^2)` per token and unit. In the published text classifier, of 4
heads of 64 features, a unit adds 4.2 % to the parameters of a layer, so that three units exceed the 10 % that the
method allows, and three with factored gates do not. Maps that all heads share, an option of this project, add a quarter
of that.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.nn.attention.matrices import Orthogonality, factored, matrix
from training.nn.shapes import Mixed


class FeatureMap(nn.Module):
    """Map every token to positive features, `[batch, head, token, width]` to `[batch, head, token, feature]`."""

    def forward(self, x: Mixed) -> Mixed:
        raise NotImplementedError


class EluFeatures(FeatureMap):
    r"""Compute :math:`\mathrm{elu}(x) + 1`, without parameters.

    Example:
        >>> EluFeatures()(torch.zeros(1, 1, 1, 2))
        tensor([[[[1., 1.]]]])
    """

    def forward(self, x: Mixed) -> Mixed:
        return functional.relu(x) + x.clamp(max=0).exp()  # the sum elu(x) + 1 would round to 0 below x = -17


class RandomFeatures(FeatureMap):
    r"""Compute 2n random features of the kernel of softmax attention, without trained parameters.

    .. math::
        \phi(x) = \exp(\pm\Omega^Ty - |y|^2/2)/\sqrt{2n}, \qquad y = x/n^{1/4}

    The directions :math:`\Omega` are orthogonal and have the lengths of normal vectors. They are drawn at construction
    and saved, so that :math:`E\,\phi(q)^T\phi(k) = \exp(q^Tk/\sqrt n)`. The map expects normalised tokens: the features
    of much longer tokens underflow.

    Args:
        width: The number of features per head, n.

    Example:
        >>> RandomFeatures(16)(torch.randn(2, 4, 10, 16)).shape
        torch.Size([2, 4, 10, 32])
    """

    directions: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        lengths = torch.randn(width, width).norm(dim=0)
        self.register_buffer("directions", nn.init.orthogonal_(torch.empty(width, width)) * lengths)

    def forward(self, x: Mixed) -> Mixed:
        y = x / self.width**0.25
        along = y @ self.directions
        exponent = torch.cat([along, -along], dim=-1) - y.square().sum(dim=-1, keepdim=True) / 2
        return exponent.exp() / math.sqrt(2 * self.width)


class SoftplusFeatures(FeatureMap):
    r"""Compute :math:`\mathrm{Softplus}(xW)` with trained matrices W.

    Args:
        width: The number of features per head, n.
        heads: The number of maps; None for one that all heads share.
        orthogonality: Whether W starts orthogonal, and what keeps it so.

    Example:
        >>> SoftplusFeatures(16, heads=4, orthogonality="penalty")(torch.randn(2, 4, 10, 16)).shape
        torch.Size([2, 4, 10, 16])
    """

    def __init__(self, width: int, heads: int | None = None, *, orthogonality: Orthogonality = "none") -> None:
        super().__init__()
        self.value = matrix(width, heads, orthogonality)

    def forward(self, x: Mixed) -> Mixed:
        return functional.softplus(self.value(x))


class GatedFeatures(FeatureMap):
    r"""Apply a stack of trained gated linear units, the last of which makes the features positive.

    .. math::
        x \leftarrow xW_f\odot\sigma(xW_g), \qquad \phi(x) = \mathrm{Softplus}(xW_f)\odot\sigma(xW_g)

    Args:
        width: The number of features per head, n.
        heads: The number of maps; None for one that all heads share.
        units: The number of units, u.
        orthogonality: Whether every Wf starts orthogonal, and what keeps it so.
        low: Use gates of rank n/4.

    Example:
        >>> GatedFeatures(16, heads=4, units=2)(torch.randn(2, 4, 10, 16)).shape
        torch.Size([2, 4, 10, 16])
    """

    def __init__(
        self,
        width: int,
        heads: int | None = None,
        *,
        units: int,
        orthogonality: Orthogonality = "none",
        low: bool = False,
    ) -> None:
        super().__init__()
        last = units - 1
        self.units = nn.Sequential(
            *(GatedUnit(width, heads, orthogonality, low=low, positive=each == last) for each in range(units))
        )

    def forward(self, x: Mixed) -> Mixed:
        return self.units(x)


class GatedUnit(nn.Module):
    r"""Compute :math:`\alpha(xW_f)\odot\sigma(xW_g)`, with :math:`\alpha` Softplus if `positive`, else the identity."""

    def __init__(
        self, width: int, heads: int | None, orthogonality: Orthogonality, *, low: bool, positive: bool
    ) -> None:
        super().__init__()
        self.value = matrix(width, heads, orthogonality)
        self.gate = factored(width, max(1, width // 4), heads) if low else matrix(width, heads, "none")
        self.activation = nn.Softplus() if positive else nn.Identity()

    def forward(self, x: Mixed) -> Mixed:
        return self.activation(self.value(x)) * torch.sigmoid(self.gate(x))
