"""The location of a value in an array, as the caller knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Location:
    """A value of a named array.

    Attributes:
        array: Name of the array.
        index: Index in the batch.
        shown: Index in the caller's own array, which has no batch axis for a single sample.
    """

    array: str
    index: tuple[int, ...]
    shown: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.array}[{','.join(map(str, self.shown))}]" if self.shown else self.array


def first(mask: NDArray[np.bool_], array: str, *, single: bool = False) -> Location:
    """Return the location of the first true value of a mask.

    Args:
        mask: A mask over a batch, with at least one true value.
        array: Name of the array that it belongs to.
        single: Whether the caller sent one sample, without a batch axis.

    Returns:
        Its location in C order.
    """
    index = tuple(int(i) for i in np.unravel_index(int(mask.argmax()), mask.shape))
    return Location(array, index, index[1:] if single else index)
