"""Series in time as data sets have them: trajectories with their steps, or asked about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import meshio
import numpy as np
import pytest
import xarray
from numpy.typing import NDArray

from tests.drafts import described
from tests.training.problems.test_data_sets import STRESS, TRIANGLES, XY
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.data.readers import open_file
from training.problems.draft import draft
from training.problems.draft_file import DraftError
from training.problems.problem_file import ProblemFile
from training.problems.sections import DataError


def test_a_series_of_steps_is_a_trajectory_and_points_that_move_are_refused(tmp_path: Path) -> None:
    for run in ("a/VTK", "b/VTK"):
        (tmp_path / "foam" / run).mkdir(parents=True)
        for step in (0, 100, 200):
            meshio.Mesh(XY[0], [("triangle", TRIANGLES)], {"p": STRESS[0] + step}).write(
                tmp_path / "foam" / run / f"case_{step}.vtu"
            )
    text = described(tmp_path, ("foam",), "p")
    assert "[time]\nstep = 1.0  # guess: the file does not say" in text
    assert '[inputs.p_first]\nkey = "p"' in text
    for number in range(3):
        (tmp_path / "eagle" / str(number)).mkdir(parents=True)
        np.savez(tmp_path / "eagle" / str(number) / "sim.npz", pointcloud=XY[:6], VX=STRESS[:6])
    with pytest.raises(DraftError, match=r"those of pointcloud \[1 x 6 x 25 x 2\] float64 beside VX .* move"):
        described(tmp_path, ("eagle",), "VX")


def forecasts(path: Path, start: str, lead: str, *others: str) -> NDArray[Any]:
    """Write a temperature on the globe for some starts and times since then, and more dimensions of two."""
    rng = np.random.default_rng(0)
    values = rng.random((20, *(2 for _ in others), 5, 8, 16)).astype(np.float32)
    dims = (start, *others, lead, "latitude", "longitude")
    axes = {start: np.arange(20) * 6, lead: np.arange(5) * 12.0, "latitude": np.linspace(90, -90, 8)}
    data = xarray.Dataset({"t2m": (dims, values)}, axes | {"longitude": np.arange(16) * 22.5})
    data.to_netcdf(path)
    return values


@pytest.mark.parametrize(
    ("start", "lead"), [("init_time", "lead_time"), ("time", "step"), ("time", "prediction_timedelta")]
)
def test_forecasts_are_trajectories_that_their_starts_count(start: str, lead: str, tmp_path: Path) -> None:
    values = forecasts(tmp_path / "t2m.nc", start, lead)
    with open_file(tmp_path / "t2m.nc") as file:
        assert file.arrays["t2m"].dimensions == ("time", "latitude", "longitude")
        assert file.samples == f"the dimension {start}"
        made = draft(file, [tmp_path / "t2m.nc"], outputs=("t2m",))
        np.testing.assert_array_equal(file.arrays["t2m"].read(), values)
    assert made.moving
    assert made.step == 12
    assert made.axes["longitude"] == {"length": 360.0, "boundary": "periodic", "points": "left"}
    assert made.axes["latitude"] == {"length": 180.0, "boundary": "open", "points": "nodes"}


def test_a_step_behind_other_axes_of_samples_is_an_axis_of_the_grid(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((20, 8, 9, 6))
    xarray.Dataset(dict.fromkeys("ab", (("sample", "x", "y", "step"), values))).to_netcdf(tmp_path / "g.nc")
    for order, refused in ("x y step", False), ("y x step", False), ("y x z", True):
        axes = {axis: {"length": 1.0} for axis in order.split()}
        found = ProblemFile.model_validate(
            {"name": "g", "data": {"files": ["g.nc"]}, "inputs": {"a": {}}, "outputs": {"b": {}}, "axes": axes}
        )
        if refused:
            with pytest.raises(DataError, match=r"their order, sample, y, x, z in 'a' .*: 'x' is another"):
                prepare(found, tmp_path, tmp_path / "data")
        else:
            samples = SampleFile(prepare(found, tmp_path, tmp_path / "data"), found)
            turned = np.einsum(f"nxys->n{order.replace(' ', '')[:3]}", values)
            assert samples.read(range(20))["a"] == pytest.approx(turned)


def test_frames_of_runs_keep_their_time_beside_the_iterations_of_a_solver(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    fields = {"u": (("run", "time", "x"), rng.random((20, 6, 8))), "residual": (("run", "step"), rng.random((20, 50)))}
    fields["w"] = (("run", "time", "step", "x"), rng.random((20, 6, 50, 8)))
    xarray.Dataset(fields, {"time": 0.1 * np.arange(6), "x": np.arange(8) / 8}).to_netcdf(tmp_path / "runs.nc")
    with open_file(tmp_path / "runs.nc") as file:
        assert {name: one.dimensions for name, one in file.arrays.items()} == {
            "u": ("time", "x"),
            "residual": ("step",),
            "w": ("time", "step", "x"),
        }
        assert file.coordinates["time"] == pytest.approx(0.1 * np.arange(6))
        assert (file.remarks, file.left_out, file.samples) == ((), {}, "the dimension run")


def test_a_field_beside_forecasts_counts_none_of_them(tmp_path: Path) -> None:
    forecasts(tmp_path / "t2m.nc", "time", "step")
    with xarray.open_dataset(tmp_path / "t2m.nc", decode_times=False) as data:
        data.assign(land=data["t2m"][0, 0]).to_netcdf(tmp_path / "more.nc")
    with open_file(tmp_path / "more.nc") as file:
        assert file.remarks == ("step is the time of forecasts, which time counts",)
        assert file.samples == "the dimension time"


def test_forecasts_of_several_members_are_left_out_by_name(tmp_path: Path) -> None:
    forecasts(tmp_path / "t2m.nc", "time", "step", "number")
    with open_file(tmp_path / "t2m.nc") as file:
        assert "t2m" not in file.arrays
        assert file.left_out["t2m"].startswith("time and number both count samples: make them one dimension")


def test_a_single_series_in_time_is_marked_as_samples_without_steps(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    axes = {"time": np.arange(20) * 6, "latitude": np.linspace(90, -90, 8), "longitude": np.arange(16) * 22.5}
    fields = {name: (("time", "latitude", "longitude"), rng.random((20, 8, 16))) for name in ("t2m", "z500")}
    xarray.Dataset(fields, axes).to_netcdf(tmp_path / "era5.nc")
    with open_file(tmp_path / "era5.nc") as file:
        made = draft(file, [tmp_path / "era5.nc"], outputs=("z500",))
    assert "samples are counted by time (20), so that no step in time is learned" in made.guesses["files"]
