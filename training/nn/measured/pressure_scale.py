r"""The scale of a measured pressure, estimated from its shape.

The pressure of permeabilities c a is u/c. A scale is homogeneous: that of c u is c times that of u. The root mean
square of u is one, and varies little between the fields of one distribution. What it varies with shows in the shape of
u: in its first sine waves, and in how often the averaged curvatures are of which size,

.. math::
    s(u) = \frac{|u|}{|u_0|}\, e^{g(x)}, \qquad
    x = \Bigl(\frac{\langle \sin_j \sin_k, u\rangle}{|u|},\
    \bigl\langle \tanh 2\bigl(\mathrm{asinh}(-\Delta_w u / 2|u|) - t_i\bigr) \bigr\rangle\Bigr),

with a small network g that is fitted such that s = 1 for the training fields, at several levels of noise.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from physics.numerics.grid import WALL
from training.nn.coordinates import indices, unit_axis
from training.nn.measured.curvature import FEATURES, Axis, derivatives
from training.nn.normaliser import Normaliser
from training.nn.shapes import Plane

MODES = 4
"""Sine waves along each axis."""

WIDTHS = (1.0, 2.0, 4.0)
"""Widths of the averaged curvatures, in steps of their grid."""

THRESHOLDS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)
"""Sizes of the averaged curvatures, on a scale of inverse hyperbolic sines."""

LEVELS = (0.0, 0.01, 0.1)
"""Noise of the fields that the estimate is fitted to, in units of their deviation."""

STEPS, BATCH, RATE, DECAY = 1500, 256, 5e-3, 1e-2
"""Of the fit by AdamW."""

SMALLEST = 1e-36
"""The mean square of a pressure of 0, which has a derivative."""


class PressureScale(nn.Module):
    """See the formula of the module.

    Args:
        side: Side of the grid of the averaged curvatures.
        hidden: Hidden features of the network.

    Example:
        >>> scale, u = PressureScale(8), torch.rand(2, 40, 30)
        >>> torch.allclose(scale(u / 4), scale(u) / 4)
        True
    """

    reference: Tensor
    thresholds: Tensor

    def __init__(self, side: int, hidden: int = 48) -> None:
        super().__init__()
        self.side = side
        self.register_buffer("reference", torch.ones(()))
        self.register_buffer("thresholds", torch.tensor(THRESHOLDS), persistent=False)
        shape = MODES**2 + len(WIDTHS) * len(THRESHOLDS)
        self.normaliser = Normaliser((shape,))
        self.network = nn.Sequential(nn.Linear(shape, hidden), nn.SiLU(), nn.Linear(hidden, 1))
        self.network.requires_grad_(requires_grad=False)  # `fit` does what training would

    def forward(self, solution: Plane) -> Float[Tensor, "batch 1 1"]:
        shape = self.normaliser(self.shape(solution)).clamp(-4, 4)
        return size(solution) / self.reference * torch.exp(self.network(shape))[:, :, None]

    def shape(self, solution: Plane) -> Float[Tensor, "batch _"]:
        """Return numbers that do not depend on the scale."""
        relative, working = solution / size(solution), torch.arange(self.side, device=solution.device)
        axes = [Axis(index, working, WALL, solution.dtype) for index in indices(solution.shape[1:], solution.device)]
        rows, columns = (self.waves(index, solution.dtype) for index in indices(solution.shape[1:], solution.device))
        found = [(rows @ relative @ columns.T).flatten(1).to(self.reference.dtype)]
        dtype = self.reference.dtype
        slopes = derivatives(relative, axes, WIDTHS, dtype).unflatten(1, (len(WIDTHS), FEATURES))
        sizes = torch.asinh(-(slopes[:, :, -2] + slopes[:, :, -1]) / 2).flatten(2)
        found += [torch.tanh(2 * (sizes - each)).mean(dim=2) for each in self.thresholds.to(sizes.dtype).unbind()]
        return torch.cat(found, dim=1)

    def waves(self, index: Tensor, dtype: torch.dtype) -> Float[Tensor, "wave point"]:
        """Return the first sine waves at the points of an axis, over the number of points."""
        number = 1 + torch.arange(MODES, device=index.device)
        position = WALL + (1 - 2 * WALL) * unit_axis(index, dtype)
        return torch.sin(math.pi * number.to(dtype)[:, None] * position) / (index[-1:] + 1).to(dtype)

    @torch.no_grad()
    def fit(self, solutions: Plane) -> None:
        """Fit the estimate to training fields, whose scale is 1."""
        generator, deviation = torch.Generator().manual_seed(0), solutions.std(dim=0)
        shapes, sizes = [], []
        for level in LEVELS:
            for part in solutions.split(16):
                noise = torch.randn(part.shape, generator=generator, dtype=part.dtype)
                measured = part + level * deviation * noise
                shapes.append(self.shape(measured))
                sizes.append(size(measured)[:, 0, 0].log())
        self.normaliser.fit(torch.cat(shapes))
        logarithm = torch.cat(sizes)
        self.reference.copy_(logarithm.mean().exp())
        self.train_network(self.normaliser(torch.cat(shapes)).clamp(-4, 4), logarithm - logarithm.mean(), generator)

    @torch.enable_grad()
    def train_network(self, shapes: Tensor, logarithms: Tensor, generator: torch.Generator) -> None:
        """Fit the network's output to minus the logarithm of the relative size.

        Args:
            shapes: Standardised shapes `[sample, number]`.
            logarithms: Of the sizes, relative to their mean `[sample]`.
            generator: Draws the batches.
        """
        network = self.network.requires_grad_()
        optimiser = torch.optim.AdamW(network.parameters(), RATE, weight_decay=DECAY)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=STEPS)
        for _ in range(STEPS):
            chosen = torch.randint(0, len(shapes), (BATCH,), generator=generator)
            loss = (network(shapes[chosen])[:, 0] + logarithms[chosen]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        network.requires_grad_(requires_grad=False)


def size(solution: Plane) -> Float[Tensor, "batch 1 1"]:
    """Return the root mean square of each pressure, and a small number where it is 0."""
    return solution.square().mean(dim=(1, 2), keepdim=True).clamp(min=SMALLEST).sqrt()
