"""The published MATLAB files are read under the published protocol where DATA_PATH holds them."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.io import savemat

from training.data.generate import Request, prepare
from training.data.views import read
from training.problems import problem as benchmark_files
from training.problems.problem import PROBLEMS


def fields(count: int, *grid: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, *grid))


@pytest.fixture
def matlab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "published"
    folder.mkdir()
    monkeypatch.setenv("DATA_PATH", str(folder))
    for number in (1, 2):
        darcy = {"coeff": fields(6, 13, 13, seed=number), "sol": fields(6, 13, 13, seed=10 + number)}
        savemat(folder / f"piececonst_r421_N1024_smooth{number}.mat", darcy | {"Kcoeff": np.zeros((6, 13, 13))})
    savemat(folder / "burgers_data_R10.mat", {"a": fields(8, 16, seed=20), "u": fields(8, 16, seed=21)})
    return folder


@pytest.mark.usefixtures("matlab")
def test_darcy_trains_on_the_first_file_and_is_tested_on_the_end_of_the_second(tmp_path: Path) -> None:
    path = prepare(Request(PROBLEMS["darcy"], 13, train=4, test=2, seed=1), tmp_path, progress=False)
    train, test = read(path, "train", 4, 13), read(path, "test", 2, 7)
    assert train.provenance == "published"
    np.testing.assert_array_equal(train.inputs, fields(6, 13, 13, seed=1)[:4].astype(np.float32))
    np.testing.assert_array_equal(train.outputs, fields(6, 13, 13, seed=11)[:4].astype(np.float32))
    np.testing.assert_array_equal(test.outputs, fields(6, 13, 13, seed=12)[-2:, ::2, ::2].astype(np.float32))


@pytest.mark.usefixtures("matlab")
def test_validation_samples_follow_the_training_samples_and_never_are_test_samples(tmp_path: Path) -> None:
    path = prepare(Request(PROBLEMS["darcy"], 13, train=6, test=2, seed=1, validation=3), tmp_path, progress=False)
    validation = read(path, "validation", 3, 13, after=6)
    np.testing.assert_array_equal(validation.inputs, fields(6, 13, 13, seed=2)[:3].astype(np.float32))
    with pytest.raises(ValueError, match=r"expected \(11, 13, 13\) but got \(10, 13, 13\) for coefficient, train"):
        prepare(Request(PROBLEMS["darcy"], 13, train=6, test=2, seed=1, validation=5), tmp_path, progress=False)


@pytest.mark.usefixtures("matlab")
def test_burgers_trains_on_the_start_and_is_tested_on_the_end_of_one_file(tmp_path: Path) -> None:
    path = prepare(Request(PROBLEMS["burgers"], 16, train=5, test=3, seed=1), tmp_path, progress=False)
    np.testing.assert_array_equal(read(path, "train", 5, 16).inputs, fields(8, 16, seed=20)[:5].astype(np.float32))
    np.testing.assert_array_equal(read(path, "test", 3, 8).outputs, fields(8, 16, seed=21)[-3:, ::2].astype(np.float32))


def test_other_requests_and_other_files_are_converted_anew_and_the_same_are_not(matlab: Path, tmp_path: Path) -> None:
    path = prepare(Request(PROBLEMS["burgers"], 16, train=2, test=2, seed=1), tmp_path, progress=False)
    prepare(Request(PROBLEMS["burgers"], 16, train=4, test=1, seed=1), tmp_path, progress=False)
    np.testing.assert_array_equal(read(path, "test", 1, 16).inputs, fields(8, 16, seed=20)[-1:].astype(np.float32))
    written = path.stat().st_ino
    assert prepare(Request(PROBLEMS["burgers"], 16, train=3, test=1, seed=1), tmp_path, progress=False) == path
    assert path.stat().st_ino == written
    assert read(path, "train", 3, 16).inputs.shape == (3, 16)
    savemat(matlab / "burgers_data_R10.mat", {"a": fields(8, 16, seed=30), "u": fields(8, 16, seed=31)})
    prepare(Request(PROBLEMS["burgers"], 16, train=3, test=1, seed=1), tmp_path, progress=False)
    np.testing.assert_array_equal(read(path, "train", 3, 16).inputs, fields(8, 16, seed=30)[:3].astype(np.float32))


def test_a_file_of_version_73_has_its_axes_in_reverse(tmp_path: Path) -> None:
    stored = fields(3, 4, 5, seed=0)
    with h5py.File(tmp_path / "new.mat", "w", userblock_size=512) as file:
        file["sol"] = stored.T
    np.testing.assert_array_equal(benchmark_files.read_matlab(tmp_path / "new.mat", "sol"), stored.astype(np.float32))


@pytest.mark.usefixtures("matlab")
def test_too_few_samples_are_refused_and_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"expected \(9, 16\) but got \(7, 16\) for initial, train, in burgers_data_R10\.mat"
    ):
        prepare(Request(PROBLEMS["burgers"], 16, train=9, test=1, seed=1), tmp_path, progress=False)
    assert [path.suffix for path in tmp_path.iterdir() if path.is_file()] == [".lock"]


@pytest.mark.usefixtures("matlab")
def test_files_of_another_mesh_are_passed_over() -> None:
    assert PROBLEMS["darcy"].published.available(13)
    assert not PROBLEMS["darcy"].published.available(61)


def test_a_missing_array_is_named(matlab: Path, tmp_path: Path) -> None:
    savemat(matlab / "burgers_data_R10.mat", {"a": fields(8, 16, seed=20)})
    with pytest.raises(ValueError, match=r"burgers_data_R10\.mat: expected an array 'u' but found a"):
        prepare(Request(PROBLEMS["burgers"], 16, 1, 1, seed=1), tmp_path, progress=False)


def test_without_the_files_samples_are_generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_PATH", str(tmp_path))
    assert not PROBLEMS["burgers"].published.available(16)
    monkeypatch.delenv("DATA_PATH")
    assert not PROBLEMS["darcy"].published.available(13)
