"""The description of a problem that has a classical solver, as the gateway and the training stage use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Classical:
    """A problem with a sampler and a classical solver.

    The module of an equation defines one as `CLASSICAL`; `physics.registry` collects them.

    Attributes:
        name: The problem's name on the wire.
        example: Maps (points per axis, seed) to an input field of the training distribution. One seed is one field on
            every grid.
        solver: Maps an input field to the output field on the same grid, and takes the keyword `points` where the
            output may lie on a grid of its own.
        largest: The most points that are solved in one call, over all fields of a batch; None for no limit of its own.
        slow: Whether a solve takes seconds instead of milliseconds.
    """

    name: str
    example: Callable[[int, int], NDArray[np.float64]]
    solver: Callable[..., NDArray[np.float64]]
    largest: int | None = None
    slow: bool = False

    def solve(self, field: NDArray[np.floating], points: tuple[int, ...] | None = None) -> NDArray[np.float64]:
        """Solve for one input field.

        Args:
            field: The input [*grid], in physical units.
            points: The output's grid where it is not the input's; None for the input's.

        Returns:
            The output field [*grid] or [*points], in physical units.

        Raises:
            ValueError: The field is outside of what the solver accepts.
            ArithmeticError: The solver did not converge.
        """
        return self.solver(field) if points is None else self.solver(field, points=points)
