"""Local files: readers and writers of arrays by suffix.

Large inputs stay on disk until they are sliced. An output is written to a temporary file and renamed, so that an
interrupted run leaves no incomplete file.
"""

from __future__ import annotations

import importlib
import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from petrov_client._models import ModelInfo, ParameterInfo, TensorInfo

HDF5 = frozenset({".h5", ".hdf5"})
SEVERAL = HDF5 | {".npz"}
ARRAYS = SEVERAL | {".npy"}
ZARR, MOVIE = ".zarr", ".mp4"
#: Suffixes of files, or a folder, for trajectories.
TRAJECTORIES = ARRAYS | {ZARR, MOVIE}


@dataclass(frozen=True)
class Source:
    """The arrays of a file that a model takes.

    Attributes:
        arrays: Inputs and parameters by name; datasets and memory maps stay on disk.
        unused: The names of the other arrays in the file.
    """

    arrays: Mapping[str, Any]
    unused: tuple[str, ...] = ()


@contextmanager
def opened(path: Path, info: ModelInfo, dataset: str | None = None) -> Iterator[Source]:
    """Open a file for reading: the arrays with the names of the model's inputs and parameters.

    A model that requires one input reads the only array of a file under any name.

    Args:
        path: The file, .npy, .npz or HDF5.
        info: The model.
        dataset: A dataset of an HDF5 file, for a model that requires one input, or a group that holds the datasets. If
            None, the file itself is searched or, if it holds no dataset, its only group.

    Raises:
        OSError: There is no such file, or it cannot be read.
        ValueError: It holds no array of a required name, or no plain array.
    """
    if path.suffix in HDF5:
        with hdf5().File(path, "r") as file:
            yield _chosen(path, _datasets(file, path, info, dataset), info)
    elif path.suffix == ".npz":
        with _npz(path) as archive:
            yield _chosen(path, _Archive(archive, path), info)
    else:
        yield _chosen(path, {info.first_name: _npy(path)}, info)


def check_output(path: Path, suffixes: frozenset[str] = ARRAYS, *, resumed: bool = False) -> None:
    """Check the suffix and the folder of an output file before the computation begins.

    Args:
        path: The file.
        suffixes: Those that are allowed.
        resumed: Whether an earlier run may have begun it.

    Raises:
        ValueError: The suffix is none of the allowed, or the folder does not exist.
    """
    if path.suffix not in suffixes:
        raise ValueError(
            f"expected an output file that ends in {' or '.join(sorted(suffixes, reverse=True))} but got {path}"
        )
    if path.suffix in HDF5:
        hdf5()
    if path.suffix == MOVIE:
        library("matplotlib.figure", ".mp4 files need two libraries: pip install matplotlib imageio-ffmpeg")
        library("imageio_ffmpeg", ".mp4 files need two libraries: pip install matplotlib imageio-ffmpeg")
    if path.suffix == ZARR:
        zarr()
        if path.exists() and not resumed:
            raise ValueError(f"expected a new folder but {path} is there")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} for {path.name}")


def check_holds(path: Path, outputs: Iterable[TensorInfo | ParameterInfo]) -> None:
    """Check that a file can hold the outputs of a model.

    Raises:
        ValueError: There are several outputs, and the file holds one array.
    """
    names = [tensor.name for tensor in outputs]
    if len(names) > 1 and path.suffix not in SEVERAL | {ZARR, MOVIE}:
        raise ValueError(
            f"expected an output file that ends in {' or '.join(sorted(SEVERAL, reverse=True))} for {_listed(names)} "
            f"but got {path}"
        )


def write(path: Path, outputs: Mapping[str, Any], tensors: Iterable[TensorInfo | ParameterInfo]) -> None:
    """Write outputs as `.npy` or `.npz`, or as the arrays of an HDF5 file with their units and meaning.

    Args:
        path: The file; its suffix selects the format.
        outputs: The arrays by name.
        tensors: The model's outputs: the units and meaning of the datasets.

    Raises:
        OSError: The file cannot be written.
    """
    described = {tensor.name: tensor for tensor in tensors}
    with replacing(path) as temporary:
        if path.suffix in HDF5:
            _write_hdf5(temporary, outputs, described)
            return
        with temporary.open("wb") as file:
            if path.suffix == ".npz":
                np.savez(file, **outputs)
            else:
                [only] = outputs.values()
                np.save(file, only, allow_pickle=False)


@contextmanager
def replacing(path: Path, temporary: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path, and rename that file or folder to `path` at the end of the block.

    Args:
        path: The file, or the folder.
        temporary: The temporary path, on the same file system; one beside `path` with the process's number if None.

    Raises:
        OSError: It cannot be renamed.
    """
    temporary = temporary or path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        if temporary.is_dir() and path.is_dir():
            shutil.rmtree(path)  # a folder replaces only an empty one
        temporary.replace(path)
    finally:
        remove_path(temporary)


def library(name: str, advice: str) -> Any:
    """Return a library that is optional.

    Raises:
        ValueError: It is not installed; the message is the advice.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(advice) from error


def hdf5() -> Any:
    """Return the library h5py."""
    return library("h5py", "HDF5 files need h5py: pip install h5py")


def zarr() -> Any:
    """Return the library zarr."""
    return library("zarr", "zarr folders need zarr: pip install zarr")


def with_numbers(arrays: Mapping[str, Any], numbers: Mapping[str, float]) -> dict[str, Any]:
    """Return the arrays of a file and the parameters of a command.

    Raises:
        ValueError: A name is in both.
    """
    if repeated := [name for name in numbers if name in arrays]:
        raise ValueError(f'"{repeated[0]}" is given twice: in the file and as a parameter')
    return {**arrays, **numbers}


def attributes(tensor: TensorInfo | ParameterInfo) -> dict[str, str]:
    """Return the attributes of an output's dataset."""
    return {"units": tensor.units or "", "meaning": tensor.meaning or ""}


class _Archive:
    """The arrays of a `.npz` file, each read when it is indexed."""

    def __init__(self, archive: Any, path: Path) -> None:
        self._archive, self._path = archive, path

    def __iter__(self) -> Iterator[str]:
        return iter(self._archive.files)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._archive[name]
        except (ValueError, BadZipFile) as error:
            raise ValueError(f'expected numbers in "{name}" of {self._path} but: {error}') from error


def _chosen(path: Path, file: Any, info: ModelInfo) -> Source:
    """Return the arrays of a file that the model takes.

    Raises:
        ValueError: A required one is missing.
    """
    found, known = list(file), [each.name for each in info.arguments]
    if len(info.required) <= 1 and len(found) == 1 and found[0] not in known:
        return Source({info.first_name: file[found[0]]})
    if missing := [name for name in info.required if name not in found]:
        raise ValueError(
            f"expected {_listed(info.required)} in {path} but found {_listed(found)}; missing: {_listed(missing)}"
        )
    return Source(
        {name: file[name] for name in known if name in found}, tuple(name for name in found if name not in known)
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names) or "none"


def _datasets(file: Any, path: Path, info: ModelInfo, name: str | None) -> Mapping[str, Any]:
    """Return the datasets by name: of the file, of a group of it, or one dataset."""
    if name is None:
        groups = [each for each in file.values() if not hasattr(each, "dtype")]
        return _of_group(groups[0] if len(file) == len(groups) == 1 else file)
    found = file.get(name)
    if found is None:
        raise ValueError(f'expected a dataset or group "{name}" in {path} but found {_listed(file)}')
    return {info.first_name: found} if hasattr(found, "dtype") else _of_group(found)


def _of_group(group: Any) -> dict[str, Any]:
    return {name: each for name, each in group.items() if hasattr(each, "dtype")}


def _write_hdf5(path: Path, outputs: Mapping[str, Any], tensors: Mapping[str, TensorInfo | ParameterInfo]) -> None:
    with hdf5().File(path, "w") as file:
        for name, array in outputs.items():
            file.create_dataset(name, data=array).attrs.update(attributes(tensors[name]))


def _npy(path: Path) -> Any:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"expected a .npy file of numbers in {path} but: {error}") from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"expected one array in {path} but it is an archive of several: call it .npz")  # noqa: TRY004  the file's value is wrong
    return array


def _npz(path: Path) -> Any:
    try:
        archive = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, BadZipFile) as error:
        raise ValueError(f"expected a .npz file of numbers in {path} but: {error}") from error
    if isinstance(archive, np.ndarray):
        raise ValueError(f"expected several arrays in {path} but it holds one: call it .npy")  # noqa: TRY004  as above
    return archive


def remove_path(path: Path) -> None:
    """Remove a file or a folder, if it is there; of a symbolic link the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
