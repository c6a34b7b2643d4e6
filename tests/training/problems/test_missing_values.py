"""Values that are missing, packed or dates, as programs of the field write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray

from tests.drafts import values
from tests.training.problems.test_programs import FRAMES, SAMPLES, SMOOTH, K, drafted, with_hole
from training.data.positions import unlike_times
from training.data.readers import open_file
from training.problems.problem_file import ProblemFile


@pytest.mark.parametrize(
    ("attributes", "fill", "suffix"),
    [
        ({"valid_range": [0.0, 100.0]}, -5.0, "h5"),
        ({"valid_max": 100.0}, 1e20, "h5"),
        ({"valid_range": [0.0, 100.0]}, -5.0, "nc"),
        ({"valid_min": 0.0}, -5.0, "nc"),
    ],
)
def test_values_outside_of_the_valid_ones_are_missing(
    attributes: dict[str, Any], fill: float, suffix: str, tmp_path: Path
) -> None:
    holed = with_hole(2 * K, fill)
    if suffix == "h5":
        with h5py.File(tmp_path / "sea.h5", "w") as file:
            file["k"], file["u"] = K, holed
            file["u"].attrs.update(attributes)
    else:
        dims = ("sample", "y", "x")
        xarray.Dataset({"k": (dims, K), "u": (dims, holed, attributes)}).to_netcdf(tmp_path / "sea.nc")
    made = drafted(tmp_path, f"sea.{suffix}", "u")
    assert "mask" in made.guesses
    found = values(made, tmp_path)
    np.testing.assert_array_equal(found["inside"] == 0, holed == fill)


@pytest.mark.parametrize("limit", [6.0, np.int16(6), np.float32(6)])
def test_limits_beside_whole_numbers_that_are_not_packed_make_missing_values(limit: Any, tmp_path: Path) -> None:
    stored = np.arange(12, dtype=np.int16)
    xarray.Dataset({"u": ("sample", stored, {"valid_max": limit})}).to_netcdf(tmp_path / "sea.nc")
    with h5py.File(tmp_path / "sea.h5", "w") as file:
        file["u"] = stored
        file["u"].attrs["valid_max"] = limit
    for suffix in ("h5", "nc"):
        with open_file(tmp_path / f"sea.{suffix}") as file:
            assert file.arrays["u"].dtype == np.float64
            np.testing.assert_array_equal(file.arrays["u"].read(), np.where(stored > 6, np.nan, stored))


def test_whole_numbers_with_limits_are_kinds_and_numbers_of_samples_as_without(tmp_path: Path) -> None:
    kinds = (np.arange(K.size).reshape(K.shape) % 3).astype(np.int16)
    dims, limits = ("sample", "y", "x"), {"valid_range": np.array([0, 100], np.int16)}
    whole = {"layer": (dims, kinds, limits), "run": ("sample", np.arange(SAMPLES, dtype=np.int16), limits)}
    xarray.Dataset(whole | {"k": (dims, K), "u": (dims, K)}).to_netcdf(tmp_path / "sea.nc")
    made = drafted(tmp_path, "sea.nc", "u")
    assert "run" in made.left_out
    assert any("layer is 0, 1, 2 alone: where these name kinds" in each for each in made.remarks)


def test_limits_of_packed_numbers_are_as_they_are_stored(tmp_path: Path) -> None:
    stored = np.round(1000 * K).astype(np.int16)
    stored[:, 2:5, 3:6] = 32000
    packed = {"scale_factor": 0.001, "add_offset": 5.0, "valid_range": np.array([0, 3000], np.int16)}
    with h5py.File(tmp_path / "sea.h5", "w") as file:
        file["u"] = stored
        file["u"].attrs.update(packed)
    xarray.Dataset({"u": (("sample", "y", "x"), stored, packed)}).to_netcdf(tmp_path / "sea.nc")
    for suffix in ("h5", "nc"):
        with open_file(tmp_path / f"sea.{suffix}") as file:
            found = file.arrays["u"].read()
            np.testing.assert_array_equal(np.isnan(found), stored == 32000)
            np.testing.assert_allclose(found[:, 0], 0.001 * stored[:, 0] + 5, rtol=1e-6)


@pytest.mark.parametrize(("said", "kept"), [({"valid_range": [0, -6]}, slice(0, 4)), ({"valid_min": [1]}, slice(1, 4))])
@pytest.mark.parametrize("factor", [0.5, -0.5])
def test_packed_numbers_without_a_sign_are_read_with_their_limits(
    said: dict[str, list[int]], kept: slice, factor: float, tmp_path: Path
) -> None:
    stored, packed = np.array([0, 100, -56, -6, -1], np.int8), {"_Unsigned": "true", "scale_factor": factor}
    limits = {name: np.array(value, np.int8) for name, value in said.items()}
    xarray.Dataset({"u": (("sample",), stored)}).to_netcdf(tmp_path / "sea.nc")
    with h5py.File(tmp_path / "sea.nc", "a") as file, h5py.File(tmp_path / "sea.h5", "w") as other:
        other["u"] = stored
        for each in (file, other):
            each["u"].attrs.update({**packed, **limits, "_FillValue": np.int8(-1)})
    expected = np.full(5, np.nan)
    expected[kept] = factor * np.array([0, 100, 200, 250, 255])[kept]
    for suffix in ("nc", "h5"):
        with open_file(tmp_path / f"sea.{suffix}") as file:
            np.testing.assert_array_equal(file.arrays["u"].read(), expected)


@pytest.mark.deep
def test_packed_numbers_at_a_limit_are_valid_though_float32_rounds_them(tmp_path: Path) -> None:
    stored = np.arange(1, 301, dtype=np.int16)
    packed = {"scale_factor": np.float32(0.01), "add_offset": np.float32(273.15)}
    said = {
        f"u{n}": ("sample", stored[n - 1 : n], packed | {"valid_range": np.array([n, n], np.int16)}) for n in stored
    }
    xarray.Dataset(said).to_netcdf(tmp_path / "limits.nc")
    with open_file(tmp_path / "limits.nc") as file:
        assert len(file.arrays) == len(stored)
        assert not any(np.isnan(one.read()).any() for one in file.arrays.values())


@pytest.mark.parametrize("fill", [1e20, -9999, 999999])
def test_fill_values_do_not_hide_which_axis_counts_samples(fill: float, tmp_path: Path) -> None:
    np.savez(tmp_path / "sea.npz", k=SMOOTH, u=with_hole(2 * SMOOTH, fill))
    made = drafted(tmp_path, "sea.npz", "u")
    assert made.sample == "first"
    assert any("may stand for missing ones" in each for each in made.remarks)


def test_dates_of_frames_are_seconds(tmp_path: Path) -> None:
    dates = np.datetime64("2020-01-01") + np.arange(6) * np.timedelta64(6, "h")
    np.savez(tmp_path / "weather.npz", u=FRAMES, time=dates)
    made = drafted(tmp_path, "weather.npz", "u")
    assert (made.step, "step" in made.guesses) == (6 * 3600, False)


@pytest.mark.parametrize("since", [np.datetime64("2020-01-01", "ns"), np.timedelta64(0, "ns")])
def test_dates_of_netcdf_are_seconds_whatever_each_file_counts(since: Any, tmp_path: Path) -> None:
    for number, unit in enumerate(("h", "D")):  # which xarray writes as hours and as days
        times = {"time": since + np.arange(6) * np.timedelta64(1, unit)}
        xarray.Dataset({"u": (("time", "y", "x"), FRAMES[number])}, times).to_netcdf(tmp_path / f"run_{number}.nc")
    assert drafted(tmp_path, "run_*.nc", "u").step == 3600
    with open_file(tmp_path / "run_0.nc") as hours, open_file(tmp_path / "run_1.nc") as days:
        problem = ProblemFile.model_validate(
            {
                "name": "weather",
                "data": {"files": ["run_*.nc"]},
                "inputs": {"first": {"key": "u"}},
                "outputs": {"u": {}},
                "axes": {"y": {}, "x": {}},
                "time": {"step": 3600},
            }
        )
        assert unlike_times(problem, [hours]) == []
        (said,) = unlike_times(problem, [hours, days])
        assert said.startswith("files have other times between two frames: 3600 in run_0.nc, 86400 in run_1.nc; one")
