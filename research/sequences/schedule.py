r"""Schedules of the learning rate, as shares of the highest rate by the number of the batch.

.. math::
    \text{reciprocal-sqrt:}\quad \min(t/w,\ \sqrt{w/t}), \qquad
    \text{cosine:}\quad t/w \text{ up to } w,\ \text{then}\ \tfrac12(1 + \cos\pi\tfrac{t - w}{T - w}),

for batch :math:`t` from 1 to :math:`T` and a warm-up of :math:`w` batches. The published schedule of Long Range Arena,
:math:`r\min(1, t/w)/\sqrt{\max(t, w)}` (Tay et al., ICLR 2021, arXiv 2011.04006), is the first with the highest rate
:math:`r/\sqrt w`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Share = Callable[[int], float]


def reciprocal_sqrt(warmup: int, total: int) -> Share:
    """Return the published schedule, which does not depend on the total."""
    del total
    return lambda done: min((done + 1) / warmup, math.sqrt(warmup / (done + 1)))


def cosine(warmup: int, total: int) -> Share:
    """Return a schedule that ends at 0; a warm-up longer than half of the run is cut short."""
    warmup = min(warmup, max(1, total // 2))

    def share(done: int) -> float:
        if done < warmup:
            return (done + 1) / warmup
        return (1 + math.cos(math.pi * (done + 1 - warmup) / max(1, total - warmup))) / 2

    return share


#: Schedules by their names in recipes.
SCHEDULES: dict[str, Callable[[int, int], Share]] = {"reciprocal-sqrt": reciprocal_sqrt, "cosine": cosine}
