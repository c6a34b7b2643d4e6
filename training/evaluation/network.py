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
    inputs = case.inputs
    return case.key | summary(case, predict(operator, inputs)) | milliseconds(operator, inputs)


@torch.inference_mode()
def predict(operator: Operator, inputs: Array) -> Array:
    """Compute the outputs `[sample, *grid]` to inputs `[sample, *grid]`."""
    return np.concatenate([operator(torch.from_numpy(part)).numpy() for part in parts(inputs)])


def parts(fields: Array) -> Iterable[Array]:
    """Yield batches of a bounded size."""
    return (fields[start : start + BATCH] for start in range(0, len(fields), BATCH))
