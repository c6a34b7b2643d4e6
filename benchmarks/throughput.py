"""Fields a second of two networks on the processor and on a card: the graph, and eager torch in float32 and bfloat16.

All cores, wall clock. The graphs run as the service runs them, by the program of `python -m benchmarks gpu` and in
Triton's environment, which has ONNX Runtime for a card; eager torch runs here, and on a card if it is one for cards.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

import physics.darcy
from benchmarks import gpu
from benchmarks.harness import Row
from training.checkpoint import load_operator

MODELS, POINTS = ("darcy", "darcy_galerkin"), 141
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def measure(repository: Path, checkpoints: Path, python: Path, *, quick: bool) -> dict[str, Any]:
    """Return a row per network, engine, device and batch, and in a sentence which card has been measured, or none."""
    batches, repeats = (gpu.QUICK_BATCHES, gpu.QUICK_REPEATS) if quick else (gpu.BATCHES, gpu.REPEATS)
    graphs = gpu.measure(repository, python, MODELS, quick=quick)
    points = graphs["rows"][0]["grid"][0] if quick else POINTS
    rows = [row for each in graphs["rows"] for row in of_graph(each, points)]
    for name in MODELS:
        operator = load_operator(checkpoints / name).operator.eval()
        for device in ["processor", *(["card"] if torch.cuda.is_available() else [])]:
            for precision in PRECISIONS:
                for batch in batches:
                    rate = batch / eager(operator, device, precision, batch, points, repeats)
                    rows.append(line(name, "eager torch", device, precision, batch, rate))
    says = graphs["says"] if torch.cuda.is_available() else f"{graphs['says']}; no card by eager torch"
    return {"says": says, "cores": torch.get_num_threads(), "rows": rows}


def of_graph(row: Row, points: int) -> Iterator[Row]:
    """Yield the rates that one measurement of a graph has, on the grid that is compared."""
    if "fault" in row or row["grid"] != [points] * 2:
        return
    devices = {"processor": "processor_ms", "card": "gpu_ms"}
    for device, key in devices.items():
        if key in row:
            yield line(
                row["model"], "the service's graph", device, "float32", row["batch"], 1e3 * row["batch"] / row[key]
            )


def line(model: str, engine: str, device: str, precision: str, batch: int, rate: float) -> Row:
    """Return a row of the table."""
    facts = {"model": model, "engine": engine, "device": device, "precision": precision, "batch": batch}
    return {**facts, "fields_per_second": rate}


@torch.inference_mode()
def eager(operator: Any, device: str, precision: str, batch: int, points: int, repeats: int) -> float:
    """Return the median of the seconds of one batch, from memory of the machine and back, after a first one."""
    kind = "cuda" if device == "card" else "cpu"
    field = torch.from_numpy(physics.darcy.example(points, seed=0)).float().expand(batch, points, points).contiguous()
    placed = operator.to(kind)

    def run() -> None:
        reduced = torch.autocast(kind, PRECISIONS[precision]) if precision != "float32" else nullcontext()
        with reduced:
            placed(field.to(kind)).cpu()

    run()
    return statistics.median(timed(run) for _ in range(repeats))


def timed(work: Callable[[], None]) -> float:
    """Return the seconds of a piece of work."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
