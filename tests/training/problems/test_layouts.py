"""Files as people of the field have them: each draft reads the right values, or asks what the file leaves open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
from numpy.typing import NDArray
from scipy.io import savemat

from tests.drafts import Case, contents, described
from training.data.prepare import prepare
from training.data.readers import ReadError
from training.problems.problem_file import read_problem_file
from training.problems.sections import DataError

RNG = np.random.default_rng(0)
K = 1 + RNG.random((20, 8, 9))
NU = RNG.uniform(0.1, 1, 20)
XY = RNG.random((20, 12, 2))
Arrays = dict[str, NDArray[Any]]


def per_file(folder: Path) -> None:
    for number, (k, nu) in enumerate(zip(K, NU, strict=True)):
        np.savez(folder / f"run_{number:03}.npz", k=k, u=2 * k, nu=nu)


def per_group(folder: Path) -> None:
    with h5py.File(folder / "groups.h5", "w") as file:
        for number, (k, nu) in enumerate(zip(K, NU, strict=True)):
            group = file.create_group(f"run_{number}")
            group.attrs.update(nu=nu, loads=[nu, 2 * nu], solver="mine")
            group["k"], group["u"] = k, nu * k


def ragged(folder: Path) -> None:
    with h5py.File(folder / "clouds.h5", "w") as file:
        for number, xy in enumerate(XY):
            group, count = file.create_group(f"run_{number}"), 12 - number % 3
            group.attrs["nu"] = NU[number]
            group["xy"], group["u"] = xy[:count], xy[:count, 0]


def struct73(folder: Path) -> None:
    with h5py.File(folder / "new.mat", "w", userblock_size=512) as file:
        file["data/k"], file["data/u"] = K.T, 2 * K.T
        file["data"].attrs["MATLAB_class"] = np.bytes_("struct")


def struct_array(folder: Path) -> None:
    runs = np.zeros((1, 20), [("k", object), ("nu", object), ("u", object)])
    for number in range(20):
        runs[0, number] = (K[number], NU[number], NU[number] * K[number])
    savemat(folder / "runs.mat", {"runs": runs})


def separate(folder: Path) -> None:
    np.save(folder / "inputs.npy", K)
    np.save(folder / "outputs.npy", 2 * K)


def swept() -> xarray.Dataset:
    dims = ("nu", "y", "x")
    return xarray.Dataset({"k": (dims, K), "u": (dims, 2 * K)}, {"y": np.arange(8.0), "x": np.arange(9.0)})


def flow() -> xarray.Dataset:
    v = ("sample", "vector", "x", "y"), VECTORS.swapaxes(2, 3)
    return xarray.Dataset({"v": v, "u": (("sample", "y", "x"), 2 * K)})


A = RNG.standard_normal(K.shape)
FRAMES = A[..., None] * np.arange(1.0, 6)
TWICE: Arrays = {"k": K, "u": 2 * K}
LAST = {name: np.moveaxis(values, 0, -1) for name, values in TWICE.items()}
VECTORS = np.stack([K, 2 * K], 1)
GRID = np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 2, 8))
CASES = {
    "samples last in MATLAB": Case(
        lambda folder: savemat(folder / "last.mat", {"k": np.moveaxis(K, 0, -1), "u": 2 * np.moveaxis(K, 0, -1)}),
        *("last.mat", "u", {"samples"}, TWICE),
    ),
    "samples last, as many as a vector has": Case(
        lambda folder: np.savez(folder / "last.npz", k=np.moveaxis(K, 0, -1), u=2 * np.moveaxis(K, 0, -1), nu=NU),
        *("last.npz", "u", {"samples"}, {**TWICE, "nu": NU}),
    ),
    "a file per sample": Case(per_file, "run_*.npz", "u", {"samples"}, {**TWICE, "nu": NU}),
    "a group per sample": Case(
        per_group,
        *("groups.h5", "u", set()),
        {"k": K, "u": NU[:, None, None] * K, "nu": NU, "loads_0": NU, "loads_1": 2 * NU},
    ),
    "a group per sample, of unequal sizes": Case(ragged, "clouds.h5", "u", set(), {"nu": NU}),
    "a row of parameters": Case(
        lambda folder: savemat(folder / "row.mat", {"k": K, "nu": NU[None], "u": NU[:, None, None] * K}),
        *("row.mat", "u", set(), {"nu": NU, "k": K}),
    ),
    "several numbers per sample": Case(
        lambda folder: np.savez(folder / "loads.npz", k=K, loads=np.stack([NU, 2 * NU], 1), u=2 * K),
        *("loads.npz", "u", set(), {**TWICE, "loads_0": NU, "loads_1": 2 * NU}),
    ),
    "a struct of MATLAB": Case(
        lambda folder: savemat(folder / "old.mat", {"data": {"k": K, "u": 2 * K, "note": "m/s"}}),
        *("old.mat", "data_u", set(), {"data_k": K, "data_u": 2 * K}),
    ),
    "a struct of MATLAB 7.3": Case(struct73, "new.mat", "data_u", set(), {"data_k": K, "data_u": 2 * K}),
    "a struct of MATLAB per sample": Case(
        struct_array, "runs.mat", "runs_u", set(), {"runs_k": K, "runs_nu": NU, "runs_u": NU[:, None, None] * K}
    ),
    "time last": Case(
        lambda folder: savemat(folder / "ns.mat", {"a": A, "u": FRAMES, "t": np.arange(1.0, 6)[None]}),
        *("ns.mat", "u", {"time"}, {"a": A, "u": np.moveaxis(FRAMES, -1, 1)}),
    ),
    "time last, without times": Case(
        lambda folder: np.savez(folder / "ns.npz", a=A, u=FRAMES),
        *("ns.npz", "u", {"time"}, {"a": A, "u": np.moveaxis(FRAMES, -1, 1)}),
    ),
    "time first": Case(
        lambda folder: np.savez(folder / "ns.npz", a=A, u=np.moveaxis(FRAMES, -1, 1), t=np.arange(1.0, 6)),
        *("ns.npz", "u", {"time"}, {"a": A, "u": np.moveaxis(FRAMES, -1, 1)}),
    ),
    "a file per tensor": Case(separate, "*puts.npy", "outputs", set(), {"inputs": K, "outputs": 2 * K}),
    "a field for all samples": Case(
        lambda folder: np.savez(folder / "sea.npz", depth=K[0], k=K, u=2 * K),
        *("sea.npz", "u", set(), {**TWICE, "depth": np.broadcast_to(K[0], K.shape)}),
    ),
    "coordinates over the whole grid, and more fields for all samples than others": Case(
        lambda folder: np.savez(folder / "sea.npz", X=GRID[0], Y=GRID[1], depth=K[0], slope=K[1], nu=NU, u=K),
        *("sea.npz", "u", set(), {"u": K, "nu": NU, "depth": np.broadcast_to(K[0], K.shape)}),
    ),
    "samples last, and what is the same for all": Case(
        lambda folder: savemat(folder / "last.mat", {"X": GRID[0], "Y": GRID[1], "mask": np.ones((8, 9)), **LAST}),
        *("last.mat", "u", {"samples"}, {**TWICE, "inside": np.ones_like(K)}),
    ),
    "a number of each sample as a coordinate of xarray": Case(
        lambda folder: swept().rename(nu="sample").assign_coords(nu=("sample", NU)).to_netcdf(folder / "runs.nc"),
        *("runs.nc", "u", set(), {**TWICE, "nu": NU}),
    ),
    "runs of xarray along their parameter": Case(
        lambda folder: swept().assign_coords(nu=NU).to_netcdf(folder / "runs.nc"),
        *("runs.nc", "u", {"samples"}, {**TWICE, "nu": NU}),
    ),
    "a file per sample, with its number as a coordinate of xarray": Case(
        lambda folder: [
            swept().isel(nu=row).assign_coords(nu=nu).to_netcdf(folder / f"run_{row}.nc")
            for row, nu in enumerate(NU[:8])
        ],
        *("run_*.nc", "u", {"samples"}, {name: values[:8] for name, values in {**TWICE, "nu": NU}.items()}),
    ),
    "components in a dimension of any name": Case(
        lambda folder: flow().to_netcdf(folder / "flow.nc"),
        *("flow.nc", "u", set(), {"v": VECTORS.swapaxes(2, 3), "u": 2 * K.swapaxes(1, 2)}),
    ),
    "a cloud in arrays": Case(
        lambda folder: np.savez(folder / "cloud.npz", xy=XY, stress=XY.sum(axis=2)),
        *("cloud.npz", "stress", set(), {"coordinates": XY, "stress": XY.sum(axis=2)}),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_draft_reads_the_right_values_or_asks(name: str, tmp_path: Path) -> None:
    CASES[name].check(tmp_path, rtol=1e-6)


def test_groups_of_unequal_sizes_are_samples_with_points_of_their_own(tmp_path: Path) -> None:
    ragged(tmp_path)
    found = contents(described(tmp_path, "clouds.h5", "u"), tmp_path)
    assert found["counts"].tolist() == [12 - number % 3 for number in range(20)]
    assert found["u"][1, :11] == pytest.approx(XY[1, :11, 0])


def test_a_coordinate_on_the_grid_is_named_and_may_be_an_input(tmp_path: Path) -> None:
    swept().assign_coords(depth=(("x", "y"), K[0].T), nu=NU).to_netcdf(tmp_path / "sea.nc")
    text = described(tmp_path, "sea.nc", "u")
    assert "# left out: depth: a coordinate of x, y: if the outputs depend on it, write a table of [inputs]" in text
    found = contents(text + "[inputs.bottom]\nkey = 'depth'\nstatic = true\n", tmp_path)
    np.testing.assert_allclose(found["bottom"], np.broadcast_to(K[0], K.shape), rtol=1e-6)


def test_an_attribute_that_is_no_number_is_named(tmp_path: Path) -> None:
    per_group(tmp_path)
    assert "# left out: solver: an attribute of each group that is no number" in described(tmp_path, "groups.h5", "u")


PROBLEM = """
name = "case"
[data]
files = ["case.npz"]
{data}
[inputs.k]
{inputs}
[parameters.nu]
{parameters}
[outputs.u]
{outputs}
[axes.row]
[axes.column]
{more}
"""


@pytest.mark.parametrize("parts", [1, 2])
def test_a_row_of_parameters_may_be_in_files_of_its_own(parts: int, tmp_path: Path) -> None:
    np.savez(tmp_path / "case.npz", k=K, u=NU[:, None, None] * K)
    for number, part in enumerate(np.array_split(NU, parts)):
        np.save(tmp_path / f"nu_{number}.npy", part[None])
    more = {"data": "", "inputs": "", "outputs": "", "more": ""}
    found = contents(PROBLEM.format(**more, parameters='files = ["nu_*.npy"]\nkey = "array"'), tmp_path)
    assert found["nu"] == pytest.approx(NU, rel=1e-6)


def refused(arrays: Arrays, folder: Path, **parts: str) -> None:
    keys = ("data", "inputs", "parameters", "outputs", "more")
    np.savez(folder / "case.npz", **arrays)
    (folder / "case.toml").write_text(PROBLEM.format(**{key: parts.get(key, "") for key in keys}))
    problem = read_problem_file(folder / "case.toml")
    prepare(problem, folder, folder / "data")


def test_samples_of_tensors_in_files_of_their_own_are_in_one_order(tmp_path: Path) -> None:
    order, fields = np.random.default_rng(0).permutation(20), swept().rename(nu="sample")
    numbered = fields.assign_coords(sample=np.arange(20))
    numbered[["k"]].to_netcdf(tmp_path / "k.nc")
    numbered[["u"]].isel(sample=order).to_netcdf(tmp_path / "u.nc")
    said = rf"u\.nc: 'sample' is {order[0]} at sample 0, and expected is 0, as in .*/k\.nc: bring"
    with pytest.raises(DataError, match=said):
        contents(described(tmp_path, "*.nc", "u"), tmp_path)


def test_rows_of_a_table_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(20)
    np.savez(tmp_path / "fields.npz", **TWICE)
    (tmp_path / "runs.csv").write_text("\n".join(["id,nu", *(f"{number},{NU[number]}" for number in order)]))
    said = rf"runs\.csv: 'id' is {order[0]} at sample 0, and expected is 0, since nothing numbers those of .*fields"
    with pytest.raises(DataError, match=said):
        contents(described(tmp_path, "*[zv]", "u"), tmp_path)


def test_an_input_that_changes_in_time_has_to_be_declared(tmp_path: Path) -> None:
    frames = np.moveaxis(FRAMES, -1, 1)
    more = '[time]\nstep = 0.1\n[inputs.first]\nkey = "u"'
    sentence = r"'k' but found shape \(20, 5, 8, 9\): `per_frame = true` if it changes in time"
    with pytest.raises(DataError, match=sentence):
        refused({"k": frames, "u": frames, "nu": NU}, tmp_path, more=more)


def test_what_does_not_fit_a_layout_is_named(tmp_path: Path) -> None:
    loads = np.stack([NU, NU], 1)
    with pytest.raises(DataError, match=r"one number per sample \(`column` names one of several, .*\) in 'nu' but"):
        refused({"k": K, "u": K, "nu": loads}, tmp_path)
    with pytest.raises(DataError, match="expected a column 2 in 'nu'"):
        refused({"k": K, "u": K, "nu": loads}, tmp_path, parameters="column = 2")
    with pytest.raises(ReadError, match="expected a group per sample"):
        refused({"k": K, "u": K, "nu": NU}, tmp_path, data='sample = "group"')
    np.save(tmp_path / "other.npy", K[:7])
    with pytest.raises(DataError, match=r"'array' has 7 samples and .* 20; expected as many"):
        refused({"u": K, "nu": NU}, tmp_path, inputs='files = ["other.npy"]\nkey = "array"')
