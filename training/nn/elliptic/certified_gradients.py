r"""Conjugate gradients for :math:`-\nabla\cdot(a\nabla u) = f` on any grid, with a guaranteed bound on what they leave.

The finite volumes are those of `physics.numerics.volumes`. The preconditioner L is the same equation with
:math:`a = 1`. It is inverted exactly by the eigenvectors of both axes (Lynch, Rice & Thomas 1964), which are four
matrix products:

.. math:: L^{-1} r = V_y \left[(V_y^T r V_x) \oslash (\lambda_i + \lambda_j)\right] V_x^T.

Let all conductances belong to coefficients of at least :math:`\mu`, so that :math:`\mu L \le A`. With the step lengths
:math:`g_k`, :math:`z_k = L^{-1} r_k` and :math:`d_k = z_k^T r_k / z_{k-1}^T r_{k-1}`, the Gauss-Radau quadrature (Golub
& Meurant 2010; Meurant & Tichy 2013) bounds the distance of the iterate to the solution of :math:`A u_h = f`:

.. math::
    \|u_h - u_k\|_A^2 \le \gamma_k z_k^T r_k, \qquad \gamma_0 = \frac{1}{\mu}, \qquad
    \gamma_{k+1} = \frac{\gamma_k - g_k}{\mu (\gamma_k - g_k) + d_{k+1}}, \qquad
    \|u_k\|_A^2 = \sum_{j<k} g_j z_j^T r_j \le \|u_h\|_A^2.

The bound on an iterate becomes tighter by the next step, which reduces the error by the known amount
:math:`g_k z_k^T r_k`: :math:`\|u_h - u_k\|_A^2 \le g_k z_k^T r_k + \gamma_{k+1} z_{k+1}^T r_{k+1}`.

`ConjugateGradients` is a layer of a few of these iterations on a fixed grid, without the bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from physics.numerics import grid, volumes
from training.nn.elliptic.fast_diagonalisation import Axis
from training.nn.grids import Plane

TINY = 1e-30  # makes a quotient 0 instead of 0/0 after convergence, for example for a constant permeability

SPECTRUM = 2e-5  # by how much, relatively, rounding moves the eigenvalues of the preconditioned matrix

ROUNDING = 2e-8
"""Relative error in the energy norm that single precision leaves: per point along an axis, at contrast 1.

Every update rounds the iterate, which no residual here sees. On 421 x 421 points 1.23e-8 were measured, for two
materials with a contrast of 1.3.
"""

PerSample = Float[Tensor, "batch 1 1"]


@dataclass(frozen=True)
class Faces:
    """A number per face between the volumes of a grid, walls included."""

    down: Float[Tensor, "batch _ column"]  # between neighbours of a column, `[batch, row + 1, column]`
    across: Float[Tensor, "batch row _"]  # between neighbours of a row, `[batch, row, column + 1]`


@dataclass(frozen=True)
class Volumes:
    """The finite volumes of a rectangle."""

    rows: Axis  # the axis of the rows
    columns: Axis  # the axis of the columns
    inverse: Float[Tensor, "row column"]  # the inverse eigenvalues of the equation with a = 1

    @classmethod
    def of(cls, rows: Axis, columns: Axis) -> Volumes:
        """Return the volumes between two axes."""
        return cls(rows, columns, 1 / (rows.eigenvalues[:, None] + columns.eigenvalues))

    @property
    def areas(self) -> Float[Tensor, "row column"]:
        """The area of each point's volume."""
        return self.rows.widths[:, None] * self.columns.widths

    @property
    def points(self) -> Float[Tensor, ""]:
        """About the number of points along both axes together: the sum of the inverse least widths."""
        return 1 / self.rows.widths.amin(dim=0) + 1 / self.columns.widths.amin(dim=0)

    def conductances(self, coefficient: Faces) -> Faces:
        """Return the coefficient of each face times its length over the distance of its neighbours."""
        down = coefficient.down * (self.columns.widths / self.rows.distances[:, None])
        across = coefficient.across * (self.rows.widths[:, None] / self.columns.distances)
        return Faces(down, across)

    def invert(self, load: Plane) -> Plane:
        """Return the solution for a = 1 and this load."""
        Y, X = self.rows.vectors, self.columns.vectors
        return Y @ (self.inverse * (Y.T @ load @ X)) @ X.T


@dataclass(frozen=True)
class Iterate:
    """The result of conjugate gradients."""

    solution: Plane  # the last iterate `[batch, row, column]`
    error: PerSample  # a bound on its relative distance to the solution in the energy norm `[batch, 1, 1]`


def means(coefficient: Plane) -> Faces:
    """Return the mean of the two neighbours of each face. A face on a wall has one neighbour."""
    return nodal_means(functional.pad(coefficient, (1, 1, 1, 1), mode="replicate"))


def nodal_means(coefficient: Plane) -> Faces:
    """Return the mean of the two neighbours of each face where the outermost points lie on the walls.

    The faces are those of the volumes of the other points: `down` is `[batch, row - 1, column - 2]`.
    """
    a = coefficient
    down, across = (a[:, 1:, 1:-1] + a[:, :-1, 1:-1]) / 2, (a[:, 1:-1, 1:] + a[:, 1:-1, :-1]) / 2
    return Faces(down, across)


def drops(u: Plane) -> Faces:
    """Return the differences across the faces, with u = 0 on the walls."""
    rows, columns = functional.pad(u, (0, 0, 1, 1)), functional.pad(u, (1, 1))
    return Faces(rows[:, 1:] - rows[:, :-1], columns[:, :, 1:] - columns[:, :, :-1])


def outflow(conductances: Faces, u: Plane) -> Plane:
    """Return the flux out of the volume of every point, with u = 0 on the walls."""
    drop = drops(u)
    down, across = conductances.down * drop.down, conductances.across * drop.across
    return (down[:, :-1] - down[:, 1:]) + (across[:, :, :-1] - across[:, :, 1:])


@dataclass(frozen=True)
class Range:
    """Bounds on the coefficients of each sample."""

    low: PerSample  # a positive lower bound `[batch, 1, 1]`
    high: PerSample  # an upper bound `[batch, 1, 1]`


def solve(volumes: Volumes, coefficient: Faces, load: Plane, bounds: Range, steps: int) -> Iterate:
    """Iterate from zero, at least once, for a load of the source times the areas of the volumes."""
    conductances, mu = volumes.conductances(coefficient), bounds.low * (1 - SPECTRUM)
    u, r, energy, gamma = torch.zeros_like(load), load, torch.zeros_like(mu), 1 / mu
    p = z = volumes.invert(r)
    rz = inner(r, z)
    for taken in range(steps + 1):
        q = outflow(conductances, p)
        length = rz / inner(p, q).clamp(min=TINY)
        gain = length * rz
        if taken < steps:
            u, energy = u + length * p, energy + gain
        r = r - length * q
        z, before = volumes.invert(r), rz
        rz = inner(r, z)
        ratio = rz / before.clamp(min=TINY)
        p, rest = z + ratio * p, (gamma - length).clamp(min=0)
        gamma = rest / (mu * rest + ratio).clamp(min=TINY)
    left = torch.sqrt((gain + gamma * rz.clamp(min=0)) / energy.clamp(min=TINY))
    rounded = ROUNDING * volumes.points * torch.sqrt(bounds.high / bounds.low)
    return Iterate(u, torch.where(energy == 0, torch.zeros_like(left), left + rounded))


def distance(volumes: Volumes, plain: Faces, corrected: Faces, load: Plane, found: Iterate) -> PerSample:
    r"""Bound the relative distance of an iterate to the solution for other coefficients of the faces.

    With :math:`A = D^T c D` of the other coefficients c, :math:`A' = D^T c' D` of the iterate's, and its residual r',
    the projection :math:`\|D^T g\|_{A^{-1}} \le \|c^{-1/2} g\|` and :math:`A' \le \max(c'/c) A` give

    .. math::
        \|u_h - u\|_A = \|r' + D^T (c' - c) D u\|_{A^{-1}}
            \le \sqrt{\max(c'/c)}\, \|u'_h - u\|_{A'} + \Bigl(\sum_{faces} \tfrac{(c' - c)^2}{c} (D u)^2\Bigr)^{1/2}.

    It is relative to the lower bound :math:`f^T u / \|u\|_A \le \|u_h\|_A`.
    """
    drop = drops(found.solution)
    changes = [(new - old).square() / old for old, new in pairs(plain, corrected)]
    ratio = torch.maximum(*((new / old).amax(dim=(1, 2), keepdim=True) for old, new in pairs(plain, corrected)))
    moved, energy = (total(volumes.conductances(faces), drop) for faces in (Faces(*changes), plain))
    gain = inner(load, found.solution).clamp(min=TINY)
    bound = (torch.sqrt(moved / gain) + torch.sqrt(ratio) * found.error) * torch.sqrt(energy / gain)
    return torch.where(energy == 0, torch.zeros_like(bound), bound)


def pairs(first: Faces, second: Faces) -> Iterator[tuple[Tensor, Tensor]]:
    """Return the numbers of two sets of faces side by side, down and across."""
    return zip((first.down, first.across), (second.down, second.across), strict=True)


def total(weights: Faces, drop: Faces) -> PerSample:
    """Return the weighted sum of the squares over all faces of each sample."""
    squares = (weight * difference.square() for weight, difference in pairs(weights, drop))
    return torch.stack([square.sum(dim=(1, 2), keepdim=True) for square in squares]).sum(dim=0)


def inner(x: Plane, y: Plane) -> PerSample:
    """Return the inner product of each sample."""
    return (x * y).sum(dim=(1, 2), keepdim=True)


class ConjugateGradients(nn.Module):
    r"""Approximate the solution of :math:`-\nabla\cdot(a\nabla u) = 1` on a fixed grid, with u = 0 on the walls.

    One iteration costs less than one convolution of a network, and reduces the error by about
    :math:`(\sqrt\kappa - 1)/(\sqrt\kappa + 1)` with :math:`\kappa = \max a/\min a`: one third for a permeability of 3
    and 12, on every grid. The layer has no parameters and is differentiable in the permeability. The buffers hold the
    geometry. They follow from the arguments and are not saved.

    Args:
        points: The number of grid points per axis.
        steps: The number of iterations, from zero.
        wall: The distance of the outermost points from the wall, in units of the square's side.

    Example:
        >>> solution, residual = ConjugateGradients(29, steps=5, wall=0.5 / 29)(torch.ones(2, 29, 29))
        >>> bool(residual.abs().max() < 1e-6 * solution.abs().max())
        True
    """

    widths: Tensor
    distances: Tensor
    eigenvalues: Tensor
    vectors: Tensor
    inverse: Tensor

    def __init__(self, points: int, steps: int, wall: float) -> None:
        super().__init__()
        self.steps = steps
        eigenvalues, vectors = (torch.as_tensor(part) for part in volumes.modes(points, wall))
        for name, tensor in {
            "widths": torch.as_tensor(grid.widths(points, wall)),
            "distances": torch.as_tensor(volumes.distances(points, wall)),
            "eigenvalues": eigenvalues,
            "vectors": vectors,
            "inverse": 1 / (eigenvalues[:, None] + eigenvalues),
        }.items():
            self.register_buffer(name, tensor.to(torch.get_default_dtype()), persistent=False)

    def forward(self, coefficient: Plane) -> tuple[Plane, Plane]:
        """Return the last iterate and its preconditioned residual, both of shape `[batch, row, column]`."""
        axis = Axis(self.widths, self.distances, self.eigenvalues, self.vectors)
        square = Volumes(axis, axis, self.inverse)
        conductances = square.conductances(means(coefficient))
        u, r = torch.zeros_like(coefficient), square.areas.expand(coefficient.shape)
        p = z = square.invert(r)
        rz = inner(r, z)
        for _ in range(self.steps):
            q = outflow(conductances, p)
            length = rz / inner(p, q).clamp(min=TINY)
            u, r = u + length * p, r - length * q
            z, before = square.invert(r), rz
            rz = inner(r, z)
            p = z + rz / before.clamp(min=TINY) * p
        return u, z
