"""Layouts of public data sets, and of files that programs of the field write: what `describe` drafts is read right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest
import xarray
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from typer.testing import CliRunner

from training.commands import app
from training.data.samples import SampleFile, prepare
from training.problems.draft import DraftError
from training.problems.marks import unconfirmed
from training.problems.problem_file import ProblemFile, read_problem_file

RNG = np.random.default_rng(0)
SAMPLES = 12
K = 1 + np.abs(gaussian_filter(RNG.standard_normal((SAMPLES, 8, 9)), (0, 2, 2)))
NU = RNG.uniform(0.1, 1, SAMPLES)
FRAMES = K[:, None] * np.arange(1.0, 6)[None, :, None, None]
XY = RNG.random((SAMPLES, 25, 2))
STRESS = XY.sum(axis=2)
Arrays = dict[str, NDArray[Any]]


class Case(NamedTuple):
    """A layout: what writes it, the files to describe, the outputs, what is asked, and the values that are right."""

    write: Callable[[Path], object]
    files: tuple[str, ...]
    outputs: str
    asked: set[str]
    values: Arrays


def pdearena(folder: Path) -> None:
    with h5py.File(folder / "NavierStokes2D_train_1.h5", "w") as file:
        group = file.create_group("train")
        group["u"], group["vx"], group["vy"] = FRAMES, FRAMES + 1, FRAMES + 2
        group["buo_y"], group["t"] = NU, np.tile(np.arange(5.0), (SAMPLES, 1))
        group["x"], group["y"] = np.tile(np.arange(8.0), (SAMPLES, 1)), np.tile(np.arange(9.0), (SAMPLES, 1))


def incompressible(folder: Path) -> None:
    """PDEBench's fourth layout: components last, and the times of every sample."""
    with h5py.File(folder / "ns_incom_inhom_2d_512-0.h5", "w") as file:
        file["velocity"] = np.stack([FRAMES, 2 * FRAMES], -1)
        file["particles"], file["force"] = FRAMES[..., None], np.stack([K, 2 * K], -1)
        file["t"] = np.tile(np.arange(0.0, 1, 0.2), (SAMPLES, 1))


def groups_with_extremes(folder: Path) -> None:
    """Write samples in groups, and the extremes of all of them beside, as the benchmarks of CNO do."""
    with h5py.File(folder / "PoissonData.h5", "w") as file:
        for number, k in enumerate(K):
            file[f"Sample_{number}/input"], file[f"Sample_{number}/output"] = k, 2 * k
        file["max_inp"], file["beta"] = K.max(), NU


def packed(folder: Path) -> None:
    data = xarray.Dataset({"k": (("sample", "x", "y"), K), "u": (("sample", "x", "y"), 2 * K)})
    integers = {"dtype": "i2", "scale_factor": 1e-4, "add_offset": 2.0, "_FillValue": -32767}
    data.to_netcdf(folder / "packed.h5", encoding={"k": integers, "u": integers})


def packed_by_hand(folder: Path) -> None:
    with h5py.File(folder / "packed.h5", "w") as file:
        file["k"], file["u"] = np.round(K * 1e4).astype("i2"), 2 * K
        file["k"].attrs["scale_factor"] = 1e-4


def records(folder: Path) -> None:
    with h5py.File(folder / "records.h5", "w") as file:
        cells = np.zeros(K.shape, [("k", "f8"), ("u", "f8")])
        cells["k"], cells["u"] = K, 2 * K
        runs = np.zeros(SAMPLES, [("nu", "f8"), ("run", "i4")])
        runs["nu"], runs["run"] = NU, np.arange(SAMPLES)
        file["data"], file["params"] = cells, runs


def split_groups(folder: Path) -> None:
    with h5py.File(folder / "all.h5", "w") as file:
        for name, part in (("test", slice(9, None)), ("train", slice(7)), ("valid", slice(7, 9))):
            file[f"{name}/k"], file[f"{name}/u"] = K[part], 2 * K[part]


def split_files(folder: Path) -> None:
    for name, part in (("test", slice(9, None)), ("train", slice(7)), ("valid", slice(7, 9))):
        np.savez(folder / f"ns_{name}.npz", k=K[part], u=2 * K[part])


def elasticity(folder: Path) -> None:
    """As Geo-FNO's: samples last, and files of one array each."""
    np.save(folder / "Random_UnitCell_XY_10.npy", np.moveaxis(XY, 0, -1))
    np.save(folder / "Random_UnitCell_sigma_10.npy", STRESS.T)


TWICE: Arrays = {"k": K, "u": 2 * K}
CASES = {
    "PDEArena: a group of a split, times and coordinates of every sample": Case(
        pdearena, ("*.h5",), "", {"outputs", "time"}, {"u": FRAMES, "vx": FRAMES + 1, "vy": FRAMES + 2, "buo_y": NU}
    ),
    "PDEBench: incompressible flow": Case(
        incompressible,
        ("*.h5",),
        "velocity",
        set(),
        {"force": np.stack([K, 2 * K], 1), "velocity": np.stack([FRAMES, 2 * FRAMES], 2)},
    ),
    "CNO: groups of samples with numbers beside": Case(
        groups_with_extremes, ("*.h5",), "output", set(), {"input": K, "output": 2 * K, "beta": NU}
    ),
    "netCDF with another suffix, packed": Case(packed, ("packed.h5",), "u", set(), TWICE),
    "HDF5, packed": Case(packed_by_hand, ("packed.h5",), "u", set(), TWICE),
    "records of HDF5": Case(records, ("records.h5",), "u", set(), {"data_k": K, "data_u": 2 * K, "params_nu": NU}),
    "groups of splits": Case(split_groups, ("all.h5",), "u", set(), TWICE),
    "files of splits": Case(split_files, ("ns_*.npz",), "u", set(), TWICE),
    "Geo-FNO: clouds with samples last": Case(
        elasticity,
        ("*.npy",),
        "Random_UnitCell_sigma_10",
        {"samples"},
        {"coordinates": XY, "random_unitcell_sigma_10": STRESS},
    ),
}


def described(folder: Path, files: tuple[str, ...], outputs: str) -> str:
    names = ["--outputs", outputs] if outputs else []
    given = [str(folder / file) for file in files]
    return CliRunner().invoke(app, ["describe", *given, *names], catch_exceptions=False).stdout


def read(text: str, folder: Path) -> tuple[ProblemFile, SampleFile]:
    """Read what a problem file says, its guesses confirmed."""
    (folder / "problem.toml").write_text(re.sub(r"  # guess:.*", "", text))
    problem = read_problem_file(folder / "problem.toml")
    return problem, SampleFile(prepare(problem, folder, folder / "data"), problem)


@pytest.mark.parametrize("name", CASES)
def test_a_draft_reads_the_right_values_or_asks(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    case.write(tmp_path)
    text = described(tmp_path, case.files, case.outputs)
    assert {*unconfirmed(text).values()} == case.asked
    _, samples = read(text, tmp_path)
    found = samples.read(range(SAMPLES))
    assert {*found} >= {*case.values}
    for tensor, values in case.values.items():
        np.testing.assert_allclose(found[tensor], values, rtol=1e-4, err_msg=tensor)


@pytest.mark.parametrize("write", [split_groups, split_files])
def test_samples_of_splits_stay_in_them(write: Callable[[Path], object], tmp_path: Path) -> None:
    write(tmp_path)
    files = ("all.h5",) if write is split_groups else ("ns_*.npz",)
    text = described(tmp_path, files, "u")
    assert read(text, tmp_path)[1].counts == (7, 2, 3)


def test_values_that_a_file_calls_missing_are_outside_of_the_domain(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "sea.h5", "w") as file:
        file["k"], file["u"] = K, np.where(K > 1.05, 2 * K, -999)
        file["u"].attrs["_FillValue"] = -999.0
    text = described(tmp_path, ("sea.h5",), "u")
    assert 'nan = "u"' in text
    inside = read(text, tmp_path)[1].read(range(SAMPLES))["inside"]
    assert np.array_equal(inside, K > 1.05)


def test_numbers_of_samples_are_no_parameter(tmp_path: Path) -> None:
    np.savez(tmp_path / "heat.npz", **TWICE, index=np.arange(1, SAMPLES + 1), nu=NU)
    text = described(tmp_path, ("heat.npz",), "u")
    assert "# left out: index: it numbers the samples" in text
    assert "[parameters.nu]" in text


def test_fixed_points_alone_are_no_input(tmp_path: Path) -> None:
    """As DeepONet's trunk, with a branch at other points."""
    np.savez(tmp_path / "cavity.npz", branch=RNG.random((30, 40)), trunk=XY[0], y=RNG.random((30, 25)))
    with pytest.raises(DraftError, match=r"beside the points of all samples but found branch \[30 x 40\]"):
        described(tmp_path, ("cavity.npz",), "y")


def test_what_is_left_out_is_listed_where_an_output_is_not_found(tmp_path: Path) -> None:
    np.savez(tmp_path / "heat.npz", **TWICE)
    with pytest.raises(DraftError, match=r"among the arrays k \[12 x 8 x 9\] float64, u .* but got 'v'"):
        described(tmp_path, ("heat.npz",), "v")


@pytest.mark.parametrize("last", [False, True])
def test_weights_of_one_mesh_are_those_of_all_samples(last: bool, tmp_path: Path) -> None:
    k, weights = RNG.random((SAMPLES, 25)), RNG.random(25)
    arrays = {"k": k, "u": 2 * k} if not last else {"k": k.T, "u": 2 * k.T}
    np.savez(tmp_path / "cloud.npz", xy=XY[0], area=weights, **arrays)
    (tmp_path / "problem.toml").write_text(
        'name = "cloud"\n[data]\nfiles = ["cloud.npz"]\n'
        + ('sample = "last"\n' if last else "")
        + '[inputs.k]\n[outputs.u]\n[points]\ncoordinates = "xy"\nweights = "area"\n'
    )
    found = read((tmp_path / "problem.toml").read_text(), tmp_path)[1].read(range(SAMPLES))
    assert found["weights"] == pytest.approx(np.broadcast_to(weights, (SAMPLES, 25)), rel=1e-6)
    assert found["k"] == pytest.approx(k, rel=1e-6)
