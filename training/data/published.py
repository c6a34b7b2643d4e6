"""Takes the published benchmark files from the folder that DATA_PATH names, gives them as the project's HDF5 file.

Protocol of Cao (2021): Darcy trains on the first samples of file `smooth1` and is tested on the last of `smooth2`;
Burgers trains on the first and is tested on the last samples of one file. Validation samples follow the training
samples.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from scipy.io import loadmat, whosmat

from training.data import store
from training.data.store import Array, Layout
from training.problems.problem import PROBLEMS

VARIABLE = "DATA_PATH"


@dataclass(frozen=True)
class Published:
    """Names of a benchmark's files, and of the arrays [sample, *grid] in them that are input and output."""

    problem: str
    train: str
    test: str
    input: str
    output: str
    points: str


BENCHMARKS = (
    Published(
        "darcy",
        train="piececonst_r421_N1024_smooth1.mat",
        test="piececonst_r421_N1024_smooth2.mat",
        input="coeff",
        output="sol",
        points="x_i = (i + 1/2)/421 on each axis: cell centres",
    ),
    Published(
        "burgers",
        train="burgers_data_R10.mat",
        test="burgers_data_R10.mat",
        input="a",
        output="u",
        points="x_i = i/8192",
    ),
)


def find(problem: str, mesh: int) -> Published | None:
    """Give the benchmark whose files DATA_PATH holds for a problem, or none, also where their fields have another mesh.

    Raises:
        ValueError: an array is missing.
    """
    folder = os.environ.get(VARIABLE)
    for benchmark in BENCHMARKS if folder else ():
        files = [Path(folder or "") / name for name in (benchmark.train, benchmark.test)]
        held = benchmark.problem == problem and all(file.is_file() for file in files)
        if held and mesh in shape(files[0], benchmark.input)[-1:]:
            return benchmark
    return None


def convert(benchmark: Published, mesh: int, counts: Mapping[str, int], path: Path) -> None:
    """Write the first training and the last test samples to `path`, unless it holds just these already.

    Raises:
        ValueError: the files hold too few samples or fields of another shape, or an array is missing.
    """
    if path.exists() and _holds(path, counts):
        return
    folder = Path(os.environ[VARIABLE])
    attributes = {"provenance": "published", "points": benchmark.points, "files": f"{benchmark.train} {benchmark.test}"}
    layout = Layout(PROBLEMS[benchmark.problem], mesh, counts, attributes)
    with store.replacing(path) as aside:
        store.create(aside, layout)
        with store.opened(aside, "r+") as file:
            for name in (benchmark.input, benchmark.output):
                train, test = streams(folder, benchmark, name, counts)
                _write(file, "train", benchmark, name, train)
                _write(file, "test", benchmark, name, test)
            for split in counts:
                file[split]["done"][:] = 1


def streams(folder: Path, benchmark: Published, name: str, counts: Mapping[str, int]) -> tuple[Array, Array]:
    """Return the stream of training samples and the last samples of the test file, which are the test samples.

    The stream begins with the training file. Where a separate training file is too short for the validation samples,
    too, it goes on with those samples of the test file that come before the test samples.

    Args:
        folder: The folder with the published files.
        benchmark: The names of the files.
        name: The array to read.
        counts: How many samples of each stream are requested.

    Returns:
        Both streams `[sample, *grid]`, with fewer samples than requested where the files hold fewer.
    """
    train, test = load(folder / benchmark.train, name), counts["test"]
    if benchmark.train == benchmark.test:
        return train[: max(len(train) - test, 0)][: counts["train"]], train[max(len(train) - test, 0) :]
    other = load(folder / benchmark.test, name)
    rest = other[: max(len(other) - test, 0)][: max(counts["train"] - len(train), 0)]
    return np.concatenate([train[: counts["train"]], rest]), other[max(len(other) - test, 0) :]


def load(path: Path, name: str) -> Array:
    """Read one array [sample, *grid] of a MATLAB file, of version 5 or (HDF5) 7.3, as float32.

    Raises:
        ValueError: the file does not hold it.
    """
    shape(path, name)
    if h5py.is_hdf5(path):
        with h5py.File(path, "r") as file:
            # MATLAB stores columns first, so HDF5 shows the axes in reverse.
            return np.asarray(file[name], dtype=np.float32).T
    return np.asarray(loadmat(path, variable_names=[name])[name], dtype=np.float32)


def shape(path: Path, name: str) -> tuple[int, ...]:
    """Give the shape [sample, *grid] of an array of a MATLAB file without reading it.

    Raises:
        ValueError: the file does not hold it.
    """
    if h5py.is_hdf5(path):
        with h5py.File(path, "r") as file:
            shapes = {key: item.shape[::-1] for key, item in file.items() if isinstance(item, h5py.Dataset)}
    else:
        shapes = {key: tuple(size) for key, size, _ in whosmat(path)}
    if name not in shapes:
        raise ValueError(f"expected an array {name!r} in {path.name} but found {', '.join(sorted(shapes))}")
    return shapes[name]


def _holds(path: Path, counts: Mapping[str, int]) -> bool:
    # The last test samples of a longer request are not the last of a shorter one.
    with store.opened(path) as file:
        room = store.room(file)
    return room["test"] == counts["test"] and room["train"] >= counts["train"]


def _write(file: h5py.File, split: str, benchmark: Published, name: str, fields: Array) -> None:
    problem = PROBLEMS[benchmark.problem]
    stored = file[split][(problem.input if name == benchmark.input else problem.output).name]
    if fields.shape != stored.shape:
        files = " and ".join(sorted({benchmark.train, benchmark.test}))
        raise ValueError(f"expected {stored.shape} but got {fields.shape} for {name!r}, {split}, in {files}")
    stored[:] = fields
