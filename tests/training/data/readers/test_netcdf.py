"""Files of netCDF and HDF5 as programs of the field write them, beyond what xarray's writer would."""

from __future__ import annotations

import warnings
from pathlib import Path

import h5netcdf
import h5py
import numpy as np
import pytest
import xarray

from training.data.readers import ReadError, open_file
from training.problems.draft import draft

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
