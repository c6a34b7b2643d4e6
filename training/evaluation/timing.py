"""The time of a forward pass in milliseconds per field, on one thread, after a warm-up.

It is processor time, as for the baselines: it equals wall time on an idle machine, and other programs do not lengthen
it.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from training.data.store import Array
from training.operators import Operator

BATCHES = {1: 7, 8: 3}  # sizes, and how often each is timed; the median counts


def milliseconds(operator: Operator, *inputs: Array) -> dict[str, float]:
    """Measure the milliseconds per field of the network, not exported, alone and in a batch of eight."""
    with one_thread():
        each = {size: median_seconds(operator, inputs, size, times) / size for size, times in BATCHES.items()}
    return {"milliseconds": round(1000 * each[1], 1), "milliseconds_of_8": round(1000 * each[8], 1)}


@torch.inference_mode()
def median_seconds(operator: Operator, inputs: Sequence[Array], size: int, times: int) -> float:
    """Time a batch, after one that is not counted.

    Args:
        operator: What is timed.
        inputs: Inputs `[sample, *grid]` and parameters `[sample]`; where there are fewer than `size` they are repeated.
        size: Fields in the batch.
        times: How often.

    Returns:
        The median in seconds.
    """
    batch = [torch.from_numpy(np.resize(each, (size, *each.shape[1:]))) for each in inputs]
    operator(*batch)
    return statistics.median(seconds(operator, *batch) for _ in range(times))


def seconds(operator: Operator, *arguments: torch.Tensor) -> float:
    """Time one forward pass."""
    started = time.process_time()
    operator(*arguments)
    return time.process_time() - started


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def processor() -> str:
    """Return the name of the processor's model, or what else the platform knows of it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(models), platform.processor() or platform.machine())
