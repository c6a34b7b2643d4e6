"""Folders of more files than a process may open, of which some are opened again."""

from __future__ import annotations

import gc
import json
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path

import h5netcdf
import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.data.readers import ReadError, open_file
from training.data.readers.recent import OPEN, open_several
from training.data.readers.sets import open_set
from training.problems.problem_file import read_problem_file

FILES = 5 * OPEN
Array = NDArray[np.float32]


def write_hdf5(path: Path, k: Array, u: Array) -> None:
    with h5py.File(path, "w") as file:
        file["k"], file["u"] = k, u


def write_netcdf(path: Path, k: Array, u: Array) -> None:
    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"y": 8, "x": 9}
        for name, values in (("k", k), ("u", u)):
            file.create_variable(name, ("y", "x"), data=values)


def write_npz(path: Path, k: Array, u: Array) -> None:
    np.savez(path, k=k, u=u)


@pytest.fixture
def few_open_files() -> Iterator[None]:
    """Let this process open fewer files than there are in a folder, besides those that it has open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # what earlier tests have left open closes now, and not during the test
    used = {int(each.name) for each in Path("/proc/self/fd").iterdir()}
    free = (number for number in count() if number not in used)  # a limit is of numbers, and there may be gaps in them
    resource.setrlimit(resource.RLIMIT_NOFILE, (next(islice(free, 4 * OPEN, None)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_open_files")
@pytest.mark.parametrize(
    ("suffix", "write"),
    [pytest.param("h5", write_hdf5, marks=pytest.mark.deep), ("nc", write_netcdf), ("npz", write_npz)],
)
def test_a_folder_may_have_more_files_than_may_be_open(
    suffix: str, write: Callable[[Path, Array, Array], None], tmp_path: Path
) -> None:
    k, u = np.random.default_rng(0).random((2, FILES, 8, 9), np.float32)
    (tmp_path / "runs").mkdir()
    for number in range(FILES):
        write(tmp_path / "runs" / f"{number}.{suffix}", k[number], u[number])
    (tmp_path / "many.toml").write_text(
        f'name = "many"\n[data]\nfiles = ["runs/*.{suffix}"]\nsample = "file"\n[inputs.k]\n[outputs.u]\n'
        "[axes.row]\n[axes.column]\n"
    )
    problem = read_problem_file(tmp_path / "many.toml")
    samples = SampleFile(prepare(problem, tmp_path, tmp_path), problem)
    with h5py.File(samples.path) as file:
        np.testing.assert_array_equal(file["k"], k)
        np.testing.assert_array_equal(file["u"], u)


@pytest.mark.usefixtures("few_open_files")
def test_splits_may_have_more_files_than_may_be_open(tmp_path: Path) -> None:
    k, u = np.random.default_rng(0).random((2, FILES, 2, 8, 9), np.float32)
    paths = [tmp_path / f"{'test' if number % 5 == 0 else 'train'}_{number}.h5" for number in range(FILES)]
    for path, *values in zip(paths, k, u, strict=True):
        write_hdf5(path, *values)
    with ExitStack() as stack:
        found = open_set(stack, paths)
        assert found.file.test == 2 * sum(path.name.startswith("test") for path in paths)
        assert {*found.file.arrays} == {"k", "u"}


@pytest.mark.usefixtures("few_open_files")
def test_a_limit_of_open_files_is_no_damage(tmp_path: Path) -> None:
    write_npz(tmp_path / "run.npz", *np.ones((2, 8, 9), np.float32))
    with ExitStack() as stack:
        opened = (stack.enter_context(open_file(tmp_path / "run.npz")) for _ in range(5 * OPEN))
        with pytest.raises(ReadError, match=r"run\.npz cannot be read: Too many open files"):
            list(opened)


def test_a_file_that_is_changed_before_it_is_read_again_is_refused(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.npz" for number in range(3)]
    for path in paths:
        np.savez(path, k=np.ones((4, 8)))
    with open_several(paths, open_file, most=2) as files:
        np.savez(paths[0], k=np.zeros((5, 8)))
        assert files[2].array("k").read().shape == (4, 8)
        with pytest.raises(ReadError, match=r"0.npz: expected a file that stays as it is, but it was changed"):
            files[0].array("k").read()


@pytest.mark.parametrize("write", ["files", "folders", "settings"])
def test_a_number_that_one_of_many_files_has_another_value_of_is_a_parameter(write: str, tmp_path: Path) -> None:
    """Whichever of them it is, also where those that are looked at first have one value."""
    for number in range(FILES):
        fields, numbers = {"k": np.ones((8, 9)), "u": np.ones((8, 9))}, {"nu": 1 + (number == 9), "length": 2.0}
        (folder := tmp_path / "runs" / (f"{number}" if write == "folders" else "")).mkdir(parents=True, exist_ok=True)
        if write == "files":
            np.savez(folder / f"{number}.npz", **fields, **numbers)
            continue
        name = "run" if write == "folders" else f"run{number}"
        np.savez(folder / f"{name}.npz", **fields)
        (folder / f"{name}.json").write_text(json.dumps(numbers))
    with ExitStack() as stack:
        file = open_set(stack, [tmp_path / "runs"]).file
    assert "nu" in file.arrays
    assert "length" not in file.arrays
    assert file.constants["length"] == 2
