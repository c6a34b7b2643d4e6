r"""Positive feature maps, whose inner products are the kernels of linear attention.

.. math::
    k(q, k) = \phi(q)^T\phi(k), \qquad \phi(x) > 0

:math:`x` is a row of the head's width :math:`n`. All heads of a layer share one map. Yorsh & Kovalenko, *Linear
Self-Attention Approximation via Trainable Feedforward Kernel*, arXiv 2211.04076, train the map:

| map | formula | parameters |
|---|---|---|
| softplus | Softplus(x W) | n^2 |
| GLU, u units | units x Wf * sigmoid(x Wg), the last Softplus(x Wf) * sigmoid(x Wg) | 2 u n^2 |
| O-GLU | the same with orthogonal Wf | 2 u n^2 |
| AO-GLU | the same with Wg = A B, A of n x r, B of r x n, r = n/4 | 3/2 u n^2 |
| elu | elu(x) + 1 (Katharopoulos et al., ICML 2020, arXiv 2006.16236) | 0 |
| random | positive random features of exp(q k / sqrt(n)) (Choromanski et al., ICLR 2021, arXiv 2009.14794) | 0 |

A map costs :math:`O(n^2)` per token and unit. Three GLU units on heads of 64 features add 3 % to the parameters of a
layer of the published text classifier. One map per head would add 12 %, more than the 10 % that the method allows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.nn.shapes import Mixed


class FeatureMap(nn.Module):
    """Map every token to positive features, `[batch, head, token, width]` to `[batch, head, token, feature]`."""

    def forward(self, x: Mixed) -> Mixed:
        raise NotImplementedError

    def orthogonality(self) -> Tensor:
        r"""Return the penalty :math:`\sum\|W_f^TW_f - I\|_F^2` over the matrices :math:`W_f` of the map, or 0.

        Added to a loss, it keeps matrices nearly orthogonal without a constraint.
        """
        matrices = [matrix.weight for matrix in self.modules() if isinstance(matrix, Matrix | OrthogonalMatrix)]
        gaps = [(W.T @ W - torch.eye(W.shape[1], dtype=W.dtype, device=W.device)).square().sum() for W in matrices]
        return torch.stack(gaps).sum() if gaps else torch.zeros(())


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
    r"""Compute :math:`\mathrm{Softplus}(xW)` with a trained matrix W.

    Args:
        width: The number of features per head, n.
        orthogonal: Keep W orthogonal in training. Otherwise it only starts orthogonal, and `orthogonality` measures its
            distance.

    Example:
        >>> SoftplusFeatures(16, orthogonal=True)(torch.randn(2, 4, 10, 16)).shape
        torch.Size([2, 4, 10, 16])
    """

    def __init__(self, width: int, *, orthogonal: bool = False) -> None:
        super().__init__()
        self.value = matrix(width, orthogonal=orthogonal)

    def forward(self, x: Mixed) -> Mixed:
        return functional.softplus(self.value(x))


class GatedFeatures(FeatureMap):
    r"""Apply a stack of trained gated linear units, the last of which makes the features positive.

    .. math::
        x \leftarrow xW_f\odot\sigma(xW_g), \qquad \phi(x) = \mathrm{Softplus}(xW_f)\odot\sigma(xW_g)

    Args:
        width: The number of features per head, n.
        units: The number of units, u.
        orthogonal: Keep every Wf orthogonal in training.
        factored: Use gates of rank n/4.

    Example:
        >>> GatedFeatures(16, units=2)(torch.randn(2, 4, 10, 16)).shape
        torch.Size([2, 4, 10, 16])
    """

    def __init__(self, width: int, *, units: int, orthogonal: bool = False, factored: bool = False) -> None:
        super().__init__()
        self.units = nn.Sequential(
            *(GatedUnit(width, orthogonal=orthogonal, factored=factored) for _ in range(units - 1)),
            GatedUnit(width, orthogonal=orthogonal, factored=factored, positive=True),
        )

    def forward(self, x: Mixed) -> Mixed:
        return self.units(x)


class GatedUnit(nn.Module):
    r"""Compute :math:`\alpha(xW_f)\odot\sigma(xW_g)`, with :math:`\alpha` Softplus if `positive`, else the identity."""

    def __init__(self, width: int, *, orthogonal: bool, factored: bool, positive: bool = False) -> None:
        super().__init__()
        self.value = matrix(width, orthogonal=orthogonal)
        self.gate = factored_matrix(width, max(1, width // 4)) if factored else nn.Linear(width, width, bias=False)
        self.activation = nn.Softplus() if positive else nn.Identity()

    def forward(self, x: Mixed) -> Mixed:
        return self.activation(self.value(x)) * torch.sigmoid(self.gate(x))


class Matrix(nn.Linear):
    """A square linear map without bias that starts orthogonal."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width, bias=False)
        nn.init.orthogonal_(self.weight)


class OrthogonalMatrix(nn.Module):
    r"""Multiply by the orthogonal matrix :math:`W = \mathrm{polar}(M)` nearest to the trained matrix :math:`M`.

    It is computed by Newton and Schulz's iteration of third order, :math:`X \leftarrow X(15I - 10X^TX +
    3(X^TX)^2)/8`, from :math:`X = M/\|M^TM\|_F^{1/2}`. The iteration consists of products and corrects its own
    rounding. An exported graph holds W as it was when the module was last set to evaluation, instead of the hundreds of
    nodes that compute it.
    """

    ROUNDS = 10  # each multiplies a small singular value by 15/8: enough from 0.01 of their root mean square

    baked: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.raw = nn.Parameter(nn.init.orthogonal_(torch.empty(width, width)))
        self.register_buffer("baked", self.raw.detach().clone(), persistent=False)

    def train(self, mode: bool = True) -> OrthogonalMatrix:
        super().train(mode)
        if not mode:
            self.baked = self.weight.detach()
        return self

    @property
    def weight(self) -> Tensor:
        """W, of shape `[width, width]`, in the parameter's precision and computed in float32 at least."""
        X = self.raw.to(torch.promote_types(self.raw.dtype, torch.float32))
        X = X / (X.T @ X).norm().sqrt()
        for _ in range(self.ROUNDS):
            gram = X.T @ X
            Y = X @ gram
            X = (15 * X - 10 * Y + 3 * Y @ gram) / 8
        return X.to(self.raw.dtype)

    def forward(self, x: Mixed) -> Mixed:
        return x @ (self.baked if torch.compiler.is_exporting() else self.weight)


def matrix(width: int, *, orthogonal: bool) -> nn.Module:
    """Return a square map that starts orthogonal and, if requested, stays orthogonal."""
    return OrthogonalMatrix(width) if orthogonal else Matrix(width)


def factored_matrix(width: int, rank: int) -> nn.Module:
    """Return a square map of a lower rank, as a product of two maps."""
    return nn.Sequential(*(nn.Linear(*sizes, bias=False) for sizes in ((width, rank), (rank, width))))
