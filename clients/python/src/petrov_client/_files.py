"""Local files: readers and writers of arrays by suffix.

Large inputs stay on disk until they are sliced. An output is written to a temporary file and renamed, so that an
interrupted run leaves no incomplete file.
"""

from __future__ import annotations

import errno
import functools
import math
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from petrov_client import _formats as formats
from petrov_client import _times as times_of_frames
from petrov_client._formats import MATLAB, NETCDF
from petrov_client._guards import check_heaps, cut_chunk
from petrov_client._libraries import hdf5, library, meshio, scipy_io, xarray, zarr
from petrov_client._mesh_series import GMSH, LISTS, MESHES, READ, SERIES, WRITTEN, Source, of_meshes
from petrov_client._meshes import with_outputs
from petrov_client._models import ModelInfo
from petrov_client._schema import FRAME, ParameterInfo, TensorInfo
from petrov_client._without_faults import WithoutFaults

HDF5 = frozenset({".h5", ".hdf5"})
SEVERAL = HDF5 | NETCDF | {".npz", MATLAB}
ARRAYS = SEVERAL | {".npy"}
ZARR, MOVIE = ".zarr", ".mp4"
OF_GMSH = frozenset({0, 1, 3, 9})  # components that data in a file of Gmsh may have
#: Suffixes of files, or a folder, for trajectories.
TRAJECTORIES = (ARRAYS - {MATLAB}) | {ZARR, MOVIE, SERIES}


@contextmanager
def opened(
    path: Path,
    info: ModelInfo,
    dataset: str | None = None,
    given: Collection[str] = (),
    frames: int | None = None,
) -> Iterator[Source]:
    """Open a file for reading: the arrays with the names of the model's inputs and parameters but those `given`.

    A model that requires one input reads the only array of a file under any name. Of HDF5 and zarr, `dataset` is an
    array for such a model, or a group; without it the file itself is searched or, if it holds no array, its only group.
    Of a mesh, `frames` says for how many frames inputs that change in time have its values.
    """
    suffix = path.suffix.lower()
    if suffix in HDF5:
        with _opened_hdf5(path) as file:
            with formats.named(path, "an HDF5 file"):
                chosen = _chosen(path, _datasets(file, path, info, dataset), info, given)
            yield chosen
    elif suffix == ZARR:
        module = zarr()
        with formats.named(path, "a zarr folder"):
            found = _tree(path, module.open(str(path), mode="r"))
            arrays = _datasets(found, path, info, dataset) if isinstance(found, dict) else {"": found}
            chosen = _chosen(path, arrays, info, given)
        yield chosen
    elif suffix in NETCDF:
        with formats.netcdf_arrays(path, info) as arrays:
            yield _chosen(path, arrays, info, given)
    elif suffix == MATLAB:
        yield _chosen(path, formats.matlab_arrays(path, info), info, given)
    elif suffix in READ | LISTS:
        yield of_meshes(path, info, frames, given)
    elif suffix == ".npz":
        with _load(path, ".npz") as archive:
            yield _chosen(path, archive, info, given)
    else:
        yield _chosen(path, {info.first_name: _load(path, ".npy", "r")}, info, given)


@contextmanager
def group(path: Path, mode: str) -> Iterator[Any]:
    """Open a file of HDF5 or a folder of zarr as a group of arrays, with mode `r` or `w`."""
    if path.suffix.lower() == ZARR:
        yield zarr().open_group(str(path), mode=mode)
    elif mode == "w":
        with new_hdf5(path, libver="earliest", track_order=False) as file:
            yield file
    else:
        with hdf5().File(path, mode) as file:
            yield file


def check_output(path: Path, suffixes: frozenset[str] = ARRAYS, *, resumed: bool = False) -> None:
    """Check the suffix and the folder of an output file before the computation begins."""
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise ValueError(
            f"expected an output file that ends in {' or '.join(sorted(suffixes, reverse=True))} but got {path}"
        )
    needed = {HDF5: hdf5, NETCDF: xarray, frozenset({MATLAB}): scipy_io, MESHES | {SERIES}: meshio}
    for kind, imported in needed.items():
        if suffix in kind:
            imported()
    if suffix == MOVIE:
        for name in ("matplotlib.figure", "imageio_ffmpeg"):
            library(name, ".mp4 files need two libraries: pip install matplotlib imageio-ffmpeg")
    if suffix == ZARR:
        zarr()
        if path.exists() and not resumed:
            raise ValueError(f"expected a new folder but {path} is there")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} for {path.name}")


def check_holds(path: Path, outputs: Iterable[TensorInfo | ParameterInfo]) -> None:
    """Check that a file can hold the outputs of a model."""
    suffix = path.suffix.lower()
    every = list(outputs)
    names = [tensor.name for tensor in every]
    if suffix in MESHES and (timed := [tensor.name for tensor in every if FRAME in tensor.axes]):
        raise ValueError(
            f"expected an output file such as .npz for the frames of {_listed(timed)} but got {path}: `petrov rollout` "
            "writes a mesh for each of them, and a list .pvd"
        )
    if suffix == GMSH and (odd := [tensor.name for tensor in every if len(tensor.components) not in OF_GMSH]):
        raise ValueError(f"expected an output file such as .vtu for the components of {_listed(odd)} but got {path}")
    if len(names) > 1 and suffix not in SEVERAL | MESHES | {ZARR, MOVIE, SERIES}:
        raise ValueError(
            f"expected an output file that ends in {' or '.join(sorted(SEVERAL, reverse=True))} for {_listed(names)} "
            f"but got {path}"
        )


def write(
    path: Path, outputs: Mapping[str, Any], tensors: Iterable[TensorInfo | ParameterInfo], mesh: Any = None
) -> None:
    """Write outputs as `.npy` or `.npz`, in an HDF5, netCDF or MATLAB file, or on their mesh."""
    suffix = path.suffix.lower()
    described = {tensor.name: tensor for tensor in tensors}
    if suffix in MESHES:
        if mesh is None:
            raise ValueError(f"expected a mesh file as input for {path.name}, which holds outputs on its mesh")
        with replacing(path, path.with_name(f".{os.getpid()}.{path.name}")) as temporary:  # its suffix says the format
            made = with_outputs(mesh, outputs, described.values())
            with formats.named(path, "cells and data that such a file holds"):
                meshio().write(temporary, made, **WRITTEN[suffix])
        return
    with replacing(path) as temporary:
        if suffix in HDF5:
            with new_hdf5(temporary) as file:
                for name, array in outputs.items():
                    file.create_dataset(name, data=array).attrs.update(attributes(described[name]))
            return
        with temporary.open("wb") as file:
            if suffix in NETCDF:
                file.write(formats.netcdf_bytes(outputs, described))
            elif suffix == MATLAB:
                scipy_io().savemat(file, {name: np.asarray(each) for name, each in outputs.items()})
            elif suffix == ".npz":
                np.savez(file, **outputs)
            else:
                [only] = outputs.values()
                np.save(file, only, allow_pickle=False)


@contextmanager
def new_hdf5(path: Path, begun: bytes = b"", **options: Any) -> Iterator[Any]:
    """Make an HDF5 file, which is a new one or nothing that can be read.

    It goes on from a file that has been begun, if there is one.

    Raises:
        OSError: The disk is full, or the file would be larger than it may be.
    """
    with WithoutFaults(path) as target:
        target.write(begun)
        if target.fault is not None:
            raise target.fault
        with hdf5().File(target, "r+" if begun else "w", **options) as file:
            yield file
        if target.fault is not None:
            raise target.fault


@contextmanager
def new_netcdf(path: Path, described: Any) -> Iterator[Any]:
    """Make a netCDF file with the dimensions and coordinates of a dataset, and open it for its variables."""
    begun = bytes(described.drop_vars(described.data_vars).to_netcdf(engine="h5netcdf"))
    with new_hdf5(path, begun) as file, library("h5netcdf", "").File(file, "r+") as opened:
        opened.attrs.pop("coordinates", None)  # those of no variable, as long as there are none
        for name, size in described.sizes.items():
            if name not in opened.dimensions:
                opened.dimensions[name] = size
        yield opened


@contextmanager
def replacing(path: Path, temporary: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path, and rename that file or folder to `path` at the end of the block.

    It is on the same file system: beside `path`, with the process's number, if none is passed.
    """
    temporary = temporary or path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        if temporary.is_dir() and path.is_dir():
            shutil.rmtree(path)  # a folder replaces only an empty one
        temporary.replace(path)
    finally:
        remove_path(temporary)


def with_numbers(arrays: Mapping[str, Any], numbers: Mapping[str, float]) -> dict[str, Any]:
    """Return the arrays of a file and the parameters of a command."""
    if repeated := [name for name in numbers if name in arrays]:
        raise ValueError(f'"{repeated[0]}" is given twice: in the file and as a parameter')
    return {**arrays, **numbers}


def attributes(tensor: TensorInfo | ParameterInfo) -> dict[str, str]:
    """Return the attributes of an output's dataset."""
    return {"units": tensor.units or "", "meaning": tensor.meaning or ""}


def _chosen(path: Path, file: Mapping[str, Any], info: ModelInfo, given: Collection[str]) -> Source:
    """Return the arrays of a file that the model takes; those of an archive are read now."""
    found, known = list(file), [each.name for each in info.arguments]
    required = [name for name in info.required if name not in given]
    if len(required) <= 1 and len(found) == 1 and found[0] not in known:
        only, name = {found[0]: _read(path, file, found[0])}, next(iter(required), info.first_name)
        remarks = [*_unwritten(path, only)]
        if info.frames is None and found[0] in {each.name for each in info.outputs}:
            remarks.append(f'{path}: its only array is called "{found[0]}" as an output is, and is read as "{name}"')
        return Source({name: only[found[0]]}, remark="; ".join(remarks))
    if missing := [name for name in required if name not in found]:
        raise ValueError(
            f"expected {_listed(required)} in {path} but found {_listed(found)}; missing: {_listed(missing)}"
        )
    unlike, times = times_of_frames.of_arrays(file, info)
    if unlike and times_of_frames.takes_several(info):
        raise ValueError(f'{path}: by "{times}", {unlike}: {times_of_frames.REMEDY}')
    arrays = {name: _read(path, file, name) for name in known if name in found}
    remarks = [f'{path}: by "{times}", {unlike}: frames that follow are a step apart'] if unlike else []
    remarks += _unwritten(path, arrays)
    return Source(arrays, tuple(name for name in found if name not in known), remark="; ".join(remarks))


def _unwritten(path: Path, arrays: Mapping[str, Any]) -> Iterator[str]:
    """Return which arrays lack chunks: what was never written, or a copy lacks, is read as a number like any other."""
    for name, array in arrays.items():
        if isinstance(array, Blocks):
            chunks, found, fill = array.array.nchunks, array.array.nchunks_initialized, array.array.fill_value
        elif getattr(array, "chunks", None):  # of HDF5
            chunks = math.prod(-(-side // part) for side, part in zip(array.shape, array.chunks, strict=True))
            found, fill = array.id.get_num_chunks(), array.fillvalue
        else:
            continue
        if found < chunks:
            yield f'{path}: {chunks - found} of {chunks} chunks of "{name}" are not there, and read as {fill}'


def _read(path: Path, file: Mapping[str, Any], name: str) -> Any:
    with formats.named(path, f'numbers in "{name}"'):  # which are read now, of an archive
        found = file[name]
    if isinstance(found, Blocks):
        found.check_whole()
    return found


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names) or "none"


def _datasets(file: Any, path: Path, info: ModelInfo, name: str | None) -> Mapping[str, Any]:
    """Return the datasets by name: of the file, of a group of it, or one dataset."""
    group = file if name is None else file.get(name)
    if group is None:
        raise ValueError(f'expected a dataset or group "{name}" in {path} but found {_listed(file)}')
    if hasattr(group, "dtype"):
        return {info.first_name: group}
    groups = [each for each in group.values() if not hasattr(each, "dtype")]
    if name is None and len(file) == len(groups) == 1:
        group = groups[0]
    return {name: each for name, each in group.items() if hasattr(each, "dtype")}


class Blocks:
    """An array of zarr that keeps the last chunks that it has read: pieces of a batch are smaller than these."""

    KEPT = 2  # chunks

    def __init__(self, path: Path, array: Any) -> None:
        self.path, self.array = path, array
        self.shape, self.dtype, self.attrs = array.shape, array.dtype, array.attrs
        self._rows = int(array.chunks[0]) if array.shape else 1
        self._block = functools.lru_cache(self.KEPT)(self._read)

    def check_whole(self) -> None:
        """Check that no chunk is cut.

        Raises:
            ValueError: One is.
        """
        if (cut := cut_chunk(self.path, self.array)) is not None:
            file, size, said = cut
            raise ValueError(f"expected {said} bytes in {file}, a chunk, but found {size}: copy the store again")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self._part(...), dtype, copy=copy)

    def _read(self, number: int) -> Any:
        return self._part(slice(number * self._rows, (number + 1) * self._rows))

    def _part(self, index: Any) -> Any:
        with formats.named(self.path, f'numbers in "{self.array.path}"'):
            return self.array[index]

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return self._part(index)
        start, stop, step = index.indices(self.shape[0])
        numbers = range(start // self._rows, -(-stop // self._rows))
        if step != 1 or not numbers:
            return self._part(index)
        first = numbers[0] * self._rows
        parts = [self._block(number) for number in numbers]
        return (np.concatenate(parts) if parts[1:] else parts[0])[start - first : stop - first]


def _opened_hdf5(path: Path) -> Any:
    module = hdf5()
    with formats.named(path, "an HDF5 file"):
        file = module.File(path, "r")
        check_heaps(path, file)
        return file


def _tree(path: Path, node: Any) -> Any:
    """Return an array of zarr, or the members of a group by name."""
    return Blocks(path, node) if hasattr(node, "dtype") else {name: _tree(path, each) for name, each in node.members()}


def _load(path: Path, suffix: str, mode: Any = None) -> Any:
    """Return the array of a `.npy` file, or the archive of a `.npz` file."""
    with formats.named(path, f"a {suffix} file of numbers"):
        found = np.load(path, mmap_mode=mode, allow_pickle=False)
    if isinstance(found, np.ndarray) == (suffix == ".npy"):
        return found
    if suffix == ".npy":
        raise ValueError(f"expected one array in {path} but it is an archive of several: call it .npz")
    raise ValueError(f"expected several arrays in {path} but it holds one: call it .npy")


def remove_path(path: Path) -> None:
    """Remove a file or a folder, if it is there; of a symbolic link the link alone."""
    while path.is_dir() and not path.is_symlink():
        try:
            shutil.rmtree(path)
        except OSError as error:  # threads of zarr that failed remove their own files meanwhile, and others add some
            if error.errno not in {errno.ENOENT, errno.ENOTEMPTY}:
                raise
    path.unlink(missing_ok=True)
