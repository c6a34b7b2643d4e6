r"""The operator for Darcy flow with any permeability and source: finite volumes whose conductances a network corrects.

.. code-block:: text

    coefficient [B, H, W]
      -> position between least and greatest value, on a logarithmic scale, in [-1, 1]
      -> convolutions on the grid of the input -> a correction of every face's conductance
    source [B, H, W], corrected conductances
      -> conjugate gradients on the grid of the input, with a bound on what they leave
      -> a bound on the distance to the finite volumes without corrections
    solution [B, H, W], error_bound [B, 1] (without corrections), solve_bound [B, 1] (with them)

The fields are samples of a finer mesh, so the conductance between two points depends on where the interface between two
materials lies. The points around show that. The network moves the logarithm of each face's conductance from the mean of
both neighbours towards the least or the greatest value of the field:

.. math::
    \log c = \log \bar c + \lambda \left[(1 - \sigma) t_+ - \sigma t_-\right], \qquad
    \sigma = \log(\bar c / a_{\min}) / \lambda, \qquad \lambda = \log(a_{\max} / a_{\min}), \qquad |t| \le 1.

So every conductance stays between both, the matrix is symmetric and positive definite, and convergence and bound are
those of the equation without corrections. The network sees no units and no source: the solution is linear in the source
and inversely proportional to the coefficient.

The points of an axis are the centres of equal cells (`cells`), every k-th centre of a finer mesh (`strided`), or reach
from wall to wall (`nodes`). On `nodes` the solution is 0 on the walls, the volumes are those of the points between, and
the coefficient on a wall counts in the mean of the first face.

The correction t vanishes smoothly where nothing is known below the grid: for coefficients of more than two values, for
contrasts far from the trained one, and on the mesh itself. There the result is that of the finite volumes.

The *refined* operator makes no corrections and more iterations: its result is that of the finite volumes themselves,
for callers who demand a small `error_bound`, and for inputs that the network was not trained for.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from schema.parts import Frozen
from training.nn.elliptic.certified_gradients import Faces, Iterate, Range, Volumes, distance, means, nodal_means, solve
from training.nn.elliptic.fast_diagonalisation import axis, nodal_axis
from training.nn.grids import Plane, indices
from training.operators.operator import Operator, OperatorKind

PURITY = 0.05
"""Mean distance from two values, between 0 and 1, at which the correction has fallen to 1/e."""

CONVERGED, REFINED = 1e-2, 1e-4
"""The largest `solve_bound` of a solution that is sent as it is: of the operator and of the refined one.

With corrections, 1e-2 in the energy norm is below the discretisation error of the fields that they are for. The refined
operator is for all others, smooth ones included, whose discretisation error is about 1e-5.
"""

EXPONENT = 126
"""Powers of two between this and its opposite have an inverse that single precision holds."""

SMALLEST = 1e-12
"""Makes a quotient of logarithms 0 instead of 0/0 for a constant coefficient."""


class EllipticConfig(Frozen):
    """Sizes of an elliptic operator."""

    kind: Literal["elliptic"] = "elliptic"
    mesh: PositiveInt = 421  # cells per axis of the mesh that the fields are samples of
    points: Literal["strided", "cells", "nodes"] = "strided"  # see the module
    coarsest: PositiveFloat = 10.0  # the largest trained distance of neighbours, in cells of the mesh
    channels: PositiveInt = 32
    layers: int = 3  # convolutions between the first one and the head
    contrast: PositiveFloat = 4.0  # trained ratio of the two values
    reach: PositiveFloat = 1.0  # how far, as a difference of logarithms of logarithms, the contrast may be from it
    steps: PositiveInt = 7  # conjugate gradient iterations
    refined: PositiveInt | None = None  # those of a second graph, without corrections; None for no such graph


@dataclass(frozen=True)
class System:
    """Discrete equations of a batch, in units in which coefficients are about 1 and sources at most 1."""

    volumes: Volumes
    plain: Faces  # the coefficient of each face without corrections
    corrected: Faces  # the coefficient of each face
    load: Plane  # the source times the areas of the volumes, `[batch, row, column]`
    bounds: Range  # bounds on both coefficients
    unit: Float[Tensor, "batch 1 1"]  # the unit of the solution, `[batch, 1, 1]`


class EllipticOperator(Operator):
    """See the diagram of the module.

    Example:
        >>> operator = EllipticOperator(EllipticConfig(channels=4, layers=1))
        >>> solution, error_bound, solve_bound = operator.with_quality(torch.rand(2, 40, 30) + 1)
        >>> solution.shape, error_bound.shape, solve_bound.shape
        (torch.Size([2, 40, 30]), torch.Size([2, 1]), torch.Size([2, 1]))
    """

    config: EllipticConfig
    quality = ("error_bound", "solve_bound")
    optional = True
    solve_limit = CONVERGED
    contains_solver = True
    corrects = True

    def __init__(self, config: EllipticConfig) -> None:
        super().__init__()
        self.config = config
        self.correction = Correction(config.channels, config.layers)

    def forward(self, *fields: Plane) -> Plane:
        system = self.system(*fields)
        return self.on_grid(self.iterate(system).solution * system.unit)

    def refined(self) -> EllipticOperator | None:
        """Return the operator that takes `config.refined` iterations and makes no corrections."""
        if self.config.refined is None:
            return None
        found = copy.copy(self)
        found.config = self.config.model_copy(update={"steps": self.config.refined, "refined": None})
        found.corrects, found.solve_limit = False, REFINED
        return found

    def canonical(self, *fields: Tensor) -> tuple[Tensor, ...]:
        """Return the coefficient over its mean on a logarithmic scale, and the source over its largest value."""
        coefficient, source = fields if len(fields) > 1 else (fields[0], torch.ones_like(fields[0]))
        low, high = (extreme(coefficient, dim=(1, 2), keepdim=True) for extreme in (torch.amin, torch.amax))
        return coefficient / torch.sqrt(low) / torch.sqrt(high), source / largest(source)

    def with_quality(self, *fields: Plane) -> tuple[Plane, Float[Tensor, "batch 1"], Float[Tensor, "batch 1"]]:
        """Return the solution, and bounds `[batch, 1]` on its distances to those without and with corrections."""
        system = self.system(*fields)
        found = self.iterate(system)
        plain = found.error
        if self.corrects:
            plain = distance(system.volumes, system.plain, system.corrected, system.load, found)
        return self.on_grid(found.solution * system.unit), plain[:, :, 0], found.error[:, :, 0]

    def iterate(self, system: System) -> Iterate:
        """Return the iterate of the corrected equations after the operator's number of steps."""
        return solve(system.volumes, system.corrected, system.load, system.bounds, self.config.steps)

    def system(self, *fields: Plane) -> System:
        """Return the discrete equations to a permeability, and to a source where it is not 1."""
        coefficient, source = fields if len(fields) > 1 else (fields[0], torch.ones_like(fields[0]))
        low, high = (extreme(coefficient, dim=(1, 2), keepdim=True) for extreme in (torch.amin, torch.amax))
        scale, strength = power_of_two(torch.sqrt(low) * torch.sqrt(high)), power_of_two(largest(source))
        volumes, scaled = self.volumes(coefficient), coefficient / scale
        plain = self.means(scaled)
        return System(
            volumes=volumes,
            plain=plain,
            corrected=self.faces(scaled) if self.corrects else plain,
            load=self.unknown(source / strength) * volumes.areas,
            bounds=Range(low / scale, high / scale),
            unit=strength / scale,
        )

    def volumes(self, coefficient: Plane) -> Volumes:
        """Return the finite volumes of the coefficient's grid."""
        if self.config.points == "nodes":
            sides = indices(coefficient.shape[1:], coefficient.device)
            return Volumes.of(*(nodal_axis(index, coefficient.dtype) for index in sides))
        axes = []
        for index in indices(coefficient.shape[1:], coefficient.device):
            cells = index[-1:].double() + 1 if self.config.points == "cells" else self.config.mesh
            axes.append(axis(index, 0.5 / cells, coefficient.dtype))
        return Volumes.of(*axes)

    def faces(self, coefficient: Plane) -> Faces:
        """Return the corrected coefficient of every face."""
        low, high = (extreme(coefficient, dim=(1, 2), keepdim=True) for extreme in (torch.amin, torch.amax))
        span = torch.log(high / low)
        level = torch.log(coefficient / low) / span.clamp(min=SMALLEST)
        rows, columns = (self.spacing(index) for index in indices(coefficient.shape[1:], coefficient.device))
        strength = self.confidence(level, span) * (1 - 1 / (rows * columns))
        spacing = torch.cat([rows, columns]).clamp(max=self.config.coarsest)
        moved = self.correction(2 * level - 1, torch.log2(spacing).to(coefficient.dtype))
        if self.config.points == "nodes":  # no face lies outside of a point on a wall
            moved = Faces(moved.down[:, 1:-1, 1:-1], moved.across[:, 1:-1, 1:-1])
        mean = self.means(coefficient)
        down, across = (
            mean_ * torch.exp(span * towards(torch.log(mean_ / low) / span.clamp(min=SMALLEST), strength.to(mean_) * t))
            for mean_, t in ((mean.down, moved.down), (mean.across, moved.across))
        )
        return Faces(down, across)

    def means(self, coefficient: Plane) -> Faces:
        """Return the mean of both neighbours of every face."""
        return nodal_means(coefficient) if self.config.points == "nodes" else means(coefficient)

    def unknown(self, field: Plane) -> Float[Tensor, "batch _ _"]:
        """Return a field at the points whose solution is unknown: all of them, or those that lie on no wall."""
        return field[:, 1:-1, 1:-1] if self.config.points == "nodes" else field

    def on_grid(self, solution: Plane) -> Float[Tensor, "batch _ _"]:
        """Return a solution at all points of the grid."""
        return functional.pad(solution, (1, 1, 1, 1)) if self.config.points == "nodes" else solution

    def spacing(self, index: Tensor) -> Float[Tensor, " 1"]:
        """Return the distance of neighbours on an axis in cells of the mesh."""
        if self.config.points == "cells":
            return self.config.mesh / (index[-1:].double() + 1)
        return (self.config.mesh - 1) / index[-1:].double()

    def confidence(self, level: Plane, span: Tensor) -> Float[Tensor, "batch 1 1"]:
        """Return how far, between 0 and 1, coefficients resemble the trained ones."""
        mixed = (4 * level * (1 - level)).mean(dim=(1, 2), keepdim=True)
        distance = torch.log(span.clamp(min=SMALLEST) / math.log(self.config.contrast))
        return torch.exp(-(mixed / PURITY).square() - (distance / self.config.reach).square())


class Correction(nn.Module):
    """Find the corrections of the faces' conductances from the coefficient around.

    The convolutions work on blocks of two by two points, whose features a strided convolution computes.
    """

    BEFORE = 2  # points of the head's grid before the first face

    def __init__(self, channels: int, layers: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 6, stride=2, padding=4)
        self.spacing = nn.Linear(2, channels)
        self.layers = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(layers))
        self.head = nn.Conv2d(channels, 8, 3, padding=1)
        nn.init.normal_(self.head.weight, std=1e-3)

    def forward(self, level: Plane, spacing: Float[Tensor, " 2"]) -> Faces:
        """Return corrections in [-1, 1] for positions between least and greatest value, and log2 of the spacing."""
        x = functional.relu(self.stem(level[:, None]) + self.spacing(spacing)[:, None, None])
        for layer in self.layers:
            x = functional.relu(layer(x) + x)
        faces = torch.tanh(functional.pixel_shuffle(self.head(x), 2))
        rows, columns = (side + self.BEFORE for side in level.shape[1:])
        down = faces[:, 0, self.BEFORE : rows + 1, self.BEFORE : columns]
        across = faces[:, 1, self.BEFORE : rows, self.BEFORE : columns + 1]
        return Faces(down, across)


def largest(source: Plane) -> Float[Tensor, "batch 1 1"]:
    """Return the largest absolute value of each sample, or 1 where there is none but 0."""
    strength = source.abs().amax(dim=(1, 2), keepdim=True)
    return torch.where(strength > 0, strength, torch.ones_like(strength))


def power_of_two(x: Tensor) -> Tensor:
    """Return the nearest power of two that has an inverse in single precision.

    Division by it is exact. It does not change with small changes of x, so the derivative of a result that does not
    depend on the scale is not the difference of two large numbers.
    """
    return torch.exp2(torch.round(torch.log2(x)).clamp(-EXPONENT, EXPONENT))


def towards(position: Tensor, t: Tensor) -> Tensor:
    """Return the step from a position in [0, 1] by the share t of the way to 1, or by the share -t to 0."""
    return torch.relu(t) * (1 - position) - torch.relu(-t) * position


OPERATOR = OperatorKind("elliptic", EllipticConfig, EllipticOperator)
