r"""The finite volumes of :math:`-\Delta` on one axis and their exact eigenvectors, for any number of points.

The points have equal distances :math:`h`, and the outermost ones lie :math:`w = \rho h \le h/2` inside the walls, where
u = 0. The three-point stiffness K and the widths W are those of `physics.numerics.volumes`. The eigenvectors of
:math:`K v = \lambda W v` are cosines and sines about the middle :math:`c`,

.. math::
    v_i = \cos\bigl(\theta_k (i - c) - \tfrac{(k-1)\pi}{2}\bigr), \qquad
    \lambda_k = \tfrac{4}{h^2} \sin^2 \tfrac{\theta_k}{2}, \qquad
    \theta_k c + \arctan\frac{\sin\theta_k}{1/\rho - 2\rho(1 - \cos\theta_k)} = \tfrac{k\pi}{2}.

Walls that are nearer than half a distance replace the last two by modes that decay from both walls, an even and an odd
one,

.. math::
    v_i = (-1)^i \bigl(e^{-\eta i} \pm e^{-\eta(n-1-i)}\bigr), \qquad \lambda = \tfrac{4}{h^2} \cosh^2 \tfrac{\eta}{2}.

The angles follow from Newton's iteration and the decays from a fixed point. For :math:`\rho = 1/2`, the centres of
equal cells, the transform is the discrete sine transform of type II. An exported graph computes all of this from the
shape of its input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

NEWTON = 3  # Newton iterations for the angles. They suffice for 15 points and more.

DECAYS = 5  # iterations for the decays. One is enough except where the walls are nearly half a distance away.

TOUCHING = 1e-9  # closer to half a distance than this, walls count as those of equal cells


@dataclass(frozen=True)
class Axis:
    r"""The finite volumes of one axis."""

    widths: Float[Tensor, " point"]  # the width of each point's volume `[point]`; they add up to 1
    distances: Float[Tensor, " face"]  # the distance across each face `[face]`, from wall to wall; they add up to 1
    eigenvalues: Float[Tensor, " point"]  # of :math:`K v = \lambda W v`
    vectors: Float[Tensor, "point point"]  # the eigenvectors as columns, with :math:`V^T W V = 1`


def axis(index: Tensor, wall: Tensor | float, dtype: torch.dtype) -> Axis:
    """Return the finite volumes of an axis; its walls are at most half a spacing from the outermost points.

    Example:
        >>> axis(torch.arange(4), 0.125, torch.float64).widths
        tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
    """
    last = index[-1:].double()
    wall = wall + torch.zeros_like(last)
    h = (1 - 2 * wall) / last
    faces = torch.cat([index, index[-1:] + 1])
    widths = torch.where((index == 0) | (index == index[-1:]), wall + h / 2, h)
    distances = torch.where((faces == 0) | (faces == faces[-1:]), wall, h)
    vectors, roots = modes(index, wall / h, dtype)
    norms = (widths.to(dtype)[:, None] * vectors.square()).sum(dim=0).rsqrt()
    return Axis(widths.to(dtype), distances.to(dtype), (roots / h).square().to(dtype), vectors * norms)


def nodal_axis(index: Tensor, dtype: torch.dtype) -> Axis:
    """Return the finite volumes of the points between the ends of an axis whose outermost points lie on the walls.

    Their eigenvectors are those of the discrete sine transform of type I.

    Example:
        >>> nodal_axis(torch.arange(5), torch.float64).widths
        tensor([0.2500, 0.2500, 0.2500], dtype=torch.float64)
    """
    last, inside = index[-1:].double(), index[1:-1].double()
    h, k = 1 / last, inside
    phase = (math.pi / last) * torch.remainder(inside[:, None] * k, 2 * last)
    vectors = torch.sin(reduced(phase).to(dtype)) * math.sqrt(2)
    roots = 2 / h * torch.sin((math.pi / 2) * k / last)
    widths, distances = torch.ones_like(inside) * h, torch.ones_like(index[1:].double()) * h
    return Axis(widths.to(dtype), distances.to(dtype), roots.square().to(dtype), vectors)


def modes(index: Tensor, rho: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return eigenvectors, not normalised, and the roots of their eigenvalues in units of 1/h, for walls at rho h."""
    i, last = index.double(), index[-1:].double()
    theta, decay = angles(i + 1, last / 2, rho), decays(last, rho)
    phase = theta * (i[:, None] - last / 2) - (math.pi / 2) * i
    vectors, roots = torch.cos(reduced(phase).to(dtype)), 2 * torch.sin(theta / 2)
    at_walls = rho < 0.5 - TOUCHING
    pair = torch.where(at_walls, localised(index, decay).to(dtype), vectors[:, -2:])
    pair_roots = torch.where(at_walls, torch.exp(decay / 2) + torch.exp(-decay / 2), roots[-2:])
    return torch.cat([vectors[:, :-2], pair], dim=1), torch.cat([roots[:-2], pair_roots])


def angles(k: Tensor, centre: Tensor, rho: Tensor) -> Tensor:
    """Return the angles of the eigenvectors k = 1..n around the middle; see the formula of the module."""
    theta = k * (math.pi / 2) / (centre + rho)
    for _ in range(NEWTON):
        sine, cosine = torch.sin(theta / 2), torch.cos(theta / 2).clamp(min=TOUCHING)
        below = (1 / rho - 4 * rho).clamp(min=0) + 4 * rho * cosine.square()
        above = 2 * sine * cosine
        slope = ((cosine.square() - sine.square()) * below + 2 * rho * above.square()) / (
            below.square() + above.square()
        )
        # The arctangent needs no more than single precision, in which runtimes have one.
        shift = torch.atan((above / below).float()).double()
        theta = theta + (k * (math.pi / 2) - shift - theta * centre) / (centre + slope)
    return theta


def decays(last: Tensor, rho: Tensor) -> Float[Tensor, " 2"]:
    r"""Return the decays :math:`\eta` of the even and of the odd mode at the walls.

    With :math:`E = e^\eta` and :math:`T = \tanh(\eta c)` for the even mode, its inverse for the odd one,

    .. math:: E (T/2 + \rho) + (\rho - T/2)/E = 1/\rho - 2\rho.
    """
    sign = 1 - 2 * torch.arange(2, dtype=rho.dtype, device=rho.device)
    right, tangent = 1 / rho - 2 * rho, torch.ones_like(sign)
    for _ in range(DECAYS):
        root = (right.square() + tangent.square() - 4 * rho.square()).clamp(min=0).sqrt()
        eta = torch.log((right + root) / (tangent + 2 * rho)).clamp(min=TOUCHING)
        end = sign * torch.exp(-eta * last)
        tangent = (1 - end) / (1 + end)
    return eta


def localised(index: Tensor, decay: Float[Tensor, " 2"]) -> Float[Tensor, "point 2"]:
    """Return the even and the odd mode at the walls."""
    near = torch.exp(-decay * index[:, None])
    far = torch.exp(-decay * (index[-1:] - index)[:, None])
    sign = 1 - 2 * torch.arange(2, dtype=decay.dtype, device=decay.device)
    return (1 - 2 * (index[:, None] % 2)) * (near + sign * far)


def reduced(phase: Tensor) -> Tensor:
    """Return angles in [-pi, pi], so that single precision has all its digits."""
    return phase - (2 * math.pi) * torch.round(phase / (2 * math.pi))
