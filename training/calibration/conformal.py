"""Split conformal prediction: ranks among calibration samples, valid for any distribution.

Source: Angelopoulos and Bates, A gentle introduction to conformal prediction, arXiv 2107.07511.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

COVERAGE = 0.9


def fewest(coverage: float = COVERAGE) -> int:
    """Return the fewest calibration samples that give a finite quantile."""
    return math.ceil(coverage / (1 - coverage) - 1e-9)


def quantile(scores: NDArray[np.floating[Any]], coverage: float = COVERAGE) -> float:
    r"""Return the score that a new sample of the same distribution stays below with at least this probability.

    It is the :math:`\lceil (n+1)\,p \rceil`-th smallest of :math:`n` calibration scores.

    Args:
        scores: The calibration scores.
        coverage: The probability :math:`p`.

    Raises:
        ValueError: There are too few scores.

    Example:
        >>> quantile(np.arange(1.0, 20.0))
        18.0
    """
    rank = math.ceil((len(scores) + 1) * coverage - 1e-9)
    if rank > len(scores):
        raise ValueError(
            f"expected at least {fewest(coverage)} scores for a coverage of {coverage} but got {len(scores)}"
        )
    return float(np.sort(scores)[rank - 1])
