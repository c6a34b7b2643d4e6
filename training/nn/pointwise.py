"""What acts on every number by itself: activations by name, dropout, and standardisation."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from training.nn.shapes import Field
from training.registry import lookup

Activation = Literal["silu", "relu", "gelu", "none"]

ACTIVATION: dict[str, type[nn.Module]] = {"silu": nn.SiLU, "relu": nn.ReLU, "gelu": nn.GELU, "none": nn.Identity}


def build_activation(name: str) -> nn.Module:
    """Return a new activation layer.

    Raises:
        UnknownNameError: There is no such activation; the message lists the known names.

    Example:
        >>> build_activation("silu")
        SiLU()
    """
    return lookup(ACTIVATION, name, "kind of activation")()


LEVELS = 2**16  # values of the 16 random bits of an entry


class Dropout(nn.Dropout):
    r"""Set entries to 0 with probability :math:`p` in training and scale the others by :math:`1/(1-p)`.

    Torch's dropout draws one random number per entry. This one draws 64 random bits for four entries, which saves a
    sixth of a training step at the published rates. The probability is rounded to a multiple of 1/65536. In evaluation
    the layer is the identity.

    Example:
        >>> Dropout(0.5).eval()(torch.ones(3))
        tensor([1., 1., 1.])
    """

    def forward(self, x: Tensor) -> Tensor:
        dropped = round(self.p * LEVELS)
        if not self.training or not dropped:
            return x
        bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(2**63), None)
        drawn = bits.view(torch.int16)[: x.numel()].view(x.shape)
        kept = drawn >= dropped - LEVELS // 2 if dropped < LEVELS else torch.zeros_like(x, dtype=torch.bool)
        return torch.where(kept, x * (LEVELS / max(1, LEVELS - dropped)), 0.0)


#: Keeps a point that never varies, such as one on a wall, from a division by zero.
EPSILON = 1e-5


class Normaliser(nn.Module):
    r"""Standardise fields by the mean and the standard deviation of the training fields.

    .. math::
        z = (x - \mu) / \sigma

    The statistics are buffers, which are saved with the weights and exported with the graph: one pair of numbers for
    the whole field, one per channel, or one per grid point of a fixed grid.

    Args:
        grid: The shape of the statistics of one sample; `()` for one pair of numbers. The statistics are averaged over
            axes of length 1.
        relative: Add `EPSILON` times the standard deviation of the whole set to each deviation. Otherwise add `EPSILON`
            in physical units, as the reference project does.

    Example:
        >>> normaliser = Normaliser()
        >>> normaliser.fit(torch.tensor([[1.0, 3.0]]))
        >>> normaliser(torch.tensor([[1.0, 3.0]])).round(decimals=3)
        tensor([[-1.,  1.]])
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, grid: tuple[int, ...] = (), *, relative: bool = True) -> None:
        super().__init__()
        self.relative = relative
        self.register_buffer("mean", torch.zeros(grid))
        self.register_buffer("deviation", torch.ones(grid))

    @torch.no_grad()
    def fit(self, fields: Field) -> None:
        """Set mean and deviation to those of the samples `[sample, *grid]`, in physical units."""
        fields, grid = fields.double(), self.mean.shape or (1,) * (fields.ndim - 1)
        averaged = (0, *(axis for axis, side in enumerate(grid, start=1) if side == 1))
        deviation, mean = torch.std_mean(fields, dim=averaged, correction=0, keepdim=True)
        self.mean.copy_(mean.reshape(self.mean.shape))
        floor = EPSILON * (fields.std(correction=0) if self.relative else 1)
        self.deviation.copy_((deviation + floor).reshape(self.mean.shape))

    def forward(self, x: Field) -> Field:
        return (x - self.mean) / self.deviation

    def inverse(self, z: Field) -> Field:
        r"""Return the field in physical units, :math:`x = \sigma z + \mu`."""
        return z * self.deviation + self.mean
