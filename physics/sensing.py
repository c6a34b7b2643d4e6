"""Which input of a problem is inferred from its output at sensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray


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
