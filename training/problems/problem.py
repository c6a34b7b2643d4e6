"""What each model answers, in words and limits: takes a model's problem by name, gives its quantities, units and grids.

The single source of the names on the wire: checkpoints carry their `Problem`, the export derives every signature,
config and card from it, and nothing downstream knows a problem by heart.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Quantity(BaseModel):
    """One field: its name on the wire, what it means and in which units."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    meaning: str
    units: str
    positive: bool = False


class GridLimits(BaseModel):
    """Points per axis: what is accepted, and the sizes that are measured, warmed and labelled in metrics."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    minimum: int
    maximum: int
    declared: tuple[int, ...]


class Problem(BaseModel):
    """A map from one field to another on a grid.

    `axes` names the axes of a field; `points` says in words where the grid points lie. The answer lies on the
    question's grid, unless `answer` fixes its points per axis.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    equation: str
    boundary: str
    input: Quantity
    output: Quantity
    axes: tuple[str, ...]
    points: str
    grid: GridLimits
    distribution: str
    answer: tuple[int, ...] | None = None


DARCY = Problem(
    name="darcy",
    title="Darcy flow: permeability to pressure",
    equation="-div(a grad u) = 1 on the unit square",
    boundary="u = 0 on the boundary",
    input=Quantity(name="coefficient", meaning="permeability", units="1", positive=True),
    output=Quantity(name="solution", meaning="pressure", units="1"),
    axes=("row", "column"),
    points="x_i = (1/2 + 420 i/(n-1))/421 per axis: cell centres of a 421-cell mesh, strided; walls 0.5/421 outside",
    grid=GridLimits(minimum=15, maximum=421, declared=(85, 141, 211, 421)),
    distribution=(
        "a = 12 where z >= 0 and 3 elsewhere; "
        "z is a Gaussian field with covariance (-Laplace + 9)^-2 and zero Neumann conditions"
    ),
)

DARCY_INVERSE = Problem(
    name="darcy_inverse",
    title="Darcy flow inverted: measured pressure to permeability",
    equation=DARCY.equation,
    boundary=DARCY.boundary,
    input=DARCY.output,
    output=Quantity(name="coefficient", meaning="permeability averaged over blocks", units="1", positive=True),
    axes=DARCY.axes,
    points=(
        f"{DARCY.points}; the answer's block j of 36 covers the cells 12j-4 to 12j+7 of the 421 on each axis, "
        "as far as they are inside"
    ),
    grid=DARCY.grid,
    distribution=f"{DARCY.distribution}; u is the pressure to it",
    answer=(36, 36),
)

NEURALOP_DARCY = Problem(
    name="neuralop_darcy",
    title="Darcy flow in the set of the neuraloperator library: material to pressure",
    equation="-div(a grad u) = f on the unit square; f/a = 50 where the material is 0, 2.78 where it is 1",
    boundary=DARCY.boundary,
    input=Quantity(name="material", meaning="0 or 1: which of two permeabilities, 18 times apart", units="1"),
    output=DARCY.output,
    axes=DARCY.axes,
    points="x_i = (512 i/n + 1/2)/512 per axis: cell centres of a 512-cell mesh, strided; none at the far wall",
    grid=GridLimits(minimum=8, maximum=64, declared=(16, 32)),
    distribution="the 1000 training fields of 16 x 16 points in the wheel of neuraloperator 0.3.0",
)

BURGERS = Problem(
    name="burgers",
    title="Burgers' equation: initial velocity to velocity at t = 1",
    equation="u_t + u u_x = nu u_xx, nu = 0.01, up to t = 1",
    boundary="periodic on [0, 1)",
    input=Quantity(name="initial", meaning="velocity at t = 0", units="1"),
    output=Quantity(name="final", meaning="velocity at t = 1", units="1"),
    axes=("point",),
    points="x_i = i/n",
    grid=GridLimits(minimum=64, maximum=8192, declared=(512, 1024, 2048, 8192)),
    distribution="a Gaussian field with covariance 625 (-Laplace + 25)^-2, periodic, zero mean",
)

POISSON = Problem(
    name="poisson",
    title="Poisson's equation: source to potential in space",
    equation="-Laplace u = f on the unit cube",
    boundary="u = 0 on the boundary",
    input=Quantity(name="source", meaning="source", units="1"),
    output=Quantity(name="potential", meaning="potential", units="1"),
    axes=("depth", "row", "column"),
    points="x_i = i/(n-1) per axis, walls included",
    grid=GridLimits(minimum=8, maximum=33, declared=(9, 17, 33)),
    distribution=(
        "the 8 lowest cosines per axis of a Gaussian field with covariance 100 (-Laplace + 9)^-2 "
        "and zero Neumann conditions"
    ),
)

PROBLEMS: dict[str, Problem] = {
    problem.name: problem for problem in (DARCY, DARCY_INVERSE, NEURALOP_DARCY, BURGERS, POISSON)
}
