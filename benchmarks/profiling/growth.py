r"""The growth of the costs of a profile: exponents :math:`p` of :math:`\text{cost} \sim n^p`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np
from pydantic import BaseModel

from benchmarks.profiling.rows import FROZEN, Row


class Growth(BaseModel):
    """Exponents of one form over the points from the smallest to the largest length that was measured."""

    model_config = FROZEN

    subject: str
    form: str
    lengths: tuple[int, ...]
    forward: float
    backward: float
    memory: float


def exponent(points: Sequence[int], costs: Sequence[float]) -> float:
    r"""Return p of the least squares fit :math:`\log\text{cost} = p\log n + c`.

    Raises:
        ValueError: There are fewer than two points, or a cost is not positive.
    """
    if len(set(points)) < 2 or min(costs) <= 0:
        raise ValueError(f"expected positive costs at two or more lengths but got {list(costs)} at {list(points)}")
    slope, _ = np.polyfit([math.log(n) for n in points], [math.log(cost) for cost in costs], 1)
    return round(float(slope), 3)


def growth(rows: Sequence[Row]) -> list[Growth]:
    """Return the exponents of every form that was measured at two lengths or more."""
    measured = sorted((row for row in rows if row.skipped is None), key=lambda row: (row.subject, row.form, row.points))
    groups = [list(group) for _, group in groupby(measured, key=lambda row: (row.subject, row.form))]
    return [fitted(group) for group in groups if group[0].points < group[-1].points]


def fitted(rows: Sequence[Row]) -> Growth:
    """Return the exponents of one form's rows."""
    points = [row.points for row in rows]
    return Growth(
        subject=rows[0].subject,
        form=rows[0].form,
        lengths=tuple(row.length for row in rows),
        forward=exponent(points, [row.forward for row in rows]),
        backward=exponent(points, [row.backward for row in rows]),
        memory=exponent(points, [float(row.peak_bytes) for row in rows]),
    )
