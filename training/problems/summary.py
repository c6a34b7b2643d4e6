"""What one pass over a tensor found: its range, mean and deviation, and what float32 does not hold of what varies."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schema.card import COORDINATES

FOUR_DIGITS = 1e-4  # the most that the cast to float32 may lose, in deviations


@dataclass
class Spread:
    """The mean and the deviation of numbers, and what their cast to float32 loses."""

    component: str = ""  # which one of a tensor they are; empty of all its values
    total: float = 0.0
    squares: float = 0.0
    values: int = 0
    first: float = 0.0  # the first value: sums are of differences from it, so that an offset costs no digits
    lost: float = 0.0  # the sum of the squares of what the cast to float32 lost

    @classmethod
    def of(cls, stored: NDArray[Any], component: str = "") -> Spread:
        """Return that of numbers, without those that float32 does not have."""
        found = cls(component)
        finite = stored[np.isfinite(stored) & (np.abs(stored) < np.finfo(np.float32).max)]
        if finite.size:
            found.add(finite.astype(np.float32), finite)
        return found

    def add(self, values: NDArray[np.float32], stored: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> None:
        """Take in values, and what they were before the cast to float32, where they are `valid`, or all of them."""
        chosen = ... if valid is None else valid
        counted = stored[chosen].astype(np.float64)
        if not np.can_cast(stored.dtype, np.float32):
            self.lost += float(np.square(counted - values[chosen]).sum())
        self.first = self.first if self.values else float(counted.flat[0])
        counted -= self.first
        self.total, self.squares = self.total + float(counted.sum()), self.squares + float(np.square(counted).sum())
        self.values += counted.size

    @property
    def mean(self) -> float:
        return self.first + self.total / self.values

    @property
    def deviation(self) -> float:
        if not self.values:  # as of an array of which no value is known, in a draft
            return 0.0
        return float(np.sqrt(max(0.0, self.squares / self.values - (self.total / self.values) ** 2)))

    @property
    def offset(self) -> float:
        """A short number near the mean, which can be subtracted.

        Example:
            >>> Spread.of(101325 + np.array([0.0049, -0.0051])).offset
            101325.0
        """
        return round(self.mean, -math.floor(math.log10(self.deviation)))

    @property
    def unresolved(self) -> str:
        """What float32 does not hold of what varies; empty where it holds four digits or more."""
        if not self.deviation or not self.lost > (FOUR_DIGITS * self.deviation) ** 2 * self.values:
            return ""
        lost, apart = np.sqrt(self.lost / self.values) / self.deviation, np.spacing(np.float32(abs(self.mean)))
        return (
            f"{self.component or 'it'} varies by {self.deviation:.2g} about {self.mean:.10g}, where numbers of float32 "
            f"are {apart:.2g} apart: {min(lost, 1):.2g} of what varies is lost"
        )


@dataclass
class Summary:
    """What one pass over a tensor found: its range, its spread, that of each component, and constant samples."""

    name: str
    components: tuple[Spread, ...] = ()
    whole: Spread = field(default_factory=Spread)
    minimum: float = np.inf
    maximum: float = -np.inf
    constant: int = 0
    digests: list[bytes] = field(default_factory=list)

    def add(
        self,
        values: NDArray[np.float32],
        valid: NDArray[np.bool_] | None = None,
        stored: NDArray[Any] | None = None,
        axis: int = 1,
    ) -> None:
        """Take in some samples, of which padding and what lies outside the domain do not count.

        Args:
            values: The samples.
            valid: Where they count, of a shape that broadcasts to theirs; everywhere by default.
            stored: The values before the cast to float32.
            axis: The axis of the components, if there are any.
        """
        flat = values.reshape(len(values), -1)
        self.minimum, self.maximum = min(self.minimum, float(flat.min())), max(self.maximum, float(flat.max()))
        self.constant += int((flat.min(axis=1) == flat.max(axis=1)).sum()) if flat.shape[1] > 1 else 0
        self.digests += [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in values]
        each: Sequence[NDArray[Any]] = (values, values if stored is None else stored)
        each = each if valid is None else (*each, np.broadcast_to(valid, values.shape))
        self.whole.add(*each)
        for number, one in enumerate(self.components):
            one.add(*(np.take(part, number, axis) for part in each))

    @property
    def mean(self) -> float:
        return self.whole.mean

    @property
    def deviation(self) -> float:
        return self.whole.deviation

    @property
    def unresolved(self) -> list[str]:
        """What float32 does not hold of what varies, and what to do, in sentences: of every component by itself."""
        return [said for one in self.components or (self.whole,) if (said := advice(one, self.name))]


def advice(one: Spread, name: str) -> str:
    """Say what float32 does not resolve of a tensor or a component of it, and what to do; empty where it does."""
    if not one.unresolved:
        return ""
    if not one.component:
        return f"{one.unresolved}; `offset = {one.offset:.10g}` in the table of {name} takes it out before"
    if name == COORDINATES:
        return f"{one.unresolved}; subtract an origin, such as {one.offset:.10g}, here and in requests"
    return (
        f"{one.unresolved}; save its difference from {one.offset:.10g}, which the model then has: `offset` is one "
        "number for all components"
    )
