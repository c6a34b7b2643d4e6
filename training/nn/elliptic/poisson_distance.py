r"""The exact distance of any potential to the discrete solution of :math:`-\Delta u = f`, on any grid of the unit cube.

The scheme and the energy norm are those of `physics.poisson`, on any number of axes. The eigenvectors of its second
differences are sines,

.. math::
    S_{jk} = \sqrt{\tfrac{2}{m}} \sin \tfrac{\pi j k}{m}, \qquad \lambda_k = 4 m^2 \sin^2 \tfrac{\pi k}{2m}, \qquad
    m = n - 1, \quad j, k = 1 \ldots m - 1,

so that one matrix product per axis, a division and the same products again solve the equation (Lynch, Rice & Thomas
1964). The potential is compared with that solution: where the coefficient is 1, conjugate gradients with this
preconditioner have converged after one step, and their bound is the distance itself.

All is computed in float64, so that rounding is far below the distances of any single-precision potential.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from training.nn.grids import Field, indices

ROUNDING = 1e-12  # relative error in the energy norm that double precision leaves: per point along the axes together

ABOVE = 1 + 1e-6  # rounds the distance up in single precision


def poisson_bound(source: Field, potential: Field) -> Float[Tensor, "batch 1"]:
    """Return the relative distance of potentials `[batch, *grid]` to the discrete solutions in the energy norm.

    It is rounded up; 0 where both are 0, and infinite where the solution alone is 0.

    Example:
        >>> poisson_bound(torch.zeros(1, 5, 5, 5), torch.zeros(1, 5, 5, 5))
        tensor([[0.]])
    """
    f, u = source.double(), potential.double()
    axes = indices(f.shape[1:], f.device)
    exact = solution(f, axes)
    error, size = energy(exact - u, axes), energy(exact, axes)
    points = torch.stack([index[-1:] for index in axes]).sum(dim=0)
    distance = torch.sqrt(error / size) * ABOVE + ROUNDING * points.double()
    # A quotient of zeros is no number; without a solution any other potential is infinitely far away.
    nothing = torch.where(error > 0, torch.full_like(error, torch.inf), torch.zeros_like(error))
    return torch.where(size > 0, distance, nothing)[:, None].to(potential.dtype)


def solution(source: Tensor, axes: list[Tensor]) -> Tensor:
    """Return the discrete solution `[batch, *grid]` of -Laplace u = f with u = 0 on the walls."""
    found, total = source, torch.zeros((), dtype=source.dtype, device=source.device)
    for axis, index in enumerate(axes):
        found = along(sines(index), found, axis)
        total = total[..., None] + eigenvalues(index)
    found = found / total
    for axis, index in enumerate(axes):
        found = along(sines(index).T, found, axis)
    return found


def sines(index: Tensor) -> Float[Tensor, "wave point"]:
    """Return the eigenvectors as rows, which are 0 on the walls."""
    last = index[-1:]
    product = (index[1:-1, None] * index) % (2 * last)
    # Sines at the far wall are 0 and not rounded.
    product = torch.where(index == last, torch.zeros_like(product), product)
    return torch.sqrt(2 / last.double()) * torch.sin(math.pi * product.double() / last.double())


def eigenvalues(index: Tensor) -> Float[Tensor, " wave"]:
    """Return the eigenvalues of the second differences of an axis."""
    last = index[-1:].double()
    return (2 * last * torch.sin(math.pi / 2 * index[1:-1].double() / last)).square()


def energy(u: Tensor, axes: list[Tensor]) -> Float[Tensor, " batch"]:
    """Return the square of the energy norm of each sample; see `physics.poisson.bound`."""
    parts = []
    for axis, index in enumerate(axes, start=1):
        zero = torch.zeros_like(u.narrow(axis, 0, 1))
        before, after = torch.cat([zero, u], dim=axis), torch.cat([u, zero], dim=axis)
        weighted = (after - before).square() * index[-1:].double()
        for other, points in enumerate(axes, start=1):
            if other != axis:
                weighted = (weighted.movedim(other, -1) * widths(points)).movedim(-1, other)
        parts.append(weighted.flatten(1).sum(dim=1))
    return torch.stack(parts).sum(dim=0)


def widths(index: Tensor) -> Float[Tensor, " point"]:
    """Return the part of an axis that each of its points stands for, half as much at a wall."""
    last = index[-1:]
    whole = 1 / last.double() + torch.zeros_like(index, dtype=torch.float64)
    return torch.where((index == 0) | (index == last), whole / 2, whole)


def along(matrix: Float[Tensor, "to points"], x: Tensor, axis: int) -> Tensor:
    """Multiply a matrix along an axis of the grid `[batch, *grid]`."""
    return (x.movedim(axis + 1, -1) @ matrix.T).movedim(-1, axis + 1)
