"""The peak of the memory that tensors hold during a piece of work, in bytes, beyond what they held before.

On CUDA the allocator counts (`torch.cuda.max_memory_allocated`). On a CPU torch's profiler reports every allocation and
release of torch's allocator, including the temporary buffers of kernels. The peak is that of their running sum, which
is exact and the same in every run, unlike the process's resident memory. The fused softmax kernel allocates buffers per
thread, so its peak depends on the number of threads. Allocations inside mathematics libraries are not counted.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

CPU = 0  # torch's number of the device type in a trace


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Run the work once, and return its peak; 0 if it allocated nothing."""
    return cuda_peak(work, device) if device.type == "cuda" else cpu_peak(work)


def cuda_peak(work: Callable[[], object], device: torch.device) -> int:
    """Return the peak of CUDA's caching allocator, which rounds every tensor up to 512 bytes."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def cpu_peak(work: Callable[[], object]) -> int:
    """Return the peak of the running sum of all allocations and releases on the CPU."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as record:
        work()
    return max(accumulate(changes(events(record)), initial=0))


def events(record: profile) -> Iterable[dict[str, Any]]:
    """Return the profiler's events in the order of time; only its trace file has those of the allocator."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        record.export_chrome_trace(str(trace))
        found: list[dict[str, Any]] = json.loads(trace.read_text())["traceEvents"]
    return sorted(found, key=lambda event: float(event.get("ts", 0)))


def changes(events: Iterable[dict[str, Any]]) -> Iterable[int]:
    """Yield the change in bytes of each allocation or release on the CPU."""
    memory = (event["args"] for event in events if event["name"] == "[memory]")
    return (change["Bytes"] for change in memory if change["Device Type"] == CPU)
