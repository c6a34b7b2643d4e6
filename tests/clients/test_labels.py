"""xarray inputs give xarray outputs, with the dimensions and coordinates of the input."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
from scipy import io

from petrov_client import Client, InvalidInput
from petrov_client._errors import Where
from petrov_client._formats import frames_dataset, netcdf_bytes
from petrov_client._inputs import check_input
from petrov_client._labels import Labels
from petrov_client._models import ModelInfo
from petrov_client._schema import TensorInfo
from tests import toy_fields, toy_rollouts
from tests.clients.test_movie import described

GRID = (12, 9)
DAYS = ("monday", "tuesday", "friday")


@pytest.fixture
def inputs() -> dict[str, xarray.DataArray]:
    """Return the inputs of `drift` for three days, on a grid with coordinates."""
    arrays = toy_fields.samples(3, GRID)
    coords = {"day": list(DAYS), "row": np.linspace(0, 1, GRID[0]), "column": np.arange(GRID[1]), "run": 7}
    dims = {"density": ("day", "row", "column"), "velocity": ("day", "component", "row", "column"), "time": ("day",)}
    return {
        name: xarray.DataArray(array, {key: coords[key] for key in ("run", *dims[name]) if key in coords}, dims[name])
        for name, array in arrays.items()
    }


def test_outputs_keep_dimensions_and_coordinates(call: Callable[..., Any], inputs: dict[str, xarray.DataArray]) -> None:
    found = call("predict", "drift", **inputs)
    expected = toy_fields.compute(**{name: array.to_numpy() for name, array in inputs.items()})
    for name, array in found.items():
        assert isinstance(array, xarray.DataArray)
        np.testing.assert_allclose(array.to_numpy(), expected[name], rtol=1e-5)
        for key, coordinate in inputs["density"].coords.items():
            xarray.testing.assert_identical(array.coords[key], coordinate)
    assert found["moved"].dims == ("day", "row", "column")
    assert found["moved"].attrs == {"units": "kg/m3", "long_name": "density afterwards"}
    assert found["flux"].dims == ("day", "component", "row", "column")
    assert found["flux"].coords["component"].to_numpy().tolist() == ["x", "y"]


def test_dimensions_may_have_any_order(gateway: Any, inputs: dict[str, xarray.DataArray]) -> None:
    turned = {name: array.transpose(*reversed(array.dims)) for name, array in inputs.items()}
    with Client(gateway.url) as petrov:
        found, straight = petrov.predict("drift", **turned), petrov.predict("drift", **inputs)
    assert found["moved"].dims == ("column", "row", "day")
    xarray.testing.assert_identical(found["moved"], straight["moved"].transpose("column", "row", "day"))
    xarray.testing.assert_identical(found["flux"], straight["flux"])


def plane() -> ModelInfo:
    """Return a model of trajectories whose grid has unequal sides."""
    return described(("row", "column"))


STATE = np.arange(3 * 16 * 17, dtype=np.float32).reshape(3, 16, 17)


@pytest.mark.parametrize("dims", ["run row column", "Row COLUMN run", "column run row", "y row column", "a b c"])
def test_dimensions_are_known_by_their_names_in_capitals_too(dims: str) -> None:
    names = dict(zip(("run", "row", "column"), "abc" if dims == "a b c" else ("run", "row", "column"), strict=True))
    order = [each for each in dims.split() if each.lower() in names.values()]
    labelled = xarray.DataArray(STATE, dims=[*names.values()])
    if dims == "y row column":
        labelled, order = labelled.rename(run="y"), ["y", "row", "column"]
    named = {each.lower(): each for each in order}
    turned = labelled.rename({each: named[each] for each in labelled.dims}).transpose(*order)
    [field] = check_input(plane(), turned).inputs
    np.testing.assert_array_equal(field.array, STATE)


def test_a_name_of_the_grid_in_the_place_of_another_axis_is_refused() -> None:
    labelled = xarray.DataArray(STATE, dims=("run", "row", "column"))
    check_input(plane(), labelled.rename(column="x"))  # the row is where it is expected
    message = r"expected the dimensions \(batch, row, column\), .* but got \(run, x, row\): rename the others"
    with pytest.raises(InvalidInput, match=message) as found:
        check_input(plane(), labelled.rename(column="x").transpose("run", "x", "row"))
    assert found.value.where == Where("u")


def test_an_axis_that_falls_is_named_as_the_caller_calls_it() -> None:
    latitudes = np.linspace(90, -90, 16)
    labelled = xarray.DataArray(STATE, {"lat": latitudes}, ("run", "lat", "lon"))
    with pytest.warns(UserWarning, match=r'the axis "lat" of the inputs runs from 90 to -90, .*sortby\(\'lat\'\)'):
        check_input(plane(), labelled)


@pytest.mark.parametrize(
    ("expected", "said", "same"),
    [
        ("W/(m K)", "W m-1 K-1", True),
        ("W/(m K)", "W m**-1 K**-1", True),
        ("kg/m3", "kg m^-3", True),
        ("m2 s-2", "m*m/s/s", True),
        ("1/s", "s-1", True),
        ("K", "degC", False),
        ("m/s", "m s", False),
        ("m", "km", False),
        ("degrees of freedom / 2", "degrees of freedom / 2", True),
        ("1", "m", True),  # where a model does not know its units
        ("K", "", True),
    ],
)
def test_other_units_are_a_warning(expected: str, said: str, same: bool) -> None:
    info = plane()
    info = replace(info, inputs=(replace(info.inputs[0], units=expected),))
    labelled = xarray.DataArray(STATE, dims=("run", "row", "column"), attrs={"units": said})
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        check_input(info, labelled)
    texts = [] if same else [f'"u" has the units {said}, and the model takes {expected}: values are not converted']
    assert [str(each.message) for each in found] == texts


def test_an_axis_that_runs_backwards_is_named(gateway: Any, inputs: dict[str, xarray.DataArray]) -> None:
    back = slice(None, None, -1)
    turned = {name: array.isel(row=back) if "row" in array.dims else array for name, array in inputs.items()}
    unlabelled = {name: array.drop_vars("row", errors="ignore") for name, array in turned.items()}
    with Client(gateway.url) as petrov:
        with pytest.warns(UserWarning, match='"row" of the inputs runs from 1 to 0, .* by sortby') as found:
            backwards = petrov.predict("drift", **turned)
        straight = petrov.predict("drift", **unlabelled)
    assert [each.filename for each in found] == [__file__]
    np.testing.assert_array_equal(backwards["moved"], straight["moved"])  # points in the order that was given


def test_an_axis_is_compared_with_that_of_the_training_data(gateway: Any, inputs: dict[str, xarray.DataArray]) -> None:
    with Client(gateway.url) as petrov:
        plain = petrov.model("drift")

    def check(ends: tuple[float, ...], positions: Any) -> None:
        assert plain.grid is not None
        trained = replace(plain, grid=replace(plain.grid, ends=(ends, ())))
        moved = {name: one.assign_coords(row=positions) if "row" in one.dims else one for name, one in inputs.items()}
        check_input(trained, None, moved)

    falling = np.linspace(90, -90, GRID[0])
    for ends, positions in (
        ((90.0, -90.0), falling),
        ((0.02, 0.98), inputs["density"].row),
        ((5.0, 6.0), falling / 180),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check(ends, positions if ends[0] != 5 else -positions)  # the same length elsewhere is no other length
    for ends, positions, order in (((-90.0, 90.0), falling, r"\)"), ((90.0, -90.0), -falling, ", ascending=False")):
        with pytest.raises(InvalidInput, match=rf"from {ends[0]:g} to {ends[1]:g}; .*sortby\('row'{order}"):
            check(ends, positions)
    with pytest.warns(UserWarning, match="runs from 0 to 1, and that of the training data from 0 to 6.28"):
        check((0.0, 6.28), inputs["density"].row)


def test_components_are_taken_by_their_names(gateway: Any, inputs: dict[str, xarray.DataArray]) -> None:
    velocity = inputs["velocity"].assign_coords(component=["x", "y"])
    with Client(gateway.url) as petrov:
        straight = petrov.predict("drift", **inputs | {"velocity": velocity})
        turned = petrov.predict("drift", **inputs | {"velocity": velocity.sel(component=["y", "x"])})
        unnamed = petrov.predict("drift", **inputs | {"velocity": velocity.assign_coords(component=[1, 2])})
    assert straight["flux"].coords["component"].to_numpy().tolist() == ["x", "y"]
    for other in (turned, unnamed):
        for name, array in straight.items():
            xarray.testing.assert_identical(other[name], array)


def test_single_fields_and_a_dataset(gateway: Any, inputs: dict[str, xarray.DataArray]) -> None:
    friday = xarray.Dataset(inputs).sel(day="friday")
    with Client(gateway.url) as petrov:
        found = petrov.predict("drift", friday)
        days = petrov.predict("drift", xarray.Dataset(inputs))
    assert found["moved"].dims == ("row", "column")
    assert found["moved"].coords["day"] == "friday"
    np.testing.assert_allclose(found["moved"], days["moved"].sel(day="friday"), rtol=1e-5)


def test_one_input_gives_one_array(gateway: Any, blur: Any) -> None:
    fields = xarray.DataArray(np.random.default_rng(3).uniform(3, 12, (20, 9, 11)), dims=("time", "row", "column"))
    with Client(gateway.url) as petrov:
        found = petrov.predict("blur", fields)
        parts = list(petrov.stream("blur", fields.assign_coords(time=np.arange(20))))
    assert (found.name, found.dims) == ("solution", fields.dims)
    np.testing.assert_allclose(found, blur(fields.to_numpy()), rtol=1e-5)
    assert [part.coords["time"].to_numpy().tolist() for part in parts] == [
        [*range(8)],
        [*range(8, 16)],
        [*range(16, 20)],
    ]


def test_inputs_on_different_coordinates_are_refused(gateway: Any, inputs: dict[str, xarray.DataArray]) -> None:
    moved = inputs["velocity"].assign_coords(row=np.linspace(1, 2, GRID[0]))
    with Client(gateway.url) as petrov, pytest.raises(InvalidInput, match=r"density and velocity .* same coordinates"):
        petrov.predict("drift", density=inputs["density"], velocity=moved)


def test_a_bad_value_is_shown_as_a_number(gateway: Any, inputs: dict[str, xarray.DataArray]) -> None:
    inputs["density"][1, 2, 3] = -4
    with Client(gateway.url) as petrov, pytest.raises(InvalidInput, match=r"density\[1,2,3\] is -4.0; density must be"):
        petrov.predict("drift", **inputs)


def test_xarray_is_never_imported_first(gateway: Any) -> None:
    script = f"""
import sys, numpy
from petrov_client import Client
Client("{gateway.url}").predict("blur", numpy.ones((8, 8)))
assert "xarray" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_netcdf_goes_in_and_out_by_names(
    petrov: Callable[..., Any], gateway: Any, inputs: dict[str, xarray.DataArray], tmp_path: Path
) -> None:
    named = inputs | {"velocity": inputs["velocity"].assign_coords(component=["x", "y"])}
    turned = xarray.Dataset({name: each.transpose(*reversed(each.dims)) for name, each in named.items()})
    turned = turned.rename(row="Row", density="Density").assign(extra=1)
    packed = {"Density": {"dtype": "int16", "scale_factor": 1e-3, "add_offset": 1.0, "_FillValue": -32768}}
    turned.to_netcdf(tmp_path / "in.nc", engine="h5netcdf", encoding=packed)
    done = petrov("predict", "drift", tmp_path / "in.nc", tmp_path / "out.nc", "--url", gateway.url)
    assert (done.returncode, done.stderr) == (0, f"petrov: ignored in {tmp_path / 'in.nc'}: extra\n")
    with Client(gateway.url) as client:
        expected = client.predict("drift", **inputs)
    with xarray.open_dataset(tmp_path / "out.nc") as found:
        assert found["moved"].dims == ("column", "row", "day")
        for name, dims in (("moved", "day row column"), ("flux", "day component row column")):
            np.testing.assert_allclose(found[name].transpose(*dims.split()), expected[name], atol=2e-3)
        assert (found.attrs, found["moved"].attrs) == ({}, {"units": "kg/m3", "long_name": "density afterwards"})
        assert found["flux"].component.values.tolist() == ["x", "y"]
        assert found["day"].values.tolist() == list(DAYS)
    arrays = {name: each.to_numpy() for name, each in inputs.items()}
    io.savemat(tmp_path / "in.mat", arrays)  # where a number per sample is a row
    done = petrov("predict", "drift", tmp_path / "in.mat", tmp_path / "out.nc", "--url", gateway.url)
    assert done.returncode == 0, done.stderr
    with xarray.open_dataset(tmp_path / "out.nc") as found:
        assert found["flux"].dims == ("batch", "component", "row", "column")
        np.testing.assert_array_equal(found["flux"], expected["flux"])


def test_rollouts_and_many_samples_come_from_netcdf_too(
    petrov: Callable[..., Any], gateway: Any, inputs: dict[str, xarray.DataArray], tmp_path: Path
) -> None:
    state = np.random.default_rng(0).random((2, 16), np.float32)
    xarray.Dataset({"u": (("run", "x"), state)}).to_netcdf(tmp_path / "start.nc", engine="h5netcdf")
    np.save(tmp_path / "start.npy", state)
    for start in ("start.nc", "start.npy"):
        more = ("--frames", 3, "--parameter", "rate=0.1", "--url", gateway.url)
        done = petrov("rollout", "growth", tmp_path / start, tmp_path / f"{start}.npz", *more)
        assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "start.nc.npz") as found, np.load(tmp_path / "start.npy.npz") as expected:
        assert {*found} == {*expected}
        assert all(np.array_equal(found[name], expected[name], equal_nan=True) for name in found)
    xarray.Dataset({name: each.transpose(*reversed(each.dims)) for name, each in inputs.items()}).to_netcdf(
        tmp_path / "in.nc", engine="h5netcdf"
    )
    done = petrov("score", "drift", tmp_path / "in.nc", tmp_path / "out.h5", "--url", gateway.url)
    assert done.returncode == 0, done.stderr
    with Client(gateway.url) as client, h5py.File(tmp_path / "out.h5") as found:
        for name, array in client.predict("drift", **inputs).items():
            np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("runs", [["a", "b"], None])
def test_a_rollout_to_netcdf_has_the_times_of_its_frames_and_the_coordinates_of_its_start(
    petrov: Callable[..., Any], gateway: Any, tmp_path: Path, runs: list[str] | None
) -> None:
    state = np.random.default_rng(0).random((2, 16), np.float32)
    coords = {"run": ["a", "b"], "x": np.linspace(0, 1, 16), "depth": ("x", np.arange(16.0)), "place": "lake"}
    start = xarray.Dataset({"u": (("run", "x"), state)}, coords).assign_coords(
        time=xarray.Variable((), 3.0, {"units": "hours since 2020-01-01"})
    )
    (start if runs else start.isel(run=0)).to_netcdf(tmp_path / "start.nc", engine="h5netcdf")
    options = ("--frames", 4, "--parameter", "rate=0.5", "--url", gateway.url)
    done = petrov("rollout", "growth", tmp_path / "start.nc", tmp_path / "out.nc", *options)
    assert done.returncode == 0, done.stderr
    expected = toy_rollouts.compute(state, 0.5, 4)
    with xarray.open_dataset(tmp_path / "out.nc", decode_times=False) as found:
        assert found["state"].dims == (("run",) if runs else ()) + ("frame", "x")
        np.testing.assert_allclose(found["state"], expected if runs else expected[0], rtol=1e-6)
        assert found["state"].attrs == {"units": "1", "long_name": "height"}
        assert found["error_estimate"].dims == found["state"].dims[:-1]
        for name, each in (start if runs else start.isel(run=0)).coords.items():
            if name != "time":
                xarray.testing.assert_identical(found[name].variable, each.variable)
        np.testing.assert_array_equal(found["time"], [3.5, 4.0, 4.5, 5.0])  # a step is 0.5
        assert (found["time"].dims, found["time"].attrs) == (("frame",), {"units": "hours since 2020-01-01"})
        assert "time" in found["state"].coords
    with xarray.open_dataset(tmp_path / "out.nc") as found:
        assert found["time"].values[0] == np.datetime64("2020-01-01T03:30")


def test_trajectories_of_labelled_states_have_the_times_of_their_frames(
    petrov: Callable[..., Any], gateway: Any, tmp_path: Path
) -> None:
    state = xarray.DataArray(np.ones((2, 16), np.float32), {"run": ["a", "b"]}, ("run", "x"), name="u")
    hours = {"units": "hours since 2020-01-01"}
    timed = state.assign_coords(t=xarray.Variable((), 3.0, hours))
    with Client(gateway.url) as client:
        found = client.rollout("growth", timed, 4, rate=0.5)
        np.testing.assert_array_equal(found.coords["t"], [3.5, 4.0, 4.5, 5.0])  # a step is 0.5
        assert (found.dims, found.coords["t"].attrs) == (("run", "frame", "x"), hours)
        assert list(found.coords["run"].values) == ["a", "b"]
        first = [*client.rollout_stream("growth", timed.T, 2, rate=0.5)]
        frames = [*first, *client.rollout_stream("growth", timed.T, 4, rate=0.5, earlier=first)]
        for number, frame in enumerate([*first, *frames[2:]]):
            expected = found.isel(frame=number).transpose("x", "run")
            xarray.testing.assert_identical(frame, expected)
        assert len(frames) == 4
        for frame, known in client.rollout_stream("growth", state, 1, rate=0.5, quality=True):
            assert (frame.coords["time"], known.error_estimate.shape) == (0.5, (2,))
        for piece in client.stream("growth", state, rate=0.5):
            np.testing.assert_array_equal(piece.coords["time"], 0.5 * np.arange(1, toy_rollouts.TRAINED + 1))
    timed.to_netcdf(tmp_path / "in.nc", engine="h5netcdf")
    done = petrov("predict", "growth", tmp_path / "in.nc", tmp_path / "out.nc", "--url", gateway.url)
    assert done.returncode == 0, done.stderr
    with xarray.open_dataset(tmp_path / "out.nc") as read:
        assert read["state"].coords["t"].values[0] == np.datetime64("2020-01-01T03:30")
        assert read["error_estimate"].dims == ("run", "frame")


def test_the_times_of_frames_have_a_name_that_no_other_dimension_has() -> None:
    info, shapes = described(), {"state": (3, 4, 16)}
    tensors, times = {"state": info.outputs[0]}, np.arange(1.0, 5.0)

    def labels(dims: tuple[str, ...], history: int = 0) -> Labels | None:
        axes = ("batch", "history", "x") if history else ("batch", "x")
        array = np.zeros((3, history, 16) if history else (3, 16))
        coords = {dim: np.arange(float(size)) for dim, size in zip(dims, array.shape, strict=True)}
        return Labels(xarray.DataArray(array, coords, dims), replace(info.inputs[0], axes=axes), dims)

    for start, name, first in (
        (None, "time", 1),
        (labels(("run", "t", "x"), history=3), "t", 3),
        (labels(("time", "x")), "frame", 1),
    ):
        found = frames_dataset(shapes, tensors, times, start)
        assert found["state"].dims[1:] == ("frame", "x")
        np.testing.assert_array_equal(found["state"].coords[name], first + np.arange(4))
    assert found["state"].dims[0] == "time"


def test_a_netcdf_file_that_is_none_is_refused(petrov: Callable[..., Any], gateway: Any, tmp_path: Path) -> None:
    (tmp_path / "in.nc").write_bytes(b"none")
    done = petrov("predict", "drift", tmp_path / "in.nc", tmp_path / "out.nc", "--url", gateway.url)
    assert done.returncode == 2
    assert f"expected a netCDF file in {tmp_path / 'in.nc'} but: " in " ".join(done.stderr.split())


def test_components_of_several_outputs_are_dimensions_of_their_own(tmp_path: Path) -> None:
    plane, space = (TensorInfo(name, ("batch", "component", "x"), components=tuple(name)) for name in ("xy", "abc"))
    values = {each.name: np.random.default_rng(0).random((1, len(each.name), 4)) for each in (plane, space)}
    (tmp_path / "out.nc").write_bytes(netcdf_bytes(values, {"xy": plane, "abc": space}))
    with xarray.open_dataset(tmp_path / "out.nc") as found:
        for name, array in values.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[f"{name}_component"].values.tolist() == list(name)
