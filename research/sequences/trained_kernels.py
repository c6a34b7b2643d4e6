r"""Trained kernels of linear attention: positive feature maps, joined as kinds by entry points `petrov.attention`.

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

A map costs :math:`O(n^2)` per token and unit. In the published text classifier, of 4 heads of 64 features, a unit adds
4.2 % to the parameters of a layer, so that three units exceed the 10 % that the method allows, and three with factored
gates do not. Maps that all heads share, an option of this project, add a quarter of that.

| start and training of a matrix W | class |
|---|---|
| Glorot's uniform numbers, free | `Matrix` |
| orthogonal, with :math:`\|W^TW - I\|_F^2` in the loss, in the published O variants | `PenalisedMatrix` |
| orthogonal, and kept so exactly, in the kinds that end in `-exact` | `OrthogonalMatrix` |

All have a `weight` of shape `[head, width, width]`, or `[width, width]` where the heads share one matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.messages import lookup
from training.nn.attention.kernel import FeatureMap, KernelAttention
from training.nn.grids import Mixed

Orthogonality = Literal["none", "penalty", "exact"]


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
        if units < 1:
            raise ValueError(f"expected at least 1 unit, whose features are positive, but got {units}")
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
        self.gate: nn.Module = Matrix(width, heads=heads)
        if low:
            rank = max(1, width // 4)
            self.gate = nn.Sequential(Matrix(width, rank, heads=heads), Matrix(rank, width, heads=heads))
        self.activation = nn.Softplus() if positive else nn.Identity()

    def forward(self, x: Mixed) -> Mixed:
        return self.activation(self.value(x)) * torch.sigmoid(self.gate(x))


class Matrix(nn.Module):
    """Multiply every head's features by a matrix, which starts with Glorot's uniform numbers.

    Args:
        width: The number of features per head.
        outputs: The number of features after the map; `width` by default.
        heads: The number of matrices; None for one that all heads share.

    Example:
        >>> Matrix(16, heads=4)(torch.randn(2, 4, 10, 16)).shape
        torch.Size([2, 4, 10, 16])
    """

    def __init__(self, width: int, outputs: int | None = None, *, heads: int | None = None) -> None:
        super().__init__()
        empty = torch.empty(heads or 1, width, outputs or width)
        started = torch.stack([self.start(each) for each in empty])
        self.weight = nn.Parameter(started if heads else started[0])

    def start(self, weight: Tensor) -> Tensor:
        """Fill one head's matrix with its initial numbers, and return it."""
        return nn.init.xavier_uniform_(weight)

    def forward(self, x: Mixed) -> Mixed:
        return x @ self.weight


class PenalisedMatrix(Matrix):
    r"""The same, with an orthogonal start and a penalty :math:`\|W^TW - I\|_F^2` that a loss adds."""

    def start(self, weight: Tensor) -> Tensor:
        """Fill one head's matrix with a random orthogonal one."""
        return nn.init.orthogonal_(weight)

    def penalty(self) -> Tensor:
        """Return the penalty, summed over the heads."""
        W = self.weight
        return (W.mT @ W - torch.eye(W.shape[-1], dtype=W.dtype, device=W.device)).square().sum()


class OrthogonalMatrix(nn.Module):
    r"""Multiply by the orthogonal matrix :math:`W = \mathrm{polar}(M)` nearest to the trained matrix :math:`M`.

    It is computed by Newton and Schulz's iteration of third order, :math:`X \leftarrow X(15I - 10X^TX +
    3(X^TX)^2)/8`, from :math:`X = M/\|M^TM\|_F^{1/2}`. The iteration consists of products and corrects its own
    rounding. An exported graph holds W as it was when the module was last set to evaluation, instead of the hundreds of
    nodes that compute it.

    Args:
        width: The number of features per head.
        heads: The number of matrices; None for one that all heads share.
    """

    # Each multiplies a small singular value by 15/8: enough from 0.01 of their root mean square for 256 features.
    ROUNDS = 12

    baked: Tensor

    def __init__(self, width: int, *, heads: int | None = None) -> None:
        super().__init__()
        self.raw = nn.Parameter(PenalisedMatrix(width, heads=heads).weight.detach())
        self.register_buffer("baked", self.raw.detach().clone(), persistent=False)

    def train(self, mode: bool = True) -> OrthogonalMatrix:
        super().train(mode)
        if not mode:
            self.baked = self.weight.detach()
        return self

    @property
    def weight(self) -> Tensor:
        """W, in the parameter's shape and precision, computed in float32 at least."""
        X = self.raw.to(torch.promote_types(self.raw.dtype, torch.float32))
        X = X / (X.mT @ X).norm(dim=(-2, -1), keepdim=True).sqrt()
        for _ in range(self.ROUNDS):
            gram = X.mT @ X
            Y = X @ gram
            X = (15 * X - 10 * Y + 3 * Y @ gram) / 8
        return X.to(self.raw.dtype)

    def forward(self, x: Mixed) -> Mixed:
        return x @ (self.baked if torch.compiler.is_exporting() else self.weight)


def matrix(width: int, heads: int | None, orthogonality: Orthogonality) -> nn.Module:
    """Return a square map."""
    kinds: dict[str, Callable[..., nn.Module]] = {"none": Matrix, "penalty": PenalisedMatrix, "exact": OrthogonalMatrix}
    return lookup(kinds, orthogonality, "orthogonality")(width, heads=heads)


def kind(features: type[FeatureMap], **options: object) -> partial[KernelAttention]:
    """Return a kind of attention: it takes the arguments of `training.nn.build_attention`."""
    return partial(KernelAttention, features=partial(features, **options))


SOFTPLUS = kind(SoftplusFeatures)
GLU1, GLU2, GLU3 = (kind(GatedFeatures, units=units) for units in (1, 2, 3))
ORTHOGONAL, ORTHOGONAL_EXACT = (kind(SoftplusFeatures, orthogonality=each) for each in ("penalty", "exact"))
OGLU1, OGLU2, OGLU3 = (kind(GatedFeatures, units=units, orthogonality="penalty") for units in (1, 2, 3))
OGLU1_EXACT, OGLU2_EXACT, OGLU3_EXACT = (kind(GatedFeatures, units=units, orthogonality="exact") for units in (1, 2, 3))
AOGLU3, AOGLU3_EXACT = (kind(GatedFeatures, units=3, orthogonality=each, low=True) for each in ("penalty", "exact"))
