"""A few test samples with their truth, which a checkpoint carries and a served model shows.

The file holds one tensor per input and output under its name on the wire, with the samples on the first axis.
Sequences have int32 tokens, padded with 0, and int32 `labels`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from training.checkpoint import EXAMPLES
from training.files import replacing

FILE = EXAMPLES
MOST = 8
BYTES = 300_000
"""The most that the tensors of a file hold: released checkpoints are committed."""

Tensors = Mapping[str, NDArray[Any]]


def write(folder: Path, tensors: Tensors) -> None:
    """Write the examples of a checkpoint, as many samples as fit into `BYTES`."""
    sample = sum(array[0].nbytes for array in tensors.values())
    count = max(1, min(MOST, BYTES // sample))
    with replacing(folder / FILE) as aside:
        save_file({name: np.ascontiguousarray(array[:count]) for name, array in tensors.items()}, aside)
