"""The registry of problems that have a classical solver, by their names on the wire, and of what sensors infer."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import physics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import ArrayLike, NDArray


class Linear(Protocol):
    """A classical solution and its derivatives, from one factorisation."""

    @property
    def solution(self) -> NDArray[np.float64]:
        """The output [rows, columns]."""
        ...

    def push(self, tangents: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the derivatives of the output along directions of the input [batch, rows, columns]."""
        ...

    def pull(self, cotangents: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the gradients of the inner products of the output and the cotangents [batch, rows, columns]."""
        ...


@dataclass(frozen=True)
class Sensing:
    """A positive input on the unit square, and the output that sensors measure.

    Attributes:
        unknown: The input's name on the wire; the others keep their defaults.
        measured: The output's name.
        positions: Maps a number of grid points to their positions on an axis.
        linearise: Maps an input [rows, columns] to its classical solution with derivatives.
    """

    unknown: str
    measured: str
    positions: Callable[[int], NDArray[np.float64]]
    linearise: Callable[[NDArray[np.float64]], Linear]


@dataclass(frozen=True)
class Classical:
    """A problem with a sampler and a classical solver.

    The module of an equation defines one as `CLASSICAL`.

    Attributes:
        name: The problem's name on the wire.
        example: Maps (points per axis, seed) to an input field of the training distribution. One seed is one field on
            every grid. None where samples are stored instead.
        solver: Maps an input field to the output field on the same grid. It takes further inputs and parameters as
            keywords by their names on the wire, and the keyword `points` where the output may lie on a grid of its own.
        largest: The most points that are solved in one call, over all fields of a batch and all frames; None for no
            limit of its own.
        slow: Whether a solve takes seconds instead of milliseconds.
        exact: Whether a solution satisfies the discrete equation to rounding; an inversion does not.
        bound: Maps an input field, an output field and further inputs by name to a guaranteed bound on the relative
            energy-norm distance between the output and the discrete solution; None where there is none.
        trajectories: Whether the solver maps a state to the frames that follow it, and takes the keywords `frames`, how
            many, and `interval`, the time between two.
        sensing: What is inferred from the output at sensors; None where nothing is.
        others: Names of further problems that the same solver solves.
    """

    name: str
    example: Callable[[int, int], NDArray[np.float64]] | None
    solver: Callable[..., NDArray[np.float64]]
    largest: int | None = None
    slow: bool = False
    exact: bool = True
    bound: Callable[..., float] | None = None
    trajectories: bool = False
    sensing: Sensing | None = None
    others: tuple[str, ...] = ()

    def solve(
        self, field: NDArray[np.floating], points: tuple[int, ...] | None = None, **others: ArrayLike
    ) -> NDArray[np.float64]:
        """Solve for one input field.

        Args:
            field: The input [*grid], in physical units.
            points: The output's grid where it is not the input's; None for the input's.
            others: Further inputs [*grid] and parameters by their names on the wire.

        Returns:
            The output field [*grid] or [*points], of trajectories [frame, *grid], in physical units.

        Raises:
            ValueError: The field is outside of what the solver accepts.
            ArithmeticError: The solver did not converge.
        """
        return self.solver(field, **others) if points is None else self.solver(field, points=points, **others)


class UnknownProblemError(LookupError):
    """No module of `physics` defines a problem of this name; the message lists the known ones."""


@cache
def problems() -> Mapping[str, Classical]:
    """Return every problem that a module of `physics` defines as `CLASSICAL`, by name.

    Example:
        >>> sorted(problems())
        ['burgers', 'burgers_flow', 'darcy', 'darcy_inverse', 'kuramoto_sivashinsky', 'navier_stokes', 'poisson']
    """
    modules = (import_module(f"physics.{found.name}") for found in pkgutil.iter_modules(physics.__path__))
    defined: list[Classical] = [vars(module)["CLASSICAL"] for module in modules if "CLASSICAL" in vars(module)]
    return MappingProxyType({name: problem for problem in defined for name in (problem.name, *problem.others)})


def has(name: str) -> bool:
    """Return whether `physics` has a solver for a problem; modules are imported only where the name may be theirs.

    Example:
        >>> has("darcy_inverse"), has("heat")
        (True, False)
    """
    modules = [found.name for found in pkgutil.iter_modules(physics.__path__)]
    return any(name == module or name.startswith(f"{module}_") for module in modules) and name in problems()


def problem(name: str) -> Classical:
    """Return the problem of a name.

    Raises:
        UnknownProblemError: `physics` has no solver for it.

    Example:
        >>> darcy = problem("darcy")
        >>> pressure = darcy.solve([[1.0] * 16] * 16)
        >>> pressure.shape
        (16, 16)
    """
    if name not in problems():
        raise UnknownProblemError(f'expected one of {", ".join(sorted(problems()))} but got "{name}"')
    return problems()[name]
