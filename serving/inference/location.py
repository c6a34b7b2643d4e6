"""A mask of bad values in, the place of the first one out, as the caller knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Place:
    """A value of a named array.

    Attributes:
        array: Its name.
        index: In the batch.
        shown: In the caller's own array, which has no batch axis for a single field.
    """

    array: str
    index: tuple[int, ...]
    shown: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.array}[{','.join(map(str, self.shown))}]"


def first(bad: NDArray[np.bool_], array: str, *, single: bool = False) -> Place:
    """The first true value of a batch."""
    index = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
    return Place(array, index, index[1:] if single else index)
