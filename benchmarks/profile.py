r"""The profiler of attention types: processor time and memory of a training step over the number of tokens.

A step is forward, mean squared error to a random target, and backward, of one attention on random tokens, on one
thread. Forms are interleaved, one step each per round, after one step without a clock and one whose memory is counted:
the peak of the tensors beyond what attention and input hold.

The plain name of a type is its best form: Fourier attention as :math:`Q(K^T V)`, softmax by the fused kernel. The
explicit forms compute the same values as in the paper (Cao, NeurIPS 2021, arXiv 2105.14995, section 3), with the
:math:`n \times n` matrix in memory. They serve as baselines, and no recipe uses them.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.profiler import ProfilerActivity
from torch.profiler import profile as trace

from benchmarks.harness import Row, grouped
from training.messages import lookup
from training.nn.attention import FourierAttention, HeadAttention, SoftmaxAttention, build_attention, kinds
from training.nn.grids import Mask, Mixed

SUFFIX = "-explicit"


class ExplicitFourierAttention(FourierAttention):
    r"""Mix as :math:`(QK^T/(n\sqrt w))V` in this order."""

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        if mask is not None:
            return super().mix(Q, K, V, mask)
        return self.drop(Q @ K.transpose(-2, -1) / (K.shape[-2] * math.sqrt(self.width))) @ V


class ExplicitSoftmaxAttention(SoftmaxAttention):
    r"""Mix as :math:`\sigma(QK^T/\sqrt w)V` in this order."""

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        if mask is not None:
            return super().mix(Q, K, V, mask)
        return self.drop((Q @ K.transpose(-2, -1) / math.sqrt(self.width)).softmax(dim=-1)) @ V


EXPLICIT: dict[str, type[HeadAttention]] = {
    f"fourier{SUFFIX}": ExplicitFourierAttention,
    f"softmax{SUFFIX}": ExplicitSoftmaxAttention,
}
#: The forms that are profiled by default: every published type, and both forms where there are two.
PUBLISHED = ("galerkin", "fourier", "linear", "softmax", *EXPLICIT)


def built(form: str, channels: int, heads: int) -> torch.nn.Module:
    """Return an attention of a form.

    Raises:
        ValueError: There is no such form, or the heads do not divide the channels.
    """
    names = {name: name.removesuffix(SUFFIX) for name in (*kinds(), *EXPLICIT)}
    attention: Any = build_attention(lookup(names, form, "kind of attention to profile"), channels, heads, 1)
    if form in EXPLICIT:
        attention.__class__ = EXPLICIT[form]  # equal state, another order of the same products
    found: torch.nn.Module = attention
    return found


def peak_bytes(work: Callable[[], object]) -> int:
    """Run the work once, and return the peak of the memory that tensors hold, beyond what they held before.

    Torch's profiler reports every allocation and release of torch's allocator, and the peak is that of their running
    sum: exact, and the same in every run. The fused softmax kernel allocates buffers per thread. Allocations inside
    mathematics libraries are not counted.
    """
    with trace(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as record:
        work()
    with tempfile.TemporaryDirectory() as folder:  # only the trace file has the events of the allocator
        file = Path(folder) / "trace.json"
        record.export_chrome_trace(str(file))
        events: list[dict[str, Any]] = json.loads(file.read_text())["traceEvents"]
    memory = sorted((each for each in events if each["name"] == "[memory]"), key=lambda each: float(each["ts"]))
    changes = (each["args"]["Bytes"] for each in memory if each["args"]["Device Type"] == 0)
    return int(max(accumulate(changes, initial=0)))


class Case:
    """One form at one length, ready to run, and its measurements so far."""

    def __init__(self, form: str, length: int, batch: int, channels: int, heads: int) -> None:
        self.attention = built(form, channels, heads).train()
        self.tokens = torch.rand(batch, length, channels, requires_grad=True)  # as inside a larger network
        self.positions = torch.linspace(0, 1, length)[:, None]
        self.target = torch.rand(batch, length, channels)
        facts = {"form": form, "batch": batch, "length": length}
        self.row: Row = {**facts, "forward_seconds": [], "backward_seconds": [], "peak_bytes": 0}

    def clear(self) -> None:
        """Clear the gradients of the previous step."""
        self.attention.zero_grad(set_to_none=True)
        self.tokens.grad = None

    def loss(self) -> Tensor:
        """Return the loss of the forward pass."""
        return functional.mse_loss(self.attention(self.tokens, positions=self.positions), self.target)

    def step(self) -> None:
        """Take one whole step."""
        self.loss().backward()

    def count_memory(self) -> None:
        """Count the memory of one step, new gradients included."""
        self.row["peak_bytes"] = peak_bytes(self.step)

    def time(self) -> None:
        """Append the times of one step, forward and backward."""
        started = time.process_time()
        error = self.loss()
        between = time.process_time()
        error.backward()
        self.row["forward_seconds"].append(between - started)
        self.row["backward_seconds"].append(time.process_time() - between)


def measure(
    forms: Sequence[str], lengths: Sequence[int], batch: int = 1, repeats: int = 5, channels: int = 96, heads: int = 4
) -> list[Row]:
    """Return a row per length and form."""
    rows: list[Row] = []
    for length in lengths:
        torch.manual_seed(0)
        cases = [Case(form, length, batch, channels, heads) for form in forms]
        for work in (Case.step, Case.count_memory, *[Case.time] * repeats):
            for case in cases:
                case.clear()
                work(case)
        rows += [case.row for case in cases]
    return rows


def exponent(points: Sequence[int], costs: Sequence[float]) -> float:
    r"""Return p of the least squares fit :math:`\log\text{cost} = p\log n + c`."""
    if len(set(points)) < 2 or min(costs) <= 0:
        raise ValueError(f"expected positive costs at two or more lengths but got {list(costs)} at {list(points)}")
    slope, _ = np.polyfit([math.log(n) for n in points], [math.log(cost) for cost in costs], 1)
    return round(float(slope), 3)


COSTS: dict[str, Callable[[Row], float]] = {
    "forward": lambda row: statistics.median(row["forward_seconds"]),
    "backward": lambda row: statistics.median(row["backward_seconds"]),
    "memory": lambda row: float(row["peak_bytes"]),
}


def growth(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Return the exponents of every form that was measured at two lengths or more, by cost."""
    groups = grouped(sorted(rows, key=lambda row: int(row["length"])), lambda row: row["form"])
    return {
        form: {
            cost: exponent([row["length"] for row in found], [of(row) for row in found]) for cost, of in COSTS.items()
        }
        for form, found in groups.items()
        if found[0]["length"] < found[-1]["length"]
    }


#: The paper's claims: title, cost, form, baseline, and what its repository states.
CLAIMS = (
    ("memory, both as published", "memory", "fourier-explicit", "softmax-explicit", "33-40 % less"),
    ("memory, both in their best form", "memory", "fourier", "softmax", ""),
    ("memory, best form against published", "memory", "fourier", "softmax-explicit", ""),
    ("backward time", "backward", "galerkin", "linear", "20-100 % faster"),
)


def claims(rows: Sequence[Row]) -> list[Row]:
    """Return the finding of every claim at the largest length where both forms were measured.

    Times are compared round by round, since other load slows both alike.
    """
    found: list[Row] = []
    measured = {(row["form"], row["length"]): row for row in rows}
    for title, cost, form, baseline, published in CLAIMS:
        common = {n for name, n in measured if name == form} & {n for name, n in measured if name == baseline}
        if not common:
            continue
        first, second = (measured[name, max(common)] for name in (form, baseline))
        costs = [COSTS[cost](first), COSTS[cost](second)]
        share, unit = 1 - costs[0] / costs[1], "less"
        if cost == "backward":
            rounds = zip(first["backward_seconds"], second["backward_seconds"], strict=True)
            share, unit = statistics.median(slower / faster for faster, slower in rounds) - 1, "faster"
        facts = {"title": title, "length": max(common), "form": form, "baseline": baseline, "costs": costs}
        found.append({**facts, "found": round(share, 4), "unit": unit, "published": published})
    return found
