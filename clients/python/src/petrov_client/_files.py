"""Readers and writers of local files, `.npy` or HDF5 by their suffix. Large inputs stay on disk until they are sliced.

An output is written to a temporary file and renamed, so that an interrupted run leaves no incomplete file.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from petrov_client._arrays import Fields
    from petrov_client._models import TensorInfo

HDF5 = frozenset({".h5", ".hdf5"})
ARRAYS = HDF5 | {".npy"}


@contextmanager
def opened(path: Path, tensor: TensorInfo, dataset: str | None = None) -> Iterator[Any]:
    """Open an array for reading: a memory map of a `.npy` file, or a dataset of an HDF5 file.

    Args:
        path: The file.
        tensor: The model's input: the dataset with its name is read, or the only one of the file.
        dataset: The name of the dataset; None to find it by the rule above.

    Raises:
        OSError: There is no such file, or it cannot be read.
        ValueError: It holds no such dataset or no plain array.
    """
    if path.suffix in HDF5:
        with hdf5().File(path, "r") as file:
            yield _named(file, path, dataset) if dataset else _named(file, path, _default_name(file, tensor.name))
    else:
        yield _npy(path)


def check_output(path: Path, suffixes: frozenset[str] = ARRAYS) -> None:
    """Check the suffix and the folder of an output file before the computation begins.

    Raises:
        ValueError: The suffix is none of the allowed, or the folder does not exist.
    """
    if path.suffix not in suffixes:
        raise ValueError(
            f"expected an output file that ends in {' or '.join(sorted(suffixes, reverse=True))} but got {path}"
        )
    if path.suffix in HDF5:
        hdf5()
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} for {path.name}")


def write(path: Path, fields: Fields, tensor: TensorInfo) -> None:
    """Write an output as `.npy`, or as an HDF5 file whose only dataset has the units and meaning as attributes.

    Args:
        path: The file; its suffix selects the format.
        fields: The array.
        tensor: The model's output: the name, units and meaning of the dataset.

    Raises:
        OSError: The file cannot be written.
    """
    with replacing(path) as temporary:
        _write(temporary, path.suffix, fields, tensor)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path, and rename that file to `path` at the end of the block.

    Raises:
        OSError: It cannot be renamed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write(path: Path, suffix: str, fields: Fields, tensor: TensorInfo) -> None:
    if suffix not in HDF5:
        with path.open("wb") as file:
            np.save(file, fields, allow_pickle=False)
        return
    with hdf5().File(path, "w") as file:
        dataset = file.create_dataset(tensor.name, data=fields)
        dataset.attrs.update({"units": tensor.units or "", "meaning": tensor.meaning or ""})


def _npy(path: Path) -> Any:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"expected a .npy file of numbers in {path} but: {error}") from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"expected one array in {path} but it is an archive of several (.npz)")  # noqa: TRY004  the file's value is wrong
    return array


def _default_name(file: Any, name: str) -> str:
    """Return that name, or the only one in the file."""
    names = list(file)
    return name if name in names or len(names) != 1 else str(names[0])


def _named(file: Any, path: Path, name: str) -> Any:
    found = file.get(name)
    if not hasattr(found, "dtype"):
        raise ValueError(f'expected a dataset "{name}" in {path} but found {", ".join(file) or "none"}')
    return found


def hdf5() -> ModuleType:
    """Return the library h5py, which is optional.

    Raises:
        ValueError: It is not installed.
    """
    try:
        import h5py  # noqa: PLC0415  optional
    except ModuleNotFoundError as error:
        raise ValueError('HDF5 files need h5py: pip install "petrov-client[hdf5]"') from error
    module: ModuleType = h5py
    return module
