"""Times in seconds of processor time: it equals wall time on an idle machine, and other programs do not lengthen it."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from training.operators import Operator
from training.problems.problem import Array

Found = TypeVar("Found")
BATCHES = {1: 7, 8: 3}  # sizes, and how often each is timed; the median counts


@torch.inference_mode()
def milliseconds(operator: Operator, *inputs: Array) -> dict[str, float]:
    """Measure the milliseconds per field of the network, not exported, alone and in a batch of eight."""
    each = {}
    for size, times in BATCHES.items():
        batch = [torch.from_numpy(np.resize(one, (size, *one.shape[1:]))) for one in inputs]
        each[size] = 1000 * median_seconds(partial(operator, *batch), times) / size
    return {"milliseconds": round(each[1], 1), "milliseconds_of_8": round(each[8], 1)}


def median_seconds(call: Callable[[], object], times: int) -> float:
    """Time some calls on one thread, after one that is not counted, and return their median."""
    with one_thread():
        call()
        return statistics.median(timed(call)[1] for _ in range(times))


def timed(call: Callable[[], Found]) -> tuple[Found, float]:
    """Call once, and return what the call returns and the seconds that it took."""
    started = time.process_time()
    found = call()
    return found, time.process_time() - started


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
