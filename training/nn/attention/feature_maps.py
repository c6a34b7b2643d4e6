r"""Positive features of queries and keys: takes tokens of a head, gives features whose inner product is the kernel.

.. math::
    k(q, k) = \phi(q)^T\phi(k), \qquad \phi(x) > 0,

with :math:`x` a row of the head's width :math:`n` and one map for all heads of a layer. Yorsh & Kovalenko, *Linear
self-attention approximation via trainable feedforward kernel*, arXiv 2211.04076, train the map:

| map | formula | parameters |
|---|---|---|
| softplus | Softplus(x W) | n^2 |
| GLU, u units | units x Wf * sigmoid(x Wg), the last Softplus(x Wf) * sigmoid(x Wg) | 2 u n^2 |
| O-GLU | the same with orthogonal Wf | 2 u n^2 |
| AO-GLU | the same with Wg = A B, A of n x r, B of r x n, r = n/4 | 3/2 u n^2 |
| elu | elu(x) + 1 (Katharopoulos et al., ICML 2020, arXiv 2006.16236) | 0 |
| random | positive random features of exp(q k / sqrt(n)) (Choromanski et al., ICLR 2021, arXiv 2009.14794) | 0 |

A map costs :math:`O(n^2)` a token and unit. Three GLU units on heads of 64 features add 3 % to a layer of the published
text classifier; maps of every head's own would add 12 %, over the 10 % that the method allows itself.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.nn.attention.heads import tracing
from training.nn.shapes import Mixed


class FeatureMap(nn.Module):
    """Positive features of every token, `[batch, head, token, width] -> [batch, head, token, feature]`."""

    def forward(self, x: Mixed) -> Mixed:
        raise NotImplementedError

    def orthogonality(self) -> Tensor:
        r"""Give the penalty :math:`\sum\|W_f^TW_f - I\|_F^2` over the map's matrices :math:`W_f`; 0 if it has none.

        To be added to a loss, where a matrix should be nearly orthogonal without being forced to.
        """
        matrices = [matrix.weight for matrix in self.modules() if isinstance(matrix, Matrix | OrthogonalMatrix)]
        gaps = [(W.T @ W - torch.eye(W.shape[1], dtype=W.dtype, device=W.device)).square().sum() for W in matrices]
        return torch.stack(gaps).sum() if gaps else torch.zeros(())


class EluFeatures(FeatureMap):
    r"""Give :math:`\mathrm{elu}(x) + 1`, fixed."""

    def forward(self, x: Mixed) -> Mixed:
        return functional.relu(x) + x.clamp(max=0).exp()  # the sum elu(x) + 1 would round to 0 from x = -17


class RandomFeatures(FeatureMap):
    r"""Give :math:`\phi(x) = \exp(\pm\Omega^Ty - |y|^2/2)/\sqrt{2n}` with :math:`y = x/n^{1/4}`, fixed: 2n features.

    Directions :math:`\Omega` are orthogonal with the lengths of normal vectors, drawn at construction and saved, so
    that :math:`E\,\phi(q)^T\phi(k) = \exp(q^Tk/\sqrt n)`, softmax attention's kernel. Meant for normalised tokens:
    features of far longer ones underflow.
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
    r"""Give :math:`\mathrm{Softplus}(xW)`, trained.

    Args:
        width: features of a head, n.
        orthogonal: keep W orthogonal in training; else it only starts so, and `orthogonality` tells how far it went.
    """

    def __init__(self, width: int, *, orthogonal: bool = False) -> None:
        super().__init__()
        self.value = matrix(width, orthogonal=orthogonal)

    def forward(self, x: Mixed) -> Mixed:
        return functional.softplus(self.value(x))


class GatedFeatures(FeatureMap):
    """Give a stack of gated linear units, of which the last makes its features positive, trained.

    Args:
        width: features of a head, n.
        units: how many, u.
        orthogonal: keep every Wf orthogonal in training.
        factored: gates are of rank n/4.
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
    r"""Give :math:`\alpha(xW_f)\odot\sigma(xW_g)`, with :math:`\alpha` Softplus if `positive`, else the identity."""

    def __init__(self, width: int, *, orthogonal: bool, factored: bool, positive: bool = False) -> None:
        super().__init__()
        self.value = matrix(width, orthogonal=orthogonal)
        self.gate = factored_matrix(width, max(1, width // 4)) if factored else nn.Linear(width, width, bias=False)
        self.activation = nn.Softplus() if positive else nn.Identity()

    def forward(self, x: Mixed) -> Mixed:
        return self.activation(self.value(x)) * torch.sigmoid(self.gate(x))


class Matrix(nn.Linear):
    """A square linear map without bias that starts orthogonal and may leave."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width, bias=False)
        nn.init.orthogonal_(self.weight)


class OrthogonalMatrix(nn.Module):
    r"""Multiply by the orthogonal matrix :math:`W = \mathrm{polar}(M)` nearest to the trained :math:`M`.

    Newton and Schulz's iteration of third order, :math:`X \leftarrow X(15I - 10X^TX + 3(X^TX)^2)/8` from
    :math:`X = M/\|M^TM\|_F^{1/2}`: products alone, which correct their own rounding. A graph that is exported holds W
    as it was when the module was last put into evaluation, instead of hundreds of nodes that compute it.
    """

    ROUNDS = 10  # each lets a small singular value grow by 15/8: enough from 0.01 of their root mean square

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
        """W, `[width, width]`, in the parameter's precision but computed in float32 at least."""
        X = self.raw.to(torch.promote_types(self.raw.dtype, torch.float32))
        X = X / (X.T @ X).norm().sqrt()
        for _ in range(self.ROUNDS):
            gram = X.T @ X
            Y = X @ gram
            X = (15 * X - 10 * Y + 3 * Y @ gram) / 8
        return X.to(self.raw.dtype)

    def forward(self, x: Mixed) -> Mixed:
        return x @ (self.baked if tracing() or torch.compiler.is_exporting() else self.weight)


def matrix(width: int, *, orthogonal: bool) -> nn.Module:
    """Give a square map that starts orthogonal, and stays so if asked."""
    return OrthogonalMatrix(width) if orthogonal else Matrix(width)


def factored_matrix(width: int, rank: int) -> nn.Module:
    """Give a square map of a lower rank, as a product."""
    return nn.Sequential(*(nn.Linear(*sizes, bias=False) for sizes in ((width, rank), (rank, width))))
