"""The range of numbers that arrive one after another, in a few words."""

from __future__ import annotations

from typing import Any

import numpy as np


class Span:
    """The range of the finite ones of some numbers.

    Attributes:
        low: The least of them, infinite where there is none.
        high: The greatest of them.
        unknown: How many others there are.
    """

    def __init__(self, numbers: Any = ()) -> None:
        self.low, self.high, self.unknown = np.inf, -np.inf, 0
        self.add(numbers)

    def add(self, numbers: Any) -> None:
        """Count further numbers in."""
        array = np.asarray(numbers)
        known = array[np.isfinite(array)]
        self.unknown += array.size - known.size
        if known.size:
            self.low, self.high = min(self.low, float(known.min())), max(self.high, float(known.max()))

    def __str__(self) -> str:
        if self.low > self.high:
            return "unknown"
        known = f"{self.low:.3g}" if self.low == self.high else f"{self.low:.3g} to {self.high:.3g}"
        return f"{known} (unknown for {self.unknown})" if self.unknown else known
