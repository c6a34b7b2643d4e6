r"""Trained square matrices of feature maps, one per head or one for all heads.

| start and training | class |
|---|---|
| Glorot's uniform numbers, free | `Matrix` |
| orthogonal, with :math:`\|W^TW - I\|_F^2` in the loss | `PenalisedMatrix` |
| orthogonal, and kept so exactly | `OrthogonalMatrix` |

All have a property `weight` of shape `[head, width, width]`, or `[width, width]` where the heads share one matrix.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from training.nn.shapes import Mixed

Orthogonality = Literal["none", "penalty", "exact"]


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

    ROUNDS = 10  # each multiplies a small singular value by 15/8: enough from 0.01 of their root mean square

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
    """Return a square map.

    Args:
        width: The number of features per head.
        heads: The number of matrices; None for one that all heads share.
        orthogonality: Whether it starts orthogonal, and what keeps it so.
    """
    match orthogonality:
        case "none":
            return Matrix(width, heads=heads)
        case "penalty":
            return PenalisedMatrix(width, heads=heads)
        case "exact":
            return OrthogonalMatrix(width, heads=heads)


def factored(width: int, rank: int, heads: int | None) -> nn.Module:
    """Return a square map of a lower rank, as a product of two maps.

    Args:
        width: The number of features per head.
        rank: Its rank.
        heads: The number of maps; None for one that all heads share.
    """
    return nn.Sequential(Matrix(width, rank, heads=heads), Matrix(rank, width, heads=heads))


def penalty(network: nn.Module) -> Tensor | None:
    r"""Return :math:`\sum\|W^TW - I\|_F^2` over the penalised matrices of a network, None if there are none."""
    found = [module.penalty() for module in network.modules() if isinstance(module, PenalisedMatrix)]
    return torch.stack(found).sum() if found else None
