"""Files of netCDF and HDF5 as programs of the field write them, beyond what xarray's writer would."""

from __future__ import annotations

import warnings
from pathlib import Path

import h5netcdf
import h5py
import numpy as np
import pytest
import xarray
import zarr

from training.data.readers import ReadError, open_file
from training.problems.draft import draft
from training.problems.draft_file import DraftError

K = np.random.default_rng(0).random((20, 8, 8))


def test_dimensions_that_repeat_are_axes_of_their_own(tmp_path: Path) -> None:
    with h5netcdf.File(tmp_path / "a.nc", "w") as file:
        file.dimensions = {"sample": 20, "x": 8}
        file.create_variable("x", ("x",), float)[:] = np.linspace(0, 2, 8)
        file.create_variable("k", ("sample", "x", "x"), float)[:] = K
    with warnings.catch_warnings(), open_file(tmp_path / "a.nc") as found:
        warnings.simplefilter("error")
        one = found.array("k")
        assert one.dimensions == ("x", "x_2")
        assert np.array_equal(one.read(), K)
        assert {name: values.tolist() for name, values in found.coordinates.items()} == dict.fromkeys(
            ("x", "x_2"), np.linspace(0, 2, 8).tolist()
        )


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_a_level_of_one_point_is_no_axis(suffix: str, tmp_path: Path) -> None:
    fields = {"k": (("time", "level", "y", "x"), K[:1, None]), "u": (("time", "level", "y", "x"), K[:1, None])}
    data = xarray.Dataset({**fields, "land": (("y", "x"), K[0])}, {"level": [850.0], "time": [0.5]})
    data.to_netcdf(tmp_path / "a.nc") if suffix == "nc" else data.to_zarr(tmp_path / "a.zarr", consolidated=False)
    with open_file(tmp_path / f"a.{suffix}") as found:
        assert found.array("k").shape == (1, 8, 8)  # the one time stays
        assert found.array("k").dimensions == ("y", "x")
        assert np.array_equal(found.array("u").read(), K[:1])
        assert found.remarks == ("level has one point, and is no axis",)


def test_hdf5_that_is_called_netcdf_has_no_names_of_dimensions(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file["k"] = K
    with warnings.catch_warnings(), open_file(tmp_path / "a.nc") as found:
        warnings.simplefilter("error")
        assert found.array("k").dimensions is None
        assert np.array_equal(found.array("k").read(2, 4), K[2:4])


def test_a_filter_that_hdf5_lacks_is_named(tmp_path: Path) -> None:
    packing = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    packing.set_chunk((20, 8, 8))
    packing.set_filter(32099, h5py.h5z.FLAG_OPTIONAL, ())
    with h5py.File(tmp_path / "a.h5", "w") as file:
        space = h5py.h5s.create_simple(K.shape)
        made = h5py.h5d.create(file.id, b"k", h5py.h5t.IEEE_F64LE, space, packing)
        made.write_direct_chunk((0, 0, 0), b"packed", 0)
    sentence = r"a\.h5: 'k' cannot be read: HDF5 does not have the filter 32099 .*h5repack -f NONE a\.h5 new\.h5"
    with open_file(tmp_path / "a.h5") as found, pytest.raises(ReadError, match=sentence):
        found.array("k").read()


def test_links_of_hdf5_that_are_not_listed_are_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["runs/k"], file["u"] = K, K
        file["latest"], file["alias"], file["old"] = file["u"], h5py.SoftLink("/runs/k"), h5py.SoftLink("/gone")
        file["runs/up"] = file["runs"]
    with open_file(tmp_path / "a.h5") as found:
        assert {*found.arrays} == {"latest", "runs/k"}
        assert found.left_out == {
            "u": "another name of 'latest'",
            "alias": "another name of 'runs/k'",
            "old": "a link to '/gone', which is not there",
        }


def test_what_holds_no_numbers_is_called_what_it_is(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["k"], file["u"], file["bytes"] = K, 2 * K, np.zeros(K.shape, "V2")
        file.create_dataset("names", data=["a"] * 20, dtype=h5py.string_dtype())
        file.create_dataset("lists", (20,), h5py.vlen_dtype("f8"))
    with open_file(tmp_path / "a.h5") as found:
        left_out = draft(found, [tmp_path / "a.h5"], outputs=["u"]).left_out
    assert left_out == {
        "bytes": "it holds bytes of a type that the file does not tell, as of bfloat16: save it as float32 (|V2)",
        "names": "it holds text (object)",
        "lists": "it holds lists of lengths of their own (object)",
    }


@pytest.mark.parametrize("names", [("clon", "clat"), ("mesh_node_x", "mesh_node_y"), ("longitude", "latitude")])
def test_points_of_two_coordinates_are_said_to_be_on_no_line(names: tuple[str, str], tmp_path: Path) -> None:
    places = {name: ("cell", np.random.default_rng(1).random(8)) for name in names}
    xarray.Dataset({"k": (("sample", "cell"), K[:, 0])}, places).to_netcdf(tmp_path / "a.nc")
    sentence = f"{names[0]} and {names[1]} have a number for each cell: if these are points of a mesh"
    with open_file(tmp_path / "a.nc") as found:
        assert [remark[: len(sentence)] for remark in found.remarks] == [sentence]
    axes = {"x": ("x", np.arange(8.0)), "y": ("y", np.arange(8.0)), "max": ("x", np.arange(8.0))}
    xarray.Dataset({"k": (("sample", "y", "x"), K)}, axes).to_netcdf(tmp_path / "b.nc")
    with open_file(tmp_path / "b.nc") as found:
        assert not found.remarks


def test_a_missing_value_in_double_precision_is_that_of_single_precision(tmp_path: Path) -> None:
    values = K.astype(np.float32)
    values[:, 0, 0] = 1e20
    with h5netcdf.File(tmp_path / "a.nc", "w") as file:
        file.dimensions = {"sample": 20, "y": 8, "x": 8}
        file.create_variable("u", ("sample", "y", "x"), data=values).attrs["missing_value"] = np.float64(1e20)
    values[:, 0, 0] = np.nan
    with open_file(tmp_path / "a.nc") as found:
        np.testing.assert_array_equal(found.arrays["u"].read(), values)


@pytest.mark.parametrize("suffix", ["nc", "h5", "zarr"])
def test_packing_that_is_a_text_is_a_number_and_several_numbers_are_named(suffix: str, tmp_path: Path) -> None:
    stored, path = np.arange(20 * 8 * 8, dtype=np.int16).reshape(20, 8, 8), tmp_path / f"a.{suffix}"
    packed: dict[str, dict[str, object]] = {
        "k": {},
        "u": {"scale_factor": "0.01", "add_offset": "-3"},
        "v": {"scale_factor": [0.1, 0.2]},
        "w": {"add_offset": "none"},
    }
    if suffix == "zarr":
        for name, said in packed.items():
            zarr.open_group(path, mode="a").create_array(name, data=stored).attrs.update(said)
    elif suffix == "h5":
        with h5py.File(path, "w") as file:
            for name, said in packed.items():
                file.create_dataset(name, data=stored).attrs.update(said)
    else:
        with h5netcdf.File(path, "w") as file:
            file.dimensions = {"sample": 20, "y": 8, "x": 8}
            for name, said in packed.items():
                file.create_variable(name, ("sample", "y", "x"), data=stored).attrs.update(said)
    with open_file(path) as found:
        np.testing.assert_allclose(found.array("u").read(), 0.01 * stored - 3)
        assert np.array_equal(found.array("k").read(), stored)
        assert found.left_out == {
            "v": "its scale_factor has 2 numbers, and one is expected: save the values themselves",
            "w": "its add_offset is 'none', which is no number: save the values themselves",
        }


def test_what_is_no_array_in_groups_of_samples_is_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for sample in range(4):
            for name in ("k", "u"):
                file[f"run_{sample}/{name}"] = np.arange(64).reshape(8, 8)
            file[f"run_{sample}/u"].attrs["scale_factor"] = [0.1, 0.2]
        file["none"] = h5py.Empty("f8")
    with open_file(tmp_path / "a.h5") as found:
        assert {*found.arrays} == {"k"}
        assert found.left_out["u"].startswith("its scale_factor has 2 numbers")
        assert found.left_out["none"] == "it is empty"


def test_a_fill_value_of_zarr_2_is_a_missing_value_where_its_writer_says_so(tmp_path: Path) -> None:
    """It is 0 by default, and xarray writes its own missing values there."""
    values = np.arange(-32, 32, dtype=np.int16).reshape(1, 8, 8)
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    said: dict[str, dict[str, object]] = {"k": {}, "said": {"_FillValue": -5}, "packed": {"scale_factor": 0.5}}
    for name, attributes in said.items():
        one = group.create_array(f"run/{name}", shape=values.shape, dtype=values.dtype, fill_value=0)
        one[:] = values
        one.attrs.update({"_ARRAY_DIMENSIONS": ["sample", "y", "x"], **attributes})
    with open_file(tmp_path / "a.zarr") as found:
        assert found.array("run/k").dtype == np.int16
        assert np.array_equal(found.array("run/k").read(), values)
        np.testing.assert_array_equal(found.array("run/said").read(), np.where(values == -5, np.nan, values))
        np.testing.assert_array_equal(found.array("run/packed").read(), np.where(values == 0, np.nan, 0.5 * values))
        assert [remark.partition(" by")[0] for remark in found.remarks] == ["0 is the fill value of run/k"]
    holed = np.where(K < 0.5, np.nan, K)
    xarray.Dataset({"u": (("sample", "y", "x"), holed)}).to_zarr(tmp_path / "b.zarr", zarr_format=2, consolidated=False)
    with open_file(tmp_path / "b.zarr") as found:
        np.testing.assert_array_equal(found.array("u").read(), holed)
        assert not found.remarks


def test_a_file_without_samples_is_named(tmp_path: Path) -> None:
    with h5netcdf.File(tmp_path / "a.nc", "w") as file:
        file.dimensions = {"sample": None, "x": 8}
        file.create_variable("sample", ("sample",), "i4")
        for name in ("k", "u"):
            file.create_variable(name, ("sample", "x"), "f8")
    with open_file(tmp_path / "a.nc") as found, pytest.raises(DraftError, match="expected samples but found k"):
        draft(found, [tmp_path / "a.nc"], outputs=["u"])


@pytest.mark.parametrize("said", [True, False])
def test_bounds_of_coordinates_are_no_fields(said: bool, tmp_path: Path) -> None:
    fields = {name: (("time", "lat", "lon"), each) for name, each in {"k": K, "u": 2 * K}.items()}
    axes = {"time": ("time", np.arange(20.0), {"bounds": "time_bnds"} if said else {})}
    axes |= {name: (name, np.arange(8.0), {}) for name in ("lat", "lon")}
    bounds = {"time_bnds": (("time", "bnds"), np.stack([np.arange(20.0), np.arange(1.0, 21)], axis=1))}
    xarray.Dataset(bounds | fields, axes).to_netcdf(tmp_path / "a.nc")
    with open_file(tmp_path / "a.nc") as found:
        made = draft(found, [tmp_path / "a.nc"], outputs=["u"])
        assert found.array("time_bnds").shape == (20, 2)
    assert [*made.axes] == ["lat", "lon"]
    assert [one.name for one in made.tensors] == ["k", "u"]
    reason = "it holds the bounds of time" if said else "its axes bnds are not those of the grid (8, 8)"
    assert made.left_out == {"time_bnds": reason}
