"""Integrals of fields over a grid or some of its ends, of tensors and of arrays alike.

A network computes its outputs of this kind with it, and so does what reads the data: the number that is predicted is
that of the predicted field. On a grid the rule of the axis decides the weights: cells and periodic points count alike,
and of nodes at both ends the outermost a half. On an end of cells, where no value lies, it is the line through the two
nearest ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

NODES, CELLS = "nodes", "cells"


@dataclass(frozen=True)
class Along:
    """An axis of a grid: where its points lie, its length, and their numbers `[point]` as floats from 0."""

    rule: str
    length: float
    index: Any

    @property
    def weights(self) -> Any:
        """What every point counts, `[point]`; they sum to the length."""
        last = self.index[-1:]
        if self.rule == NODES:
            halved = (self.index == 0) * 0.5 + (self.index == last) * 0.5
            return (1 - halved) * (self.length / last)
        return 0 * self.index + self.length / (last + 1)


def over_grid(values: Any, axes: Sequence[Along], ends: Sequence[tuple[int, int]] = ()) -> Any:
    """Integrate `[..., *grid]` over the grid, or over some ends `(axis, 0 or -1)` of it.

    Example:
        >>> import numpy as np
        >>> x = np.linspace(0, 2, 5)
        >>> axis = Along("nodes", 2.0, np.arange(5.0))
        >>> float(over_grid(x, [axis])), float(over_grid(x, [axis], [(0, -1)]))
        (2.0, 2.0)
    """
    if not ends:
        for axis in reversed(axes):
            values = (values * axis.weights).sum(-1)
        return values
    found = None
    for number, end in ends:
        others = [*axes[:number], *axes[number + 1 :]]
        part = over_grid(trace(values, number - len(axes), end, axes[number].rule), others)
        found = part if found is None else found + part
    return found


def trace(values: Any, axis: int, end: int, rule: str) -> Any:
    """Return the values at an end (0 or -1) of an axis, which is counted from the last."""
    behind = (slice(None),) * (-axis - 1)
    outermost = values[(..., end, *behind)]
    if rule != CELLS:
        return outermost
    return 1.5 * outermost - 0.5 * values[(..., 1 if end == 0 else -2, *behind)]
