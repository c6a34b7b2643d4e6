"""Gridded data as programs of the field write them: right values, a question, or a refusal that says what to do."""

from __future__ import annotations

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

from tests.drafts import values
from training.data.readers import ReadError
from training.data.readers.sets import open_set
from training.problems.draft import draft
from training.problems.draft_file import Draft
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
