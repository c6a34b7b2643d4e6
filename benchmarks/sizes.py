"""Time and memory of a graph on points against their number: each number in a process of its own, on one thread.

The session has no arena, as the config of a model that takes so many points says: it would keep what the largest call
has needed. Memory is the peak of the process, some 90 MB of which are the runtime's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.harness import Row

SIZES = (1_000, 3_162, 10_000, 31_623, 100_000, 316_228, 1_000_000)
CALLS = 3  # after one that is not counted; the median is taken


def measure(graph: Path, sizes: Sequence[int] = SIZES) -> Iterator[Row]:
    """Measure a graph, in processes of their own."""
    for points in sizes:
        command = [sys.executable, "-m", "benchmarks.sizes", str(graph), str(points)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - of ours
        yield json.loads(done.stdout)


def measured(graph: Path, points: int) -> Row:
    """Measure calls of a graph with one sample of points in the unit square, or cube, in this process."""
    import onnxruntime  # noqa: PLC0415 - slow to import

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.enable_cpu_mem_arena = 1, False
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    rng, fields = np.random.default_rng(0), {}
    for one in session.get_inputs():
        shape = (1, *(points if isinstance(side, str) else side for side in one.shape[1:]))
        fields[one.name] = rng.random(shape, np.float32) if len(shape) > 1 else np.zeros(1, np.float32)
    times = []
    for _ in range(1 + CALLS):
        start = time.process_time()
        session.run(None, fields)
        times.append(time.process_time() - start)
    return {"points": points, "seconds": round(median(times[1:]), 5), "megabytes": round(peak(), 1)}


def peak() -> float:
    """Return the most memory that this process has had, in megabytes; `getrusage` counts that of its parent, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measured(Path(sys.argv[1]), int(sys.argv[2]))))
