"""Readers return the arrays that the formats' own tools wrote, in parts, and name what they cannot read."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
import pytest
import torch
import xarray
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec

from petrov_client._files import opened
from tests.clients.test_movie import described
from training.data.readers import DataFile, ReadError, detect, open_file
from training.data.readers.unwritten import unwritten

ROOT = Path(__file__).parents[4]
FIXTURES = ROOT / "tests" / "fixtures" / "own_data"
Arrays = dict[str, NDArray[np.float64]]


@pytest.fixture
def arrays() -> Arrays:
    rng = np.random.default_rng(0)
    return {"k": rng.random((5, 3, 4)), "u": rng.random((5, 3, 4)), "wind": rng.random(5)}


def write_mat73(path: Path, arrays: Arrays) -> None:
    """As MATLAB writes it: HDF5 whose axes are reversed, behind a header of 512 bytes."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in arrays.items():
            file.create_dataset(name, data=value.T).attrs["MATLAB_class"] = np.bytes_("double")


def write_groups(path: Path, arrays: Arrays) -> None:
    with h5py.File(path, "w") as file:
        for index in range(5):
            for name, value in arrays.items():
                file[f"sim_{index + 7}/{name}"] = value[index]


def write_hdf5(path: Path, arrays: Arrays) -> None:
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            file[name] = value


def write_zarr(path: Path, arrays: Arrays) -> None:
    group = zarr.open_group(path, mode="w")
    for name, value in arrays.items():
        group.create_array(name, data=value, chunks=(2, *value.shape[1:]))


def dataset(arrays: Arrays) -> xarray.Dataset:
    dims = ("sample", "y", "x")
    return xarray.Dataset({name: (dims[: value.ndim], value) for name, value in arrays.items()})


WRITERS = {
    "data.npz": lambda path, arrays: np.savez(path, **arrays),
    "packed.npz": lambda path, arrays: np.savez_compressed(path, **arrays),
    "data.h5": write_hdf5,
    "groups.hdf5": write_groups,
    "data.mat": write_mat73,
    "data.pt": lambda path, arrays: torch.save({name: torch.from_numpy(each) for name, each in arrays.items()}, path),
    "data.zarr": write_zarr,
    "labelled.zarr": lambda path, arrays: dataset(arrays).to_zarr(path, zarr_format=2, consolidated=False),
    "data.nc": lambda path, arrays: dataset(arrays).to_netcdf(path, engine="h5netcdf"),
    "classic.nc": lambda path, arrays: dataset(arrays).to_netcdf(path, engine="scipy", format="NETCDF3_64BIT"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_back_the_arrays_whole_and_in_parts(name: str, arrays: Arrays, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path, arrays)
    with open_file(path) as found:
        assert set(found.arrays) == set(arrays)
        for key, value in arrays.items():
            array = found.array(key)
            assert array.shape == value.shape
            assert np.array_equal(array.read(), value)
            assert np.array_equal(array.read(1, 3), value[1:3])
            assert np.array_equal(array.read(4, 99), value[4:])
            joined = [block for _, block in array.blocks(size=2 * array.sample_bytes)]
            assert len(joined) == 3
            assert np.array_equal(np.concatenate(joined), value)


def test_an_array_of_numpy_is_mapped_and_not_read(tmp_path: Path) -> None:
    """A sparse file of 2 TB, of which one sample is read."""
    path = tmp_path / "large.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"shape": (1 << 20, 512, 512), "fortran_order": False, "descr": "<f8"}
        )
        file.truncate(file.tell() + (1 << 20) * 512 * 512 * 8)
    with open_file(path) as found:
        assert found.array("array").read(1 << 19, (1 << 19) + 1).shape == (1, 512, 512)


@pytest.mark.parametrize("name", ["octave_v6.mat", "octave_v7.mat"])
def test_octave_s_files_keep_their_first_axis_first(name: str) -> None:
    with open_file(FIXTURES / name) as found:
        k, u = found.array("k").read(), found.array("u").read()
    assert k.shape == (3, 4, 5)
    assert np.array_equal(k, np.arange(1, 61).reshape(5, 4, 3).T)
    assert np.allclose(u, np.sqrt(k))


def test_neuraloperator_s_set_is_read_with_its_dtypes(tmp_path: Path) -> None:
    wheels = list((ROOT / ".third_party").glob("neuraloperator-0.3.0-*.whl"))
    if not wheels:
        pytest.skip("no neuraloperator-0.3.0-*.whl in .third_party: `make test` downloads it")
    with zipfile.ZipFile(wheels[0]) as wheel:
        [member] = [name for name in wheel.namelist() if name.endswith("darcy_test_16.pt")]
        path = Path(wheel.extract(member, tmp_path))
    with open_file(path) as found:
        assert found.array("x").shape == found.array("y").shape == (50, 16, 16)


def test_the_well_s_own_dummy_is_read_with_what_does_not_vary_repeated() -> None:
    with h5py.File(FIXTURES / "the_well_dummy.hdf5") as file:
        moving, still = file["t1_fields/field"][()], file["t0_fields/constant_field"][()]
    with open_file(FIXTURES / "the_well_dummy.hdf5") as found:
        assert found.format == "well"
        assert found.array("field").dimensions == ("time", "component", "x", "y")
        assert np.array_equal(found.array("field").read(), np.moveaxis(moving, -1, 2))
        assert np.array_equal(found.array("constant_field").read(1), still[1:])
        assert np.array_equal(found.array("a").read(), [0.25, 0.25])
        assert found.boundaries == {"x": "periodic", "y": "periodic"}
        assert len(found.coordinates["time"]) == 10
        varying = found.array("time_varying_scalar")
        assert (varying.shape, varying.dimensions, varying.read(1).shape) == ((2, 10), ("time",), (1, 10))


def pdebench_darcy(path: Path, nu: NDArray[np.float64], u: NDArray[np.float64]) -> None:
    with h5py.File(path, "w") as file:
        file["nu"], file["tensor"] = nu, u[:, None]
        file["x-coordinate"], file["y-coordinate"] = (np.linspace(0, 1, side) for side in nu.shape[1:])
        file.attrs["beta"] = 0.1


def test_pdebench_s_darcy_flow_is_read_by_what_the_file_says(arrays: Arrays, tmp_path: Path) -> None:
    pdebench_darcy(tmp_path / "2D_DarcyFlow_beta0.1_Train.hdf5", arrays["k"], arrays["u"])
    with open_file(tmp_path / "2D_DarcyFlow_beta0.1_Train.hdf5") as found:
        assert found.format == "pdebench"
        assert np.array_equal(found.array("nu").read(), arrays["k"])
        assert np.array_equal(found.array("tensor").read(2, 4), arrays["u"][2:4])
        assert any("beta = 0.1" in remark for remark in found.remarks)


def test_pdebench_s_trajectories_are_not_taken_for_planes(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "1D_Advection.hdf5", "w") as file:
        file["tensor"], file["x-coordinate"] = np.ones((4, 6, 8), np.float32), np.linspace(0, 1, 8)
        file["t-coordinate"] = np.linspace(0, 1, 7)  # one more than there are frames
    with open_file(tmp_path / "1D_Advection.hdf5") as found:
        assert found.array("tensor").dimensions == ("time", "x")


def test_pdebench_s_groups_are_stacked_with_components_first(tmp_path: Path) -> None:
    values = np.random.default_rng(1).random((3, 5, 4, 6, 2))
    with h5py.File(tmp_path / "2D_diff-react.h5", "w") as file:
        for index, value in enumerate(values):
            file[f"{index:04d}/data"] = value
            for name, size in (("x", 4), ("y", 6), ("t", 5)):
                file[f"{index:04d}/grid/{name}"] = np.linspace(0, 1, size)
    with open_file(tmp_path / "2D_diff-react.h5") as found:
        array = found.array("data")
        assert array.shape == (3, 5, 2, 4, 6)
        assert array.dimensions == ("time", "component", "x", "y")
        assert np.array_equal(array.read(), np.moveaxis(values, -1, 2))


def truncated_hdf5(path: Path) -> None:
    write_hdf5(path, {"k": np.ones((50, 40, 40))})
    path.write_bytes(path.read_bytes()[:2000])


def pickled_npy(path: Path) -> None:
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)


def pickled_npz(path: Path) -> None:
    np.savez(path, k=np.array([{"a": 1}], dtype=object))


def pickled_pt(path: Path) -> None:
    torch.save({"x": Path("here")}, path)


def bare_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"x": [1]}))


BROKEN = {
    "truncated.h5": (truncated_hdf5, "expected an HDF5 file, but it is damaged"),
    "pickled.npy": (pickled_npy, "never unpickled"),
    "pickled.npz": (pickled_npz, "'k': it holds Python objects"),
    "pickled.pt": (pickled_pt, "never unpickled"),
    "bare.pkl": (bare_pickle, "pickled Python objects, which are never unpickled"),
    "text.mat": (lambda path: path.write_text("no"), "expected a MATLAB file"),
    "text.nc": (lambda path: path.write_text("no"), "expected a netCDF file"),
    "text.npz": (lambda path: path.write_text("no"), "expected an .npz file"),
    "text.pt": (lambda path: path.write_text("no"), "text.pt"),
    "text.pvd": (lambda path: path.write_text("<VTKFile"), "expected a series of meshes, but it is damaged"),
    "text.vtk.series": (lambda path: path.write_text("{"), "expected a series of meshes, but it is damaged"),
    "folder": (lambda path: path.mkdir(), "found a folder"),
    "nothing.h5": (lambda path: None, "there is none"),  # noqa: ARG005 -- as the others are called
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    write, message = BROKEN[name]
    write(tmp_path / name)
    with pytest.raises(ReadError, match=message) as error, open_file(tmp_path / name):
        pass
    assert name in str(error.value)


def tensors_of_torch(path: Path, **values: torch.Tensor) -> Path:
    torch.save(values, path)
    return path


def test_torch_s_own_types_are_read_as_numbers(tmp_path: Path) -> None:
    exact = torch.arange(60.0).reshape(5, 3, 4)
    path = tensors_of_torch(tmp_path / "set.pt", x=exact.bfloat16(), y=exact.clone().requires_grad_(), z=exact.half())
    with open_file(path) as found:
        for name, dtype in {"x": "f4", "y": "f4", "z": "f2"}.items():
            assert found.array(name).dtype == dtype
            assert np.array_equal(found.array(name).read(1, 3), exact[1:3].numpy())


def test_a_sparse_tensor_is_refused(tmp_path: Path) -> None:
    path = tensors_of_torch(tmp_path / "set.pt", x=torch.eye(3).to_sparse())
    with pytest.raises(ReadError, match=r"set\.pt: .*'x' is torch.sparse_coo"), open_file(path):
        pass


def external_storage(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("a/k", (2, 4), "u1", external=[(str(secret), 0, 8)])


def virtual(path: Path, secret: Path) -> None:
    write_hdf5(secret, {"x": np.ones((2, 4))})
    layout = h5py.VirtualLayout((2, 4), "f8")
    layout[:] = h5py.VirtualSource(secret, "x", (2, 4))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("a/k", layout)


def external_link(path: Path, secret: Path) -> None:
    write_hdf5(secret, {"x": np.ones((2, 4))})
    with h5py.File(path, "w") as file:
        file["a/k"] = h5py.ExternalLink(str(secret), "x")


OTHERS = {"external storage": external_storage, "a virtual data set": virtual, "a link to another file": external_link}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("suffix", ["h5", "mat", "nc"])
def test_a_file_that_reads_another_file_is_refused(kind: str, suffix: str, tmp_path: Path) -> None:
    secret, path = tmp_path / "secret", tmp_path / f"data.{suffix}"
    secret.write_bytes(b"passwords")
    OTHERS[kind](path, secret)
    with pytest.raises(ReadError, match=f"'a/k' is {kind}, which is not read"), open_file(path):
        pass


def test_a_zarr_store_that_links_to_another_file_is_refused(arrays: Arrays, tmp_path: Path) -> None:
    write_zarr(tmp_path / "data.zarr", arrays)
    (tmp_path / "data.zarr" / "k" / "c" / "9").symlink_to(tmp_path)
    with pytest.raises(ReadError, match="without links"), open_file(tmp_path / "data.zarr"):
        pass


@pytest.mark.parametrize("part", [slice(0, 20), slice(0, 0)])
def test_a_chunk_that_is_cut_is_named(part: slice, arrays: Arrays, tmp_path: Path) -> None:
    write_zarr(path := tmp_path / "data.zarr", arrays)
    chunk = path / "k" / "c" / "1" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[part])
    with open_file(path) as found, pytest.raises(ReadError, match=r"data\.zarr: 'k' cannot be read from sample 0 to 4"):
        found.array("k").read()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("size", [8, 60])
def test_a_cut_chunk_of_blosc_is_refused_and_not_read_on_in_memory(
    version: Literal[2, 3], size: int, tmp_path: Path
) -> None:
    path, values = tmp_path / "data.zarr", np.random.default_rng(0).random((6, 8))
    codec = BloscCodec() if version == 3 else {"id": "blosc"}
    zarr.create_array(str(path), data=values, chunks=(2, 8), zarr_format=version, compressors=codec)
    with open_file(path) as found:
        assert np.array_equal(found.array("array").read(), values)
    chunk = path / ("c/1/0" if version == 3 else "1.0")
    chunk.write_bytes(chunk.read_bytes()[:size])
    sentence = rf"data\.zarr: expected .* bytes in .*1.0, a chunk of '', but found {size}"
    with pytest.raises(ReadError, match=sentence), open_file(path):
        pass
    with pytest.raises(ValueError, match=rf"data\.zarr.*1.0, a chunk, but found {size}"), opened(path, described()):
        pass


def test_chunks_that_no_file_holds_are_said_to_be_read_as_the_fill_value(arrays: Arrays, tmp_path: Path) -> None:
    write_zarr(store := tmp_path / "data.zarr", arrays)
    with h5py.File(file := tmp_path / "data.h5", "w") as half:  # of a solver that was stopped
        half.create_dataset("k", (5, 3, 4), np.float64, chunks=(1, 3, 4), fillvalue=7.0)[:2] = 1.0
        half.create_dataset("/deep/u", (5, 3, 4), np.float32)
        half["empty"] = np.zeros((0, 3))
        half["one"] = 1.0
    np.save(tmp_path / "k.npy", arrays["k"])
    assert unwritten([store, tmp_path / "k.npy"]) == []
    (store / "k" / "c" / "1" / "0" / "0").unlink()
    first, *others = unwritten([store, file])
    assert first.startswith("data.zarr: 1 of 3 chunks of 'k' are not there, and read as 0.0: zarr leaves out chunks")
    assert others == [
        "data.h5: 1 of 1 chunks of 'deep/u' are not there, and read as 0.0: nothing wrote them",
        "data.h5: 3 of 5 chunks of 'k' are not there, and read as 7.0: nothing wrote them",
    ]
    assert unwritten([store, file, file])[3:] == ["chunks of 2 other arrays are not there"]


def test_dimensions_of_netcdf_without_coordinates_lack_no_chunks(arrays: Arrays, tmp_path: Path) -> None:
    dataset(arrays).assign_coords(x=np.arange(4.0)).to_netcdf(path := tmp_path / "data.nc", engine="h5netcdf")
    assert unwritten([path]) == []


def test_variables_of_matlab_that_hold_no_numbers_are_named(tmp_path: Path) -> None:
    """Version 7.3 keeps letters, the sides of what is empty, and parts of sparse matrices as numbers."""
    path, k = tmp_path / "data.mat", np.random.default_rng(0).random((20, 3, 4))
    write_mat73(path, {"k": k, "nu": k[:, :1, 0]})
    with h5py.File(path, "a") as file:
        kinds = {
            "note": ("char", np.arange(97, 117)),
            "time": ("datetime", np.ones(20)),
            "flag": ("logical", k[:, 0, 0] > 0),
        }
        for name, (kind, values) in kinds.items():
            file[name] = values[:, None].astype("u2")
            file[name].attrs["MATLAB_class"] = np.bytes_(kind)
        file["none"] = np.array([0, 20], "u8")
        file["none"].attrs.update(MATLAB_class=np.bytes_("double"), MATLAB_empty=np.uint8(1))
        file.create_group("A").attrs.update(MATLAB_class=np.bytes_("double"), MATLAB_sparse=np.uint64(20))
        file["A/data"], file["A/ir"] = np.ones(20), np.arange(20, dtype="u8")
    with open_file(path) as found:
        assert {*found.arrays} == {"k", "nu", "flag"}
        assert np.array_equal(found.array("k").read(), k)
        assert found.left_out == {
            "note": "a char of MATLAB",
            "time": "a datetime of MATLAB",
            "none": "it is empty",
            "A.data": "a part of a sparse matrix of MATLAB",
            "A.ir": "a part of a sparse matrix of MATLAB",
        }


def test_attributes_are_text_whatever_their_encoding(arrays: Arrays, tmp_path: Path) -> None:
    values: list[object] = [
        "°C",
        np.bytes_("°C".encode()),
        np.bytes_("°C".encode("latin-1")),
        h5py.Empty("S1"),
        ["m", "s"],
    ]
    write_hdf5(tmp_path / "data.h5", {str(number): arrays["k"] for number in range(len(values))})
    with h5py.File(tmp_path / "data.h5", "a") as file:
        for number, value in enumerate(values):
            file[str(number)].attrs["units"] = value
    with open_file(tmp_path / "data.h5") as found:
        assert [found.array(str(number)).units for number in range(5)] == ["°C", "°C", "°C", "", "m, s"]


@pytest.mark.timeout(20)
def test_a_pipe_is_refused_before_anything_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data.h5")
    with pytest.raises(ReadError, match="found a pipe"), open_file(tmp_path / "data.h5"):
        pass


def test_an_array_that_is_not_there_is_named_beside_those_that_are(arrays: Arrays, tmp_path: Path) -> None:
    write_hdf5(tmp_path / "data.h5", arrays)
    with (
        open_file(tmp_path / "data.h5") as found,
        pytest.raises(ReadError, match=r"'q' but found k \[.*\] float.*, u \[.*, wind \["),
    ):
        found.array("q")


def test_a_layout_is_named_or_detected(arrays: Arrays, tmp_path: Path) -> None:
    write_hdf5(tmp_path / "data.unknown", arrays)
    assert detect(tmp_path / "data.unknown") == "hdf5"
    with open_file(tmp_path / "data.unknown", "hdf5") as found:
        assert isinstance(found, DataFile)
    with pytest.raises(ReadError, match="among auto, npy"), open_file(tmp_path / "data.unknown", "fits"):
        pass
