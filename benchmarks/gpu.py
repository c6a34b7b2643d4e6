"""What is measured on a GPU: every graph of a repository beside the processor, on three grids and for two batches.

`pack` writes a folder that runs elsewhere, too (`benchmarks.gpu_worker`): the graphs, their configs in the JSON that a
backend receives, and examples.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import json_format
from safetensors.numpy import load_file

from benchmarks import gpu_worker
from benchmarks.harness import newest_graph
from export import triton_config
from schema.card import Card

WORKER, BACKEND = Path(gpu_worker.__file__), gpu_worker.BACKEND
EXAMPLES = "examples.safetensors"
BATCHES, QUICK_BATCHES = (1, 8), (2,)
REPEATS, QUICK_REPEATS = 5, 1


def measure(repository: Path, python: Path, names: Sequence[str] = (), *, quick: bool) -> dict[str, Any]:
    """Pack a repository, run it with a Python, and return what was measured."""
    with tempfile.TemporaryDirectory() as aside:
        folder, file = Path(aside), Path(aside, "result.json")
        pack(repository, folder, names, quick=quick)
        repeats = QUICK_REPEATS if quick else REPEATS
        command = [str(python), "-I", str(folder / WORKER.name), str(folder), str(file), str(repeats)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own program
        found: dict[str, Any] = json.loads(file.read_text())
        return found


def pack(repository: Path, folder: Path, names: Sequence[str] = (), *, quick: bool = False) -> None:
    """Write what the worker needs into a folder; of the named models alone, if any are named."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in (WORKER, BACKEND):
        shutil.copyfile(file, folder / file.name)
    (folder / "jobs.json").write_text(json.dumps([*jobs(repository, folder, names, quick=quick)], indent=1))


def jobs(repository: Path, folder: Path, names: Sequence[str], *, quick: bool) -> Iterator[dict[str, Any]]:
    """Copy every ONNX graph of a repository, and yield what the worker has to know of it."""
    for config in sorted(repository.glob("*/config.pbtxt")):
        name = config.parent.name
        if (names and name not in names) or not any(config.parent.glob("[0-9]*/model.onnx")):
            continue
        graph = newest_graph(config.parent)
        card = Card.model_validate_json((graph.parent / "card.json").read_text())
        shutil.copyfile(graph, folder / f"{name}.onnx")
        examples = newest_graph(repository / (card.product.of if card.product else name)).parent / EXAMPLES
        if examples.is_file():
            np.savez(folder / f"{name}.npz", **load_file(examples))  # type: ignore[arg-type]  # names of arrays
        grids = sides(card.grid.minimum, card.grid.maximum, card.grid.declared)
        yield {
            "model": name,
            "graph": f"{name}.onnx",
            "config": json_format.MessageToDict(
                triton_config.parse(config.read_text()), preserving_proto_field_name=True
            ),
            "examples": f"{name}.npz" if examples.is_file() else None,
            "inputs": [
                {key: getattr(each, key) for key in ("name", "axes", "shape", "dtype", "positive")}
                for each in card.inputs
            ],
            "parameters": [
                {key: getattr(each, key) for key in ("name", "default", "minimum")} for each in card.parameters
            ],
            "axes": card.grid.axes,
            "frames": card.frames is not None,
            "words": len(card.vocabulary.words) if card.vocabulary else 0,
            "grids": [[side] * len(card.grid.axes) for side in (grids[:1] if quick else grids)],
            "batches": QUICK_BATCHES if quick else BATCHES,
        }


def sides(low: int, high: int, declared: Sequence[int]) -> list[int]:
    """Return three numbers of points per axis: a coarse grid, a declared one and a fine one that is not square in 2.

    Example:
        >>> sides(15, 421, [85, 141, 211, 421])
        [43, 141, 421]
    """
    usual = sorted(declared) or [min(high, 4 * low)]
    coarse = max(low, usual[0] // 2 + 1)
    fine = usual[-1] if len(usual) > 1 else min(high, usual[-1] * 3 // 2)
    return sorted({coarse, usual[min(1, len(usual) - 1)], fine})
