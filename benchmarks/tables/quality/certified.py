"""What it costs to know how far a response of `darcy` can be trusted: its graph with all outputs and with one alone.

The graph without bounds, estimate and novelty is the released one without the nodes that only these need. Both run in
ONNX Runtime on the same fields, interleaved. Times are processor times of one field on one thread.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import onnx
from onnx.utils import Extractor

import physics.darcy
from benchmarks.repository import feed, one_thread
from export.released import FOLDER, GRAPH

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from onnxruntime import InferenceSession

    from benchmarks.report.page import Table

SEED = 7_000
GRIDS, QUICK_GRIDS = (85, 141, 211, 421), (85,)
FIELDS, QUICK_FIELDS = 24, 4
OUTPUT = "solution"
HEADER = ("grid", "fields", "prediction alone, ms", "with what is known about its error, ms", "times")


@dataclass(frozen=True)
class Row:
    """The median seconds of a grid's fields, by each graph."""

    grid: int
    fields: int
    plain: float
    certified: float


def measure(folder: Path, *, quick: bool) -> list[Row]:
    """Measure every grid.

    Args:
        folder: The checkpoint of `darcy`, with its published graph.
        quick: Fewer fields and grids.
    """
    graph = onnx.load(folder / FOLDER / folder.name / GRAPH)
    names = [each.name for each in graph.graph.input]
    plain = Extractor(graph).extract_model(names, [OUTPUT])
    sessions = [one_thread(each.SerializeToString()) for each in (plain, graph)]
    samples = [physics.darcy.sample(SEED + n)[0] for n in range(QUICK_FIELDS if quick else FIELDS)]
    return [row(sessions, points, samples) for points in (QUICK_GRIDS if quick else GRIDS)]


def row(sessions: list[InferenceSession], points: int, samples: list[NDArray[Any]]) -> Row:
    """Run both graphs on every field, interleaved.

    Args:
        sessions: The graph with one output, and that with all.
        points: Points per axis.
        samples: Coefficients on the whole mesh.
    """
    seconds: list[list[float]] = [[] for _ in sessions]
    for coefficient in samples:
        inputs = feed(sessions[0], physics.darcy.restrict(coefficient, points)[None])
        for times, each in zip(seconds, sessions, strict=True):
            begun = time.process_time()
            each.run(None, inputs)
            times.append(time.process_time() - begun)
    plain, certified = (statistics.median(times[1:]) for times in seconds)  # the first run allocates
    return Row(points, len(samples) - 1, plain, certified)


def document(rows: list[Row]) -> dict[str, Any]:
    """Return everything that was measured."""
    return {"rows": [asdict(each) for each in rows]}


def tables(rows: list[Row]) -> dict[str, Table]:
    """Return the page's table."""
    return {"certified": (HEADER, [cells(each) for each in rows])}


def cells(each: Row) -> tuple[str, ...]:
    """Return a row of the table."""
    times = (f"{1e3 * seconds:.1f}" for seconds in (each.plain, each.certified))
    return (f"{each.grid} x {each.grid}", str(each.fields), *times, f"{each.certified / each.plain:.2f}")
