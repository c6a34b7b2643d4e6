"""Arrays from and to local files, `.npy` or HDF5 by the ending; large inputs stay on disk until they are sliced.

A field file is opened for as long as it is read. An output is written beside its place and renamed, so that a broken
run leaves no half file behind.
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
def reading(path: Path, tensor: TensorInfo, dataset: str | None = None) -> Iterator[Any]:
    """Open an array for reading: a memory map of a `.npy` file, or a dataset of an HDF5 file.

    Args:
        path: The file.
        tensor: The model's input: its name is the dataset's, unless the file holds only one.
        dataset: The dataset's name where it is another.

    Raises:
        OSError: There is no such file, or it cannot be read.
        ValueError: It holds no plain array.
    """
    if path.suffix in HDF5:
        with hdf5().File(path, "r") as file:
            yield _named(file, path, dataset) if dataset else _named(file, path, _likely(file, tensor.name))
    else:
        yield _npy(path)


def check_output(path: Path, endings: frozenset[str] = ARRAYS) -> None:
    """Find out before the work, and not after it, that its result has nowhere to go.

    Raises:
        ValueError: The file's ending is none of those, or its folder does not exist.
    """
    if path.suffix not in endings:
        raise ValueError(
            f"expected an output file that ends in {' or '.join(sorted(endings, reverse=True))} but got {path}"
        )
    if path.suffix in HDF5:
        hdf5()
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} for {path.name}")


def write(path: Path, fields: Fields, tensor: TensorInfo) -> None:
    """Write an answer: `.npy`, or an HDF5 file with the model's output as its one dataset, units attached.

    Raises:
        OSError: The file cannot be written.
    """
    with replacing(path) as aside:
        _write(aside, path.suffix, fields, tensor)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a file to write to, which takes the place of another once it is whole.

    Raises:
        OSError: It cannot be put there.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


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


def _likely(file: Any, name: str) -> str:
    """That name, or the only one."""
    names = list(file)
    return name if name in names or len(names) != 1 else str(names[0])


def _named(file: Any, path: Path, name: str) -> Any:
    found = file.get(name)
    if not hasattr(found, "dtype"):
        raise ValueError(f'expected a dataset "{name}" in {path} but found {", ".join(file) or "none"}')
    return found


def hdf5() -> ModuleType:
    """The library, which is optional.

    Raises:
        ValueError: It is not installed.
    """
    try:
        import h5py  # noqa: PLC0415  optional
    except ModuleNotFoundError as error:
        raise ValueError('HDF5 files need h5py: pip install "petrov-client[hdf5]"') from error
    module: ModuleType = h5py
    return module
