"""Run exported graphs on the processor and on a GPU, and compare: the program of `python -m benchmarks gpu`.

It needs NumPy, ONNX Runtime and the file `device.py` of the embedded backend beside it or in the repository, nothing
else of ours, so that a folder of `python -m benchmarks gpu --pack FOLDER` runs on a machine that has only these:

    python FOLDER/gpu_worker.py FOLDER result.json

Without a GPU it says so, and measures the processor's half. There the differences are those of two orders of adding,
with and without ONNX Runtime's changes of the graph, which is what another device differs by.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnxruntime

Array: TypeAlias = "np.ndarray[Any, Any]"
Job: TypeAlias = dict[str, Any]
Row: TypeAlias = dict[str, Any]

TOLERANCE = 1e-5
FRAMES = 4
BESIDE = Path(__file__).parent
BACKEND = BESIDE.parent / "serving" / "local_triton" / "backends" / "device.py"
#: The smallest size that a quality output's difference is relative to: a bound at the level of rounding has few digits.
#: `solve_bound` is a distance to a solution in float32: two orders of adding give solutions of `darcy` at 141 x 141
#: that are 1.1e-6 apart in its norm (rounding alone makes 3e-7), so that bounds of 3e-4 may differ by as much, and do
#: by 4e-9.
FLOORS = {"error_bound": 1e-3, "solve_bound": 1e-3, "misfit": 1e-4, "error_estimate": 1e-4, "novelty": 1.0}


def backend() -> Any:
    """Return the module with which the embedded backend opens its sessions."""
    file = BESIDE / "device.py"
    spec = importlib.util.spec_from_file_location("device", file if file.exists() else BACKEND)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(BACKEND)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def session(device: Any, graph: Path, config: Job, gpu: int | None, *, plain: bool = False) -> Any:
    """Open a graph as the embedded backend does; `plain` without ONNX Runtime's changes of the graph, on one thread."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    parameters = {key: each["string_value"] for key, each in config.get("parameters", {}).items()}
    options.intra_op_num_threads = int(parameters.get("intra_op_thread_count", "0"))
    options.enable_cpu_mem_arena = parameters.get("enable_mem_arena", "1") == "1"
    options.enable_mem_reuse = parameters.get("enable_mem_reuse", "1") == "1"
    options.enable_mem_pattern = parameters.get("enable_mem_pattern", "1") == "1"
    if plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
    return device.open_session(onnxruntime, str(graph), options, config, gpu)


# Inputs


def arguments(job: Job, grid: tuple[int, ...], batch: int, examples: dict[str, Array]) -> dict[str, Array]:
    """Draw the arguments of a graph: its examples on the grid, smooth fields where it has none."""
    sizes = dict(zip(job["axes"], grid, strict=True)) | {"batch": batch, "frame": FRAMES}
    found, counts = {}, examples.get("counts")
    for number, tensor in enumerate(job["inputs"]):
        shape = [
            sizes[axis] if size is None else size for axis, size in zip(tensor["axes"], tensor["shape"], strict=True)
        ]
        known = examples.get(tensor["name"])
        if tensor["dtype"] == "INT32":
            field = np.random.default_rng(number).integers(1, job["words"], shape).astype(np.int32)
        elif known is not None and known.ndim == len(shape):
            field = resampled(known, shape, counts)
        else:
            field = smooth(shape, number)
            field = np.where(field >= 0, 12, 3) if tensor["positive"] else field
        found[tensor["name"]] = field if tensor["dtype"] == "INT32" else field.astype(np.float32)
    for parameter in job["parameters"]:
        known = examples.get(parameter["name"])
        value = parameter["default"] if parameter["default"] is not None else parameter["minimum"] or 1.0
        values = np.resize(known, batch) if known is not None else np.full(batch, value)
        found[parameter["name"]] = values.astype(np.float32)
    if "counts" in found:
        found["counts"] = np.zeros(batch, np.float32)  # all points
    if job["frames"]:
        found["frame"] = np.zeros((batch, FRAMES), np.int32)
    return found


def resampled(field: Array, shape: list[int], counts: Array | None = None) -> Array:
    """Return samples on another grid, each point with the value of the nearest one.

    Of points of their own, `counts` says how many each sample has: its padding is no point, and many copies of one
    would weigh more than all others.
    """
    field = np.take(field, np.arange(shape[0]) % len(field), axis=0)
    if counts is not None:
        places = [((np.arange(shape[1]) + 0.5) * each / shape[1]).astype(int) for each in np.resize(counts, shape[0])]
        return np.stack([each[place] for each, place in zip(field, places, strict=True)])
    for axis, size in enumerate(shape[1:], start=1):
        index = ((np.arange(size) + 0.5) * field.shape[axis] / size).astype(int)
        field = np.take(field, index, axis=axis)
    return field


def smooth(shape: list[int], seed: int) -> Array:
    """Return smooth fields of unit size, each sample another."""
    rng, field = np.random.default_rng(seed), np.ones(shape)
    for axis, size in enumerate(shape[1:], start=1):
        phase = rng.uniform(0, 2 * np.pi, (shape[0], *[1] * (len(shape) - 1)))
        points = np.arange(size).reshape([-1 if each == axis else 1 for each in range(len(shape))]) / size
        field = field * np.cos(2 * np.pi * (1 + axis) * points + phase)
    return field


# Measurements


def difference(name: str, found: Array, expected: Array) -> float:
    """Return the largest relative L2 difference of a sample, or that of a quality output to its value or floor."""
    found, expected = (each.astype(np.float64).reshape(len(each), -1) for each in (found, expected))
    if not np.array_equal(np.isfinite(found), np.isfinite(expected)):
        return float("inf")
    found, expected = (np.where(np.isfinite(each), each, 0) for each in (found, expected))
    if name in FLOORS:
        return float((np.abs(found - expected) / np.maximum(np.abs(expected), FLOORS[name])).max())
    size = np.linalg.norm(expected, axis=1)
    return float((np.linalg.norm(found - expected, axis=1) / np.where(size > 0, size, 1)).max())


def measured(session: Any, feeds: dict[str, Array], repeats: int) -> tuple[Any, float, float]:
    """Return the outputs, the milliseconds of the first call, and the median of the others."""
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        outputs = session.run(None, feeds)
        times.append(1e3 * (time.perf_counter() - started))
    return outputs, times[0], statistics.median(times[1:])


def card_memory() -> float | None:
    """Return the MiB in use on the first card; None where nvidia-smi does not say."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - a fixed command
        return float(done.stdout.strip())
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None


def rows(folder: Path, job: Job, device: Any, repeats: int, *, gpu: bool) -> Iterator[Row]:
    """Measure one graph on its grids and batches; its row has what it was not measured for, if that failed."""
    config, graph = job["config"], folder / job["graph"]
    examples = dict(np.load(folder / job["examples"])) if job["examples"] else {}
    before = card_memory() if gpu else None
    try:
        processor = session(device, graph, config, None)
        other = session(device, graph, config, 0) if gpu else session(device, graph, config, None, plain=True)
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's errors share no class
        yield {"model": job["model"], "fault": str(error)}
        return
    loaded, names = card_memory() if gpu else None, [each.name for each in processor.get_outputs()]
    for grid in map(tuple, job["grids"]):
        for batch in job["batches"]:
            row: Row = {"model": job["model"], "grid": list(grid), "batch": batch}
            feeds = arguments(job, grid, batch, examples)
            try:
                expected, _, milliseconds = measured(processor, feeds, repeats)
                found, first, others = measured(other, feeds, repeats if gpu else 1)
            except Exception as error:  # noqa: BLE001 - as above
                yield row | {"fault": str(error)}
                continue
            differences = {name: difference(name, *pair) for name, *pair in zip(names, found, expected, strict=True)}
            row |= {
                "processor_ms": milliseconds,
                "differences": differences,
                "same": max(differences.values()) <= TOLERANCE,
            }
            if gpu:
                memory = {"idle_mib": loaded, "used_mib": card_memory(), "before_mib": before}
                row |= {"gpu_ms": others, "gpu_first_ms": first, "fields_per_second": 1e3 * batch / others} | memory
            yield row


def main(folder: Path, file: Path, repeats: int = 5) -> int:
    """Measure every graph of a folder, and write one JSON file; return how many rows differ or failed."""
    device, jobs = backend(), json.loads((folder / "jobs.json").read_text())
    driver = device.driver()
    session = device.session() if "cards" in driver else {"fault": driver.get("fault", "the driver has no card")}
    gpu = session["fault"] is None
    says = f"GPU: {driver['cards'][0]['name']}" if gpu else f"no GPU is measured: {session['fault']}"
    print(says, file=sys.stderr, flush=True)
    found = []
    for job in jobs:
        for row in rows(folder, job, device, repeats, gpu=gpu):
            found.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    bad = [row for row in found if not row.get("same")]
    facts = {
        "gpu": driver["cards"][0] | {"cuda": driver["cuda"]} if gpu else None,
        "says": says,
        "tolerance": TOLERANCE,
    }
    software = {"onnxruntime": onnxruntime.__version__, "numpy": np.__version__}
    file.write_text(json.dumps({**facts, "software": software, "differing": len(bad), "rows": found}, indent=1) + "\n")
    return len(bad)


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:])))
