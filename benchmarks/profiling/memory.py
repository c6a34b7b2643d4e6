"""Takes a piece of work, gives the most memory its tensors held at once, in bytes, beyond what was held before.

On CUDA the allocator counts (`torch.cuda.max_memory_allocated`). On a CPU torch's profiler reports every allocation and
release of torch's allocator, with the buffers that a kernel takes only while it runs, and the peak is that of their
running sum: exact and the same at every run, unlike the process's resident memory. The fused softmax kernel takes
buffers for each thread, so its peak depends on their number. What a mathematics library allocates for itself is not
seen.
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

CPU = 0  # torch's number of the device type, as it stands in a trace


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Run the work once and give its peak; 0 if it allocated nothing."""
    return cuda_peak(work, device) if device.type == "cuda" else cpu_peak(work)


def cuda_peak(work: Callable[[], object], device: torch.device) -> int:
    """Ask CUDA's caching allocator, which rounds every tensor up to 512 bytes."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def cpu_peak(work: Callable[[], object]) -> int:
    """Sum up what the profiler saw the CPU's allocator give out and take back."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as record:
        work()
    return max(accumulate(changes(events(record)), initial=0))


def events(record: profile) -> Iterable[dict[str, Any]]:
    """Give the profiler's events in the order of time; its trace file is the public way to the allocator's."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        record.export_chrome_trace(str(trace))
        found: list[dict[str, Any]] = json.loads(trace.read_text())["traceEvents"]
    return sorted(found, key=lambda event: float(event.get("ts", 0)))


def changes(events: Iterable[dict[str, Any]]) -> Iterable[int]:
    """Give the bytes by which each allocation or release on the CPU changed what is held."""
    memory = (event["args"] for event in events if event["name"] == "[memory]")
    return (change["Bytes"] for change in memory if change["Device Type"] == CPU)
