r"""The convolutional residual block of the paper's code, on fields of the plane.

.. math::
    y = \mathrm{act}(F(x) + S(x)), \qquad F = \mathrm{drop} \circ \mathrm{conv}, \quad\text{or}\quad
    F = \mathrm{drop} \circ \mathrm{conv} \circ \mathrm{act} \circ \mathrm{drop} \circ \mathrm{conv}

:math:`S` is the identity, or a linear map at every point where the widths differ. Without residual it is zero.
"""

from __future__ import annotations

from torch import nn

from training.nn.activations import Activation, build_activation
from training.nn.dropout import Dropout
from training.nn.shapes import Channels, Features


class ResidualBlock(nn.Module):
    """Convolve once or twice by 3 x 3 stencils without bias, add the input, and activate; see the formula above.

    It keeps the grid if `padding` is 1, and has no size that depends on it.

    Args:
        inputs: The number of channels in.
        outputs: The number of channels out.
        padding: The zeros around the field, of the first convolution. The second always keeps the grid.
        residual: Add the input.
        double: Convolve twice.
        activation: The activation.
        dropout: The dropout rate after every convolution. It is 0 in evaluation.

    Raises:
        ValueError: A residual is requested of a block that changes the grid.

    References:
        | Choose a Transformer: Fourier or Galerkin (Cao, NeurIPS 2021), `Conv2dResBlock` of its code
        | https://arxiv.org/abs/2105.14995

    Example:
        >>> ResidualBlock(3, 5, residual=True, double=True)(torch.randn(2, 3, 20, 30)).shape
        torch.Size([2, 5, 20, 30])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        padding: int = 1,
        residual: bool = False,
        double: bool = False,
        activation: Activation = "silu",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if residual and padding != 1:
            raise ValueError(f"expected padding 1, which keeps the grid, of a residual block but got {padding}")
        first = nn.Conv2d(inputs, outputs, 3, padding=padding, bias=False)
        self.convolution = nn.Sequential(first, Dropout(dropout))
        if double:
            second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
            self.convolution.extend([build_activation(activation), second, Dropout(dropout)])
        self.shortcut: nn.Module | None = shortcut(inputs, outputs) if residual else None
        self.activation = build_activation(activation)

    def forward(self, x: Channels) -> Features:
        convolved = self.convolution(x)
        return self.activation(convolved if self.shortcut is None else convolved + self.shortcut(x))


def shortcut(inputs: int, outputs: int) -> nn.Module:
    """Return the identity, or a linear map at every point where the numbers of channels differ."""
    return nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)
