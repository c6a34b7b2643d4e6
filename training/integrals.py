"""Integrals of fields over a grid, some of its ends or points, of tensors and of arrays alike.

An integral of an output is no map that is learned: a network computes it from the field that it predicts, as what reads
the data does from that of the data. On a grid the rule of the axis decides the weights: cells and periodic points count
alike, and of nodes at both ends the outermost a half. On an end of cells, where no value lies, it is the line through
the two nearest ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from schema.parts import Frozen

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


class IntegralConfig(Frozen):
    """An integral of an output field, over a grid or over points by what each of them measures."""

    output: int  # the number of the field among the outputs
    component: int | None = None  # which component of it; None for all, or where it has none
    # The numbers of the arguments that multiply the field, and which component of each; None where it has none.
    factors: tuple[tuple[int, int | None], ...] = ()
    ends: tuple[tuple[int, int], ...] = ()  # axes and ends (0 or -1) that it is taken over; none for the whole grid
    lengths: tuple[float, ...] = ()  # of the axes; none on points
    factor: float = 1.0

    def of(
        self,
        outputs: Sequence[Any] | Mapping[int, Any],
        inputs: Sequence[Any] | Mapping[int, Any],
        rules: Sequence[str] = (),
        inside: Any = None,
    ) -> Any:
        """Integrate an output `[batch, (component), *grid]`, or on points `[batch, point, (component)]`.

        Args:
            outputs: The fields by their numbers, 0 outside the domain and at padding.
            inputs: The arguments of the network.
            rules: Per axis where its points lie; none on points.
            inside: Where the arguments mean something, a tensor `[batch, *grid]` or `[batch, point]`; None for
                everywhere.

        Returns:
            Numbers `[batch, (component)]`.

        Example:
            >>> one = IntegralConfig(output=0, lengths=(2.0, 3.0))
            >>> [round(number, 4) for number in one.of([np.ones((1, 4, 5))], [], ["cells", "nodes"]).tolist()]
            [6.0]
        """
        axes = max(1, len(rules))
        values = channel(outputs[self.output], axes, self.component, last=not rules)
        vector = values.ndim > 1 + axes
        for number, component in self.factors:
            weight = channel(inputs[number], axes, component, last=not rules)
            weight = weight if inside is None else weight.where(inside, weight.new_zeros(()))
            values = values * (weight[:, :, None] if vector and not rules else weight[:, None] if vector else weight)
        if not rules:
            return self.factor * values.sum(1)
        numbers = [counted(values, side) for side in values.shape[-axes:]]
        along = [Along(*each) for each in zip(rules, self.lengths, numbers, strict=True)]
        return self.factor * over_grid(values, along, self.ends)


def channel(field: Any, axes: int, component: int | None, *, last: bool) -> Any:
    """Return a component of a field `[batch, component, *grid]`, which is `last` on points; None for all of it."""
    if component is None:
        return field
    return field[..., component] if last else field[(..., component, *(slice(None),) * axes)]


def counted(values: Any, points: Any) -> Any:
    """Return the numbers of points from 0, as floats like the values."""
    if isinstance(values, np.ndarray):
        return np.arange(points, dtype=values.dtype)
    import torch  # noqa: PLC0415 -- checks of data need none

    return torch.arange(points, device=values.device).to(values.dtype)
