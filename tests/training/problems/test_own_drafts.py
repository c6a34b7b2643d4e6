"""A user's files are drafted as they are: a problem file that passes its checks, and says what it has guessed."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import zarr

from tests.training.problems.test_own_data import Arrays, checked, drafted, heat, write
from training.data.prepare import data_files
from training.data.readers import open_file
from training.problems.draft import draft

FIXTURES = Path(__file__).parents[2] / "fixtures" / "own_data"


def vectors() -> Arrays:
    rng = np.random.default_rng(1)
    return {"x": rng.random((12, 2, 60, 90)), "y": rng.standard_normal((12, 2, 60, 90))}


def channels_last() -> Arrays:
    return {name: np.moveaxis(value, 1, -1) for name, value in vectors().items()}


def pdebench(path: Path) -> None:
    with h5py.File(path, "w") as file:
        arrays = heat()
        file["nu"], file["tensor"] = arrays["k"], arrays["T"][:, None]
        file["x-coordinate"], file["y-coordinate"] = np.linspace(0, 1, 8), np.linspace(0, 2, 12)
        file.attrs["beta"] = 1.0


def store(path: Path) -> None:
    group = zarr.open_group(path, mode="w")
    for name, value in heat().items():
        group.create_array(name, data=value)


JOURNEYS: dict[str, tuple[Callable[[Path], Any], str]] = {  # and the output, where the layout does not define it
    "heat.h5": (lambda path: write(path, heat()), "T"),
    "vectors.npz": (lambda path: np.savez(path, **vectors()), "y"),
    "last.npz": (lambda path: np.savez(path, **channels_last()), "y"),
    "darcy.hdf5": (pdebench, ""),
    "set.pt": (lambda path: torch.save({"x": torch.tensor(heat()["k"]), "y": torch.tensor(heat()["T"])}, path), ""),
    "store.zarr": (store, "t"),
    "2024 run-1.h5": (lambda path: write(path, {"data/in": heat()["k"], "data/out": heat()["T"]}), "data/out"),
}


@pytest.mark.parametrize("name", JOURNEYS)
def test_a_draft_is_a_problem_file_that_passes_its_checks(name: str, tmp_path: Path) -> None:
    path, (make, output) = tmp_path / name, JOURNEYS[name]
    make(path)
    problem = drafted(path, tmp_path, *([output] if output else []))
    columns, _ = checked(problem, data_files(problem, tmp_path))
    assert problem.inputs
    assert problem.outputs
    assert all(column.samples in {12, 20} for column in columns.values())


def test_a_draft_of_the_well_learns_the_step_from_frame_to_frame(tmp_path: Path) -> None:
    path = tmp_path / "well.hdf5"
    path.write_bytes((FIXTURES / "the_well_dummy.hdf5").read_bytes())
    problem = drafted(path, tmp_path)
    assert "# time_varying_scalar changes in time: a request brings" in (tmp_path / "problem.toml").read_text()
    assert problem.states == {"field_first": "field"}
    assert problem["time_varying_scalar"].per_frame
    assert len(problem.outputs[0].components) == 2
    assert problem.time is not None
    with h5py.File(path) as file:
        times = file["dimensions/time"][:]
    assert problem.time.step == pytest.approx((times[-1] - times[0]) / (len(times) - 1), rel=1e-4)
    assert {axis.boundary for axis in problem.axes} == {"periodic"}


def test_a_draft_says_what_it_guessed(tmp_path: Path) -> None:
    np.savez(tmp_path / "vectors.npz", **vectors())
    with open_file(tmp_path / "vectors.npz") as file:
        text = draft(file, [tmp_path / "vectors.npz"]).toml()
    assert 'components = ["c0", "c1"]  # guess: the axis of 2 in x [12 x 2 x 60 x 90] holds components' in text
    assert "\nlength = 1.0  # guess: the file has no coordinates\n" in text
    assert '\nboundary = "open"  # guess: say "wall" or "periodic" if you know it\n' in text
    assert tomllib.loads(text)["axes"].keys() == {"row", "column"}


@pytest.mark.parametrize(
    ("sides", "least", "tried"),
    [
        ((8, 8), 0.1, "flip_row, flip_column, transpose"),
        ((8, 9), -1.0, "flip_row, flip_column, negate"),
        ((8,), -1.0, "flip_point, negate"),
    ],
)
def test_a_draft_names_the_symmetries_that_a_training_tries(
    sides: tuple[int, ...], least: float, tried: str, tmp_path: Path
) -> None:
    values = np.random.default_rng(0).uniform(least, 1, (2, 20, *sides))
    np.savez(tmp_path / "field.npz", x=values[0], y=values[1])
    assert drafted(tmp_path / "field.npz", tmp_path, "y").symmetries == ()
    text = (tmp_path / "problem.toml").read_text()
    assert f"[symmetries]\n# quick and laptop try what the axes allow: {tried}\nexact = []\n" in text
    assert text.count("# linear = true") == (least < 0)  # below the input


def test_fields_with_components_have_no_symmetries_to_try(tmp_path: Path) -> None:
    np.savez(tmp_path / "vectors.npz", x=np.zeros((12, 2, 60, 90)), y=np.ones((12, 60, 90)))
    drafted(tmp_path / "vectors.npz", tmp_path, "y")
    assert "try what the axes allow" not in (tmp_path / "problem.toml").read_text()


def test_a_draft_says_where_points_are_not_equally_spaced(tmp_path: Path) -> None:
    pdebench(tmp_path / "darcy.hdf5")
    with h5py.File(tmp_path / "darcy.hdf5", "r+") as file:
        file["x-coordinate"][:] = 1 - np.cos(np.pi * np.arange(8) / 7)  # Chebyshev points
    problem = drafted(tmp_path / "darcy.hdf5", tmp_path)
    assert "# axis x is not equally spaced" in (tmp_path / "problem.toml").read_text()
    assert (problem.axes[0].points, problem.axes[0].length) == ("cells", 2.0)
    assert problem.axes[1].points == "nodes"


def test_a_draft_is_toml_whatever_the_names_and_meanings_are(tmp_path: Path) -> None:
    write(tmp_path / "heat.h5", {'k "\n\t\x7f': heat()["k"], "K": heat()["f"], "T": heat()["T"]})
    with h5py.File(tmp_path / "heat.h5", "r+") as file:
        file["T"].attrs.update(long_name="temperature\nin the plate\r\x01", units="°C \\ \U0001f321")
    problem = drafted(tmp_path / "heat.h5", tmp_path, "T")
    assert problem["t"].meaning == "temperature\nin the plate\r\x01"
    assert problem["t"].units == "°C \\ \U0001f321"
    assert {section.key for section in problem.inputs} == {'k "\n\t\x7f', "K"}
