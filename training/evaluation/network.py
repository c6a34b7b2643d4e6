"""The network's row of a card: its errors and times on one case."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from training.data.store import Array
from training.evaluation.case import Case
from training.evaluation.norms import summary
from training.evaluation.timing import milliseconds
from training.operators import Operator

BATCH = 10  # bounds the memory of measuring


def errors(operator: Operator, case: Case) -> dict[str, Any]:
    """Measure mean, median and worst relative L2 error, the gradient's and the energy's mean, and the time."""
    inputs, numbers = case.inputs, case.samples.parameters
    return case.key | summary(case, predict(operator, inputs, *numbers)) | milliseconds(operator, inputs, *numbers)


@torch.inference_mode()
def predict(operator: Operator, inputs: Array, *parameters: Array) -> Array:
    """Compute the outputs `[sample, *grid]` to inputs `[sample, *grid]` and parameters `[sample]`."""
    return np.concatenate([operator(*map(torch.from_numpy, part)).numpy() for part in parts(inputs, *parameters)])


def parts(*arrays: Array) -> Iterable[tuple[Array, ...]]:
    """Yield batches of a bounded size of arrays that have as many samples."""
    starts = range(0, len(arrays[0]), BATCH)
    return (tuple(array[start : start + BATCH] for array in arrays) for start in starts)
