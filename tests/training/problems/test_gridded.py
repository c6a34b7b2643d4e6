"""Gridded data as programs of the field write them: right values, a question, or a refusal that says what to do."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from tests.drafts import read, values
from training.data.readers import ReadError
from training.data.readers.sets import open_set
from training.problems.draft import draft
from training.problems.draft_file import Draft, DraftError
from training.problems.sections import unconfirmed

RNG = np.random.default_rng(0)
SAMPLES = 12
K = 1 + np.abs(gaussian_filter(RNG.standard_normal((SAMPLES, 8, 9)), (0, 2, 2)))
NU = RNG.uniform(0.1, 1, SAMPLES)
X, Y = np.linspace(0, 1, 8), np.linspace(0, 2, 9)


def drafted(folder: Path, files: str | Sequence[str], *outputs: str) -> Draft:
    """Describe the files of a pattern, or of several names."""
    with ExitStack() as stack:
        given = sorted(folder.glob(files)) if isinstance(files, str) else [folder / each for each in files]
        found = open_set(stack, given)
        return draft(found.file, found.files, found.folder, outputs, found.runs)


def asked(made: Draft) -> set[str]:
    """Return the subjects that have to be confirmed."""
    return {*unconfirmed(made.toml()).values()}


def saved(folder: Path, arrays: dict[str, tuple[tuple[str, ...], NDArray[Any]]], **coordinates: Any) -> None:
    xarray.Dataset(arrays, coords=coordinates).to_netcdf(folder / "a.nc", engine="h5netcdf")


@pytest.mark.parametrize("names", [["rho", "p", "u", "v", "w"], None], ids=["stacked by xarray", "by its name alone"])
@pytest.mark.parametrize("last", [False, True])
def test_a_dimension_of_names_holds_components_and_is_no_axis(
    last: bool, names: list[str] | None, tmp_path: Path
) -> None:
    k = np.stack([K * number for number in range(1, 6)], 1)
    dims, stored = ("sample", "variable", "x", "y"), k
    if last:
        dims, stored = ("sample", "x", "y", "variable"), np.moveaxis(k, 1, -1)
    labels = {} if names is None else {"variable": names}
    saved(tmp_path, {"k": (dims, stored), "u": (dims, 2 * stored)}, x=X, y=Y, **labels)
    made = drafted(tmp_path, "a.nc", "u")
    assert asked(made) == set()
    assert [*made.axes] == ["x", "y"]
    np.testing.assert_allclose(values(made, tmp_path)["k"], k, rtol=1e-6)


@pytest.mark.parametrize("dimension", ["simulation", "seed", "member_id"])
def test_dimensions_that_count_samples_are_known_wherever_they_are(dimension: str, tmp_path: Path) -> None:
    turned = np.moveaxis(K, 0, -1)
    saved(tmp_path, {"k": (("x", "y", dimension), turned), "u": (("x", "y", dimension), 2 * turned)}, x=X, y=Y)
    made = drafted(tmp_path, "a.nc", "u")
    assert asked(made) == set()
    np.testing.assert_allclose(values(made, tmp_path)["u"], 2 * K, rtol=1e-6)


@pytest.mark.parametrize("store", ["t.nc", "t.zarr"])
def test_an_axis_that_runs_backwards_in_another_group_is_refused(store: str, tmp_path: Path) -> None:
    dims = ("sample", "x", "y")
    inputs = xarray.Dataset({"k": (dims, K)}, coords={"x": X, "y": Y})
    for x, stretched in ((X[::-1], False), (10 * X, True), (X, False)):
        outputs = xarray.Dataset({"u": (dims, 2 * K)}, coords={"x": x, "y": Y})
        tree = xarray.DataTree.from_dict({"inputs": inputs, "outputs": outputs})
        if store.endswith("nc"):
            tree.to_netcdf(tmp_path / store, engine="h5netcdf")
        else:
            tree.to_zarr(tmp_path / store, zarr_format=2, mode="w")
        if x[0] > x[-1]:
            with pytest.raises(ReadError, match="the axis x runs from 1 to 0 in outputs and from 0 to 1 in inputs"):
                drafted(tmp_path, [store])
        else:
            assert any("the axis x runs" in one for one in drafted(tmp_path, [store]).remarks) == stretched


@pytest.mark.parametrize("layout", ["well", "pdebench", "incompressible"])
def test_times_that_differ_between_samples_are_asked_about(layout: str, tmp_path: Path) -> None:
    frames = K[:, None] * np.arange(1.0, 6)[None, :, None, None]
    for differ in (False, True):
        times = np.outer(1 + np.arange(SAMPLES) * differ, 0.1 * np.arange(5))
        with h5py.File(tmp_path / "a.hdf5", "w") as file:
            if layout == "well":
                attributes = {"dim_varying": [True, True], "sample_varying": True, "time_varying": True}
                kind = {"grid_type": "cartesian", "n_spatial_dims": 2, "n_trajectories": SAMPLES, "dataset_name": "a"}
                file.attrs.update(kind)
                file["dimensions/time"], file["dimensions/x"], file["dimensions/y"] = times, X, Y
                file["dimensions"].attrs["spatial_dims"] = ["x", "y"]
                file["t0_fields/u"] = frames
                file["t0_fields"].attrs["field_names"] = ["u"]
                file["t0_fields/u"].attrs.update(attributes)
            elif layout == "pdebench":
                for sample, each in enumerate(frames):
                    group = file.create_group(f"{sample:04d}")
                    group["data"], group["grid/x"], group["grid/y"] = each[..., np.newaxis], X, Y
                    group["grid/t"] = times[sample]
            else:
                file["velocity"], file["particles"] = np.stack([frames, frames], -1), frames[..., np.newaxis]
                file["force"], file["t"] = np.stack([K, K], -1), times
        assert asked(drafted(tmp_path, ["a.hdf5"], *["velocity"] * (layout == "incompressible"))) - {"inputs"} == (
            {"samples"} if differ else set()
        )


def test_the_source_of_darcy_flow_is_a_parameter_where_files_have_others(tmp_path: Path) -> None:
    for beta in (1.0, 10.0):
        with h5py.File(tmp_path / f"2D_DarcyFlow_beta{beta}_Train.hdf5", "w") as file:
            file["nu"], file["tensor"] = K * beta, 2 * K[:, np.newaxis] * beta
            file["x-coordinate"], file["y-coordinate"], file.attrs["beta"] = X, Y, beta
    found = values(drafted(tmp_path, "*.hdf5"), tmp_path)
    np.testing.assert_array_equal(found["beta"], np.repeat([1, 10], SAMPLES))
    (tmp_path / "2D_DarcyFlow_beta10.0_Train.hdf5").unlink()
    assert "beta" not in drafted(tmp_path, "*.hdf5").toml().partition("[inputs")[2]


def test_files_of_a_sweep_are_parts_of_one_set_wherever_their_numbers_are(tmp_path: Path) -> None:
    frames = K[:, None] * np.arange(1.0, 6)[None, :, None, None]
    names = ["ReacDiff_Nu0.5_Rho1.0_b.hdf5", "ReacDiff_Nu1e-3_Rho10_b.hdf5"]
    for number, name in enumerate(names):
        with h5py.File(tmp_path / name, "w") as file:
            file["tensor"], file["t-coordinate"] = frames + number, np.arange(6.0)
            file["x-coordinate"], file["y-coordinate"] = X, Y
    made = drafted(tmp_path, "*.hdf5")
    assert asked(made) == {"samples"}  # whether outputs depend on the numbers in the names
    np.testing.assert_allclose(values(made, tmp_path)["tensor"], np.concatenate([frames, frames + 1]), rtol=1e-6)


def test_a_long_name_of_a_file_or_an_array_makes_names_that_are_accepted(tmp_path: Path) -> None:
    long = "1D_CFD_Rand_Eta1.e-8_Zeta1.e-8_periodic_of_the_first_campaign"
    with h5py.File(tmp_path / f"{long}.hdf5", "w") as file:
        file[f"{long}_a"], file[f"{long}_b"] = K, 2 * K
    found = values(drafted(tmp_path, "*.hdf5", f"{long}_b"), tmp_path)
    assert sorted(array.max() for array in found.values()) == pytest.approx([K.max(), 2 * K.max()])


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [(5, 3), (7, 0), (5, 6)])
def test_channels_beyond_four_are_components_where_fields_have_a_grid_in_common(
    inputs: int, outputs: int, last: bool, tmp_path: Path
) -> None:
    at = -1 if last else 1
    grid = gaussian_filter(RNG.standard_normal((SAMPLES, 16, 24)), (0, 2, 2))
    k, u = (np.stack([grid * n for n in range(1, 1 + count)], at) if count else grid for count in (inputs, outputs))
    np.savez(tmp_path / "a.npz", x=k, y=u)
    made = drafted(tmp_path, "a.npz", "y")
    assert asked(made) == ({"time"} if outputs > 4 else set())
    found = values(made, tmp_path)
    for name, stored, count in (("x", k, inputs), ("y", u, outputs)):
        np.testing.assert_allclose(found[name], np.moveaxis(stored, -1, 1) if last and count else stored, rtol=1e-6)


def test_levels_beside_a_plane_are_components(tmp_path: Path) -> None:
    q = np.stack([K * n for n in range(1, 7)], 1)
    planes = (("sample", "x", "y"), K)
    saved(
        tmp_path, {"q": (("sample", "level", "y", "x"), q.swapaxes(2, 3)), "rain": planes}, x=X, y=Y, level=np.arange(6)
    )
    found = values(drafted(tmp_path, "a.nc", "rain"), tmp_path)
    np.testing.assert_allclose(found["q"], q, rtol=1e-6)


@pytest.mark.parametrize("attribute", [False, True])
def test_a_solution_in_each_file_is_a_sample_with_its_times_and_coordinates(attribute: bool, tmp_path: Path) -> None:
    times = 0.1 * np.arange(7)
    frames = K[:, None, 0] * np.arange(1.0, 8)[None, :, None]  # [sample, time, point]
    for run, each in enumerate(frames):
        with h5py.File(tmp_path / f"run_{run}.h5", "w") as file:
            file["u"], file["t"], file["x"] = each, times, Y
            (file.attrs if attribute else file)["nu"] = NU[run]
    made = drafted(tmp_path, "run_*.h5")
    assert asked(made) == {"samples", "time", "outputs"}
    assert made.axes["point"]["length"] == 2
    found = values(made, tmp_path)
    np.testing.assert_allclose(found["u"], frames, rtol=1e-6)
    np.testing.assert_allclose(found["nu"], NU, rtol=1e-6)
    assert {*found} == {"u", "nu"}
    with pytest.raises(DraftError, match=r"found one solution, since t and x count the axes of u \[7 x 9\]"):
        drafted(tmp_path, "run_0.h5")


def test_no_line_of_as_many_numbers_as_samples_makes_these_one_solution(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", u=K[:, 0], k=K[:, 1], x=Y, y=NU)  # a number of every sample
    assert drafted(tmp_path, "a.npz", "u").of("parameters")[0].name == "y"


@pytest.mark.parametrize("axis", [2, 3])
def test_time_between_axes_is_refused_whether_another_field_has_the_grid_or_not(axis: int, tmp_path: Path) -> None:
    frames = np.stack([K] * 6, 1)[..., np.newaxis] * np.arange(1.0, 4)  # [sample, time, row, column, component]
    np.savez(tmp_path / "a.npz", u=np.moveaxis(frames, 1, axis), t=np.arange(6))
    with pytest.raises(DraftError, match=rf"axis {axis} has as many values as t: save np.moveaxis\(u, {axis}, 1\)"):
        drafted(tmp_path, "a.npz")


def test_samples_behind_the_times_are_asked_about(tmp_path: Path) -> None:
    turned = np.stack([np.roll(K, shift, 2) for shift in range(10)])
    np.savez(tmp_path / "a.npz", u=turned)
    made = drafted(tmp_path, "a.npz")
    assert "or the second (12), along which values change most: then np.moveaxis(u, 1, 0)" in made.guesses["files"]
    np.savez(tmp_path / "a.npz", u=turned, t=np.arange(10.0))
    made = drafted(tmp_path, "a.npz")
    assert "samples" in asked(made)
    assert not made.moving  # t does not count the samples


def test_coordinates_of_as_many_points_as_samples_are_a_parameter_by_a_guess(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", k=np.moveaxis(K, 0, 1), u=np.moveaxis(K, 0, 1) + 1, xs=np.linspace(0, 1, 8), nu=NU[:8])
    xs, nu = drafted(tmp_path, "a.npz", "u").of("parameters")
    assert "equally far apart" in xs.guess
    assert nu.guess == ""


@pytest.mark.parametrize("name", ["_FillValue", "nodata", "FillValue", "CodeMissingValue"])
@pytest.mark.parametrize("value", ["-888", -888.0])
@pytest.mark.parametrize("format_", ["hdf5", "netcdf", "whole numbers of netcdf"])
def test_what_attributes_of_other_programs_call_missing_is_missing(
    format_: str, value: str | float, name: str, tmp_path: Path
) -> None:
    k = np.rint(1000 * K)
    k[:, 2:4, 3:5] = -888
    if format_ == "hdf5":
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["k"], file["u"] = k, K
            file["k"].attrs[name] = value
    else:
        stored = k.astype(np.int32) if format_.startswith("whole") else k
        saved(tmp_path, {"k": (("sample", "x", "y"), stored), "u": (("sample", "x", "y"), K)}, x=X, y=Y)
        with h5py.File(tmp_path / "a.nc", "a") as file:
            file["k"].attrs[name] = value
    made = drafted(tmp_path, "a.*", "u")
    assert made.mask == 'nan = "k"'
    np.testing.assert_array_equal(values(made, tmp_path)["inside"] == 0, k == -888)


def test_null_in_lists_of_json_is_nan(tmp_path: Path) -> None:
    rows = np.where(np.quantile(K, 0.1) < K, K, None).tolist()
    lines = [json.dumps({"k": k, "u": u.tolist()}) for k, u in zip(rows, K, strict=True)]
    (tmp_path / "runs.ndjson").write_text("\n".join(lines))
    made = drafted(tmp_path, "runs.ndjson", "u")
    assert made.mask == 'nan = "k"'
    assert (values(made, tmp_path)["inside"] == 0).mean() == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    "head",
    ["x,y,p\nm,m,Pa\n", "# Fluent\n# x,y,p\n# m,m,Pa\n", "x [m],y [m],p [Pa]\n"],
    ids=["below the names", "in comments", "in brackets"],
)
def test_a_line_of_units_below_the_names_of_a_table_is_none_of_values(head: str, tmp_path: Path) -> None:
    rows = RNG.random((3, 20, 3))
    for run, each in enumerate(rows):
        lines = "\n".join(",".join(map(str, row)) for row in each)
        (tmp_path / f"run{run}.csv").write_text(head + lines)
    made = drafted(tmp_path, "run*.csv", "p")
    assert made.of("outputs")[0].array.units == "Pa"
    np.testing.assert_allclose(values(made, tmp_path)["p"], rows[:, :, 2], rtol=1e-6)


def test_a_table_of_text_alone_is_refused_and_says_what_it_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,material\nfirst,steel\nsecond,copper\n")
    with pytest.raises(DraftError, match="material left out: a column that does not hold numbers alone"):
        drafted(tmp_path, "a.csv")


def test_a_table_of_results_of_comsol_has_a_row_for_each_sample(tmp_path: Path) -> None:
    rows = "\n".join(f"{nu},{300 + nu}" for nu in NU)
    (tmp_path / "sweep.csv").write_text(
        f"% Model,heat.mph\n% Table,Point evaluation\n% nu (m^2/s),Temperature (K)\n{rows}"
    )
    np.save(tmp_path / "u.npy", K)
    found = values(drafted(tmp_path, ["u.npy", "sweep.csv"], "u"), tmp_path)
    np.testing.assert_allclose(found["nu"], NU, rtol=1e-6)
    (tmp_path / "grid.txt").write_text("% Dimension: 2\n% Grid\n0 1 2\n0 1\n% Data (T (K))\n1 2 3\n4 5 6\n")
    with pytest.raises(ReadError, match="found one on a grid: choose the data format Spreadsheet"):
        drafted(tmp_path, "grid.txt")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("era5.nc", b"GRIB\0\0\0\1", "begins like GRIB, which grib_to_netcdf"),
        ("forecast", b"GRIB\0\0\0\1", "begins like GRIB, which grib_to_netcdf"),
        ("era5.nc", b"PK\3\4", "begins like a zip archive, such as .npz and .pt, or several files to be unpacked"),
        ("a.mat", b"# Created by Octave 7.3\n# name: u\n 1 2\n", "begins like a text of Octave"),
    ],
)
def test_files_that_are_something_else_are_named_by_how_they_begin(
    name: str, content: bytes, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ReadError, match=sentence):
        drafted(tmp_path, name)


def test_a_spreadsheet_is_no_archive_to_be_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "runs.xlsx", "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
    with pytest.raises(ReadError, match=r"\.xlsx is not read: a spreadsheet: save it as \.csv"):
        drafted(tmp_path, "runs.xlsx")


def test_times_of_files_without_named_axes_are_compared(tmp_path: Path) -> None:
    frames = K[:, None, 0] * np.arange(1.0, 8)[None, :, None]
    for run, each in enumerate(frames):
        np.savez(tmp_path / f"run_{run:02d}.npz", u=each, t=np.arange(7) * (0.1 if run < 6 else 0.2), x=Y)
    made = drafted(tmp_path, "run_*.npz", "u")
    _, samples = read(made.toml(), tmp_path)
    assert "files have other times between two frames: 0.1 in run_00.npz, 0.2 in" in samples.file.attrs["remarks"]


@pytest.mark.parametrize("grouped", [False, True])
def test_times_of_every_sample_are_those_of_frames(grouped: bool, tmp_path: Path) -> None:
    frames = K[:, None, 0] * np.arange(1.0, 8)[None, :, None]  # [sample, time, point]
    times = np.outer(1 + NU, np.arange(7))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        if grouped:
            for sample, (each, moments) in enumerate(zip(frames, times, strict=True)):
                file[f"sim_{sample}/u"], file[f"sim_{sample}/t"] = each, moments
        else:
            file["u"], file["t"] = frames, times
    made = drafted(tmp_path, "a.h5", "u")
    assert asked(made) == {"samples", "time"}
    assert "samples differ in t" in made.toml()
    found = values(made, tmp_path)
    assert {*found} == {"u"}
    np.testing.assert_allclose(found["u"], frames, rtol=1e-6)


@pytest.mark.parametrize("given", [["inputs", "outputs"], ["."], None], ids=["folders", "the folder of both", "files"])
def test_folders_of_inputs_and_outputs_have_a_file_for_each_sample(given: list[str] | None, tmp_path: Path) -> None:
    for name, array in (("inputs", K), ("outputs", 2 * K)):
        (tmp_path / name).mkdir()
        for sample, each in enumerate(array):
            np.save(tmp_path / name / f"{sample}.npy", each)
    made = drafted(tmp_path, given or "*/*.npy", "outputs")
    assert asked(made) == {"samples"}
    found = values(made, tmp_path)
    np.testing.assert_allclose(found["inputs"], K, rtol=1e-6)
    np.testing.assert_allclose(found["outputs"], 2 * K, rtol=1e-6)


def test_files_of_one_name_in_several_folders_are_all_samples(tmp_path: Path) -> None:
    for run, each in enumerate(K):
        (tmp_path / f"part{run % 2}").mkdir(exist_ok=True)
        np.savez(tmp_path / f"part{run % 2}" / f"run{run // 2}.npz", k=each, u=2 * each)
    found = values(drafted(tmp_path, "*/*.npz", "u"), tmp_path)
    np.testing.assert_allclose(found["k"], np.concatenate([K[::2], K[1::2]]), rtol=1e-6)


def test_two_dimensions_that_count_samples_are_left_out_by_name(tmp_path: Path) -> None:
    k = K.reshape(3, 4, 8, 9)
    saved(tmp_path, {"k": (("run", "seed", "x", "y"), k), "u": (("run", "seed", "x", "y"), 2 * k)}, x=X, y=Y)
    with pytest.raises(DraftError, match=r"run and seed both count samples: make them one dimension, ds\.stack"):
        drafted(tmp_path, "a.nc")
