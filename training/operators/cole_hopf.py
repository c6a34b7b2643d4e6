r"""The closed form of Burgers' equation as one head of softmax attention: no parameter is trained.

.. code-block:: text

    initial [B, N], viscosity [B], time [B]
      -> without its mean, as the Fourier series F of its antiderivative on K periodic keys y
      -> one softmax over the keys for each of Q queries x
      -> the Fourier series of the result, translated by mean times time, at the N points
    final [B, N]

With positions as queries, keys and values, and with b as a bias per key, the velocity is (Cole, Quart. Appl. Math. 9,
1951; Hopf, Comm. Pure Appl. Math. 3, 1950)

.. math::
    u(x, t) = \frac{1}{t} \Bigl(x - \sum_y \sigma_y(q_x k_y + b_y)\, y\Bigr), \qquad
    q_x = \frac{x}{2 \nu t},\ k_y = y,\ b_y = -\frac{1}{2\nu} \Bigl(F(y) + \frac{y^2}{2t}\Bigr).

The score is :math:`-(F(y) + (x-y)^2/2t)/2\nu` up to a term that all keys share, so the softmax is that of relative
positions :math:`\delta = x - y`, and this is how it is evaluated: scores of absolute positions would cancel. F has
period 1, so the keys of all periods differ in :math:`\delta` alone. With :math:`|\delta| \le 1/2` for the nearest
image and :math:`e_j = e^{-(2\delta j + j^2)/4 \nu t}`,

.. math::
    u = \frac{1}{t} \sum_y \sigma_y\Bigl(-\frac{F(y)}{2\nu} - \frac{\delta^2}{4 \nu t} + \log K(\delta)\Bigr) V(\delta),
    \quad K = \sum_j e_j,\ V = \frac{1}{K} \sum_j (\delta + j) e_j.

No term of K exceeds 1. The sum over the keys is the trapezoidal rule of the exact integral, which converges faster than
any power of K for smooth integrands. All of it is computed in double precision.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor

from schema.parts import Frozen
from training.nn.grids import Line, indices
from training.nn.lines import analyse, synthesise
from training.nn.spectral import turn
from training.operators.operator import Operator, OperatorKind

VISCOSITY, TIME = 0.01, 1.0

Number = Float[Tensor, " batch"]
Column = Float[Tensor, "batch 1"]
Displacements = Float[Tensor, " displacement"]
ByDisplacement = Float[Tensor, "batch displacement"]
Scores = Float[Tensor, "batch query key"]


class ColeHopfConfig(Frozen):
    """Sizes of the closed form. They bound the steepness of what is resolved, not the grid."""

    kind: Literal["cole-hopf"] = "cole-hopf"
    keys: PositiveInt = 512  # K, points of one period that the integral is summed over
    refinement: PositiveInt = 2  # Q / K; a front is steeper than the weights of a softmax
    images: PositiveInt = 3  # periods on either side


class ColeHopfOperator(Operator):
    """See the formulas of the module.

    Example:
        >>> operator = ColeHopfOperator(ColeHopfConfig())
        >>> initial = torch.sin(2 * torch.pi * torch.arange(65) / 65)[None]
        >>> operator(initial, torch.tensor([0.01]), torch.tensor([0.1])).max()
        tensor(0.9607)
    """

    config: ColeHopfConfig

    def __init__(self, config: ColeHopfConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, initial: Line, viscosity: Number | None = None, time: Number | None = None) -> Line:
        """Return the velocity `[batch, point]` at `time` (1 by default), for a viscosity (0.01), at x_i = i/n."""
        u, nu, t = initial.double(), column(viscosity, initial, VISCOSITY), column(time, initial, TIME)
        [points] = indices(initial.shape[1:], initial.device)
        mean = u.mean(1, keepdim=True)
        final = self.attend(self.potential(u - mean, points), nu, t)
        return (mean + self.sample(final, mean * t, points)).to(initial.dtype)

    def potential(self, u: Line, points: Tensor) -> Float[Tensor, "batch key"]:
        """Return the antiderivative of velocities without mean at the keys 0, -1/K, ..., up to a constant."""
        keys, wave = indices((self.config.keys, self.config.keys // 2), u.device)
        wave = wave[1:]
        n = points[-1:] + 1
        # Cosines of the highest wave number of an even grid count once; its sines vanish at every point.
        weight = torch.where(2 * wave < n, 2, torch.where(2 * wave == n, 1, 0)).double() / n.double()
        even, odd = (part * weight / (turn(u.dtype) * wave) for part in analyse(u, points, wave))
        return synthesise(-odd, -even, keys, wave)

    def attend(self, potential: Float[Tensor, "batch key"], nu: Column, t: Column) -> Float[Tensor, "batch query"]:
        """Return the velocity at the queries in the frame of the mean velocity: one head of softmax attention."""
        weights, displacements = self.head(potential, nu, t)
        return (weights * displacements).sum(-1) / t

    def head(self, potential: Float[Tensor, "batch key"], nu: Column, t: Column) -> tuple[Scores, Scores]:
        """Return the softmax of the scores, and the values: the mean displacements x - y of a key's images."""
        fine = self.config.keys * self.config.refinement
        [offset] = indices((fine,), potential.device)
        # x - y in [-1/2, 1/2), by the difference of the indices on the grid of the queries
        displacement = (torch.remainder(offset + fine // 2, fine) - fine // 2).double() / fine
        bias, value = self.relative(displacement, 4 * nu * t)
        scores = self.toeplitz(bias) - (potential / (2 * nu))[:, None]
        return scores.softmax(dim=-1), self.toeplitz(value)

    def weights(self, initial: Line, viscosity: Number | None = None, time: Number | None = None) -> Scores:
        """Return the attention weights, with queries and keys in ascending order, for velocities without mean."""
        u, nu, t = initial.double(), column(viscosity, initial, VISCOSITY), column(time, initial, TIME)
        [points] = indices(initial.shape[1:], initial.device)
        return self.head(self.potential(u, points), nu, t)[0].flip(-1).roll(1, -1)

    def relative(self, displacement: Displacements, width: Column) -> tuple[ByDisplacement, ByDisplacement]:
        """Return the score and the mean displacement of all images of a key, by the displacement of the nearest."""
        nearest = -displacement.square() / width
        total, moment = torch.ones_like(nearest), displacement + torch.zeros_like(nearest)
        for image in (sign * j for j in range(1, self.config.images + 1) for sign in (-1, 1)):
            share = torch.exp(-(2 * displacement * image + image**2) / width)
            total, moment = total + share, moment + (displacement + image) * share
        return nearest + torch.log(total), moment / total

    def toeplitz(self, values: ByDisplacement) -> Scores:
        """Return the values of all pairs of a query and a key by those of their displacements.

        On the grid of the queries, query R q + r and key -d differ by R (q + d) + r, where R is the refinement. A
        periodic sequence that is read in rows of one element more than its period starts each row one element later.
        """
        K, refinement = self.config.keys, self.config.refinement
        batch = values.shape[0]
        # [batch, residue, difference of the coarse indices]
        by_residue = values.unflatten(1, (K, refinement)).transpose(1, 2)
        rows = by_residue[:, :, None].expand(-1, -1, K + 1, -1).reshape(batch, refinement, K, K + 1)[..., :K]
        return rows.transpose(1, 2).reshape(batch, K * refinement, K)

    def sample(self, final: Float[Tensor, "batch query"], shift: Column, points: Tensor) -> Line:
        """Return the trigonometric interpolant of values at the queries, translated, at other points."""
        fine = self.config.keys * self.config.refinement
        queries, wave = indices((fine, fine // 2), final.device)
        weight = torch.where(wave > 0, 2, 1).double() / fine
        even, odd = (part * weight for part in analyse(final, queries, wave))
        angle = turn(shift.dtype) * torch.frac(shift) * wave
        cos, sin = torch.cos(angle), torch.sin(angle)
        return synthesise(even * cos - odd * sin, even * sin + odd * cos, points, wave)


def column(values: Number | None, like: Line, default: float) -> Column:
    """Return one number per sample in double precision, of shape `[batch, 1]`."""
    found = like.new_full(like.shape[:1], default) if values is None else values
    return found.double()[:, None]


OPERATOR = OperatorKind("cole-hopf", ColeHopfConfig, ColeHopfOperator)
