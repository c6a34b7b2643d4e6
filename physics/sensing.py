"""Which input of a problem is inferred from its output at sensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Sensing:
    """A positive input on the unit square, and the output that sensors measure.

    Attributes:
        unknown: The input's name on the wire; the others keep their defaults.
        measured: The output's name.
        positions: Maps a number of grid points to their positions on an axis.
    """

    unknown: str
    measured: str
    positions: Callable[[int], NDArray[np.float64]]
