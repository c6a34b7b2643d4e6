"""Where points lie by their files: named, refused, or not known."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray
from numpy.typing import NDArray
from typer.testing import CliRunner

from tests.drafts import described, read
from tests.training.problems.test_containers import MOVING, RNG, K, dataset
from training.commands import app
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.problems.draft_file import DraftError
from training.problems.problem_file import ProblemFile
from training.problems.sections import DataError


@pytest.mark.parametrize(
    ("x", "axis", "said"),
    [
        (np.linspace(0, 2, 21), {"length": 2.0, "points": "nodes"}, ""),
        (np.linspace(2, 0, 21), {"length": 2.0, "points": "nodes"}, ""),
        ((np.arange(20) + 0.5) / 10, {"length": 2.0, "points": "cells"}, ""),
        (np.linspace(0, 6.2832, 20, endpoint=False), {"length": 6.283, "boundary": "periodic", "points": "left"}, ""),
        (np.linspace(0, 2, 21), {"points": "nodes"}, "the points of the axis x extend over 2 in .* over 1, by length"),
        (np.linspace(0, 2, 21), {"length": 2.0, "points": "cells"}, "extend over 2 in .* over 1.90476, by length"),
        (np.linspace(0, 1, 21), {"boundary": "periodic", "points": "left"}, "extend over 1 in .* over 0.952381"),
        (1 - np.cos(np.linspace(0, np.pi, 21)), {"length": 2.0, "points": "nodes"}, "axis x has from 0.0123117 to"),
    ],
)
def test_points_that_lie_elsewhere_than_the_problem_file_says_are_named(
    x: NDArray[np.float64], axis: dict[str, object], said: str, tmp_path: Path
) -> None:
    k = np.random.default_rng(0).random((20, len(x)))
    fields = {"k": (("sample", "x"), k), "u": (("sample", "x"), k + 1)}
    xarray.Dataset(fields, {"x": x}).to_netcdf(tmp_path / "line.nc")
    document = {"data": {"files": ["line.nc"]}, "inputs": {"k": {}}, "outputs": {"u": {}}, "axes": {"x": axis}}
    problem = ProblemFile.model_validate({"name": "line", **document})
    found = str(SampleFile(prepare(problem, tmp_path, tmp_path / "data"), problem).file.attrs["remarks"])
    assert re.search(said, found) if said else found == ""


def test_an_axis_that_runs_backwards_in_another_file_is_refused(tmp_path: Path) -> None:
    dataset(slice(0, 10)).to_netcdf(tmp_path / "set_1.nc")
    later = dataset(slice(10, 20))
    later.assign_coords(y=later["y"] + 1).to_netcdf(tmp_path / "set_2.nc")
    text = CliRunner().invoke(app, ["describe", str(tmp_path), "--outputs", "u"], catch_exceptions=False).stdout
    problem, samples = read(text, tmp_path)
    assert "the axis y runs from 1 to 3 in" in str(samples.file.attrs["remarks"])
    assert samples.described.grid.ends[problem.axis_names.index("y")] == (0, 2)  # of the first file, in the card
    later.assign_coords(y=later["y"][::-1]).to_netcdf(tmp_path / "set_2.nc")
    with pytest.raises(
        DataError, match=r"set_2\.nc: the axis y runs from 2 to 0 in .* and from 0 to 2 in .*set_1\.nc; exp"
    ):
        prepare(problem, tmp_path, tmp_path / "data")


def test_positions_that_are_not_known_do_not_reach_the_card(tmp_path: Path) -> None:
    dataset().assign_coords(y=[np.nan, *range(1, 8)]).to_netcdf(tmp_path / "set.nc")
    text = CliRunner().invoke(app, ["describe", str(tmp_path), "--outputs", "u"], catch_exceptions=False).stdout
    problem, samples = read(text, tmp_path)
    assert dict(zip(problem.axis_names, samples.described.grid.ends, strict=True)) == {"y": (), "x": (0, 3)}


def test_a_file_without_samples_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", k=K[:0], u=K[:0])
    with pytest.raises(DraftError, match=r"expected samples but found k \[0 x 8 x 9\]"):
        described(tmp_path / "set.npz")


def test_time_between_the_axes_of_a_grid_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", a=MOVING[:, 0], u=np.moveaxis(MOVING, 1, 2), t=np.arange(6))
    with pytest.raises(DraftError, match=r"u \[20 x 8 x 6 x 9\]: .* axis 2 has as many .* np\.moveaxis\(u, 2, 1\)"):
        described(tmp_path / "set.npz")


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("nctyx", "axis 2 seems to count frames behind 2 components: save np.moveaxis(array, 2, 1)"),
        ("nyxtc", "axis 3 seems to count frames before 2 components: save np.moveaxis(array, 3, 1)"),
        ("ntcyx", ("first", 6, 2, "first")),
        ("ntyxc", ("first", 6, 2, "last")),
        ("ncyxt", ("last", 6, 2, "first")),
        ("nyxct", ("last", 6, 2, "last")),
    ],
)
@pytest.mark.parametrize("outputs", ["", "array"])
def test_frames_of_vectors_alone_are_where_the_grid_is_not(
    order: str, expected: str | tuple[str, int, int, str], outputs: str, tmp_path: Path
) -> None:
    """As of video, [sample, component, time, row, column]; the 2 components were the frames."""
    sides = {"n": 20, "t": 6, "c": 2, "y": 8, "x": 8}
    np.save(tmp_path / "set.npy", RNG.random([sides[axis] for axis in order]))
    if isinstance(expected, str):
        with pytest.raises(DraftError, match=re.escape(expected)):
            described(tmp_path, "set.npy", outputs)
        return
    problem, samples = read(described(tmp_path, "set.npy", outputs), tmp_path)
    one = problem.outputs[0]
    frames = samples.frames
    assert (problem.data.time, frames, len(one.components), one.component_axis) == expected


def test_axes_and_times_of_runs_in_folders_are_no_fields(tmp_path: Path) -> None:
    """As a copy of the output of Dedalus: a folder per run, with times and the points of its axes beside the fields."""
    for number in range(3):
        (tmp_path / f"run_{number}").mkdir()
        with h5py.File(tmp_path / f"run_{number}" / "snapshots_s1.h5", "w") as file:
            for name in ("buoyancy", "vorticity"):
                file[f"fields/{name}"] = RNG.random((6, 8, 9))
            file["scales/sim_time"], file["scales/iteration"] = 0.1 * np.arange(6), np.arange(6)
            file["scales/x_hash_0a1b"], file["scales/z_hash_2c3d"] = np.linspace(0, 3, 8), np.linspace(-1, 1, 9)
    result = CliRunner().invoke(app, ["describe", str(tmp_path)])
    assert result.exit_code == 0, result.output
    drafted = tomllib.loads(result.stdout[result.stdout.index("name = ") :])
    assert drafted["time"] == {"step": pytest.approx(0.1), "history": 1}
    assert [axis["length"] for axis in drafted["axes"].values()] == [3.0, 2.0]
    assert [*drafted["outputs"]] == ["fields_buoyancy", "fields_vorticity"]
    assert [*drafted["parameters"]] == ["scales_iteration"]  # which is asked about
    assert "[parameters.scales_iteration]  # guess:" in result.stdout
