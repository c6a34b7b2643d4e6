"""Files of trajectories that are written frame by frame as they arrive, so that memory holds a few frames.

HDF5, zarr and `.npy` take the frames themselves. A `.npz` archive and a movie are made at the end, from `.npy` files on
the disk. Whatever the format, the file has its name only once it is complete (`_files.replacing`).
"""

from __future__ import annotations

import math
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.lib.format import open_memmap

from petrov_client import _files, _movie

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from petrov_client._arrays import Fields
    from petrov_client._models import ModelInfo, TensorInfo

    Shape = tuple[int, ...]

#: Bytes of one chunk of a file, and of the frames that are held in memory, unless one frame takes more.
CHUNK_BYTES = 2**18


class Store(Protocol):
    """A file, or a folder, of one array per output; a context manager that completes it."""

    def create(self, tensor: TensorInfo, shape: Shape, chunks: Shape) -> Any:
        """Return an array of float32 that slices can be assigned to."""
        ...

    def shorten(self, name: str, shape: Shape) -> None:
        """Cut an array to a shape."""
        ...


class Hdf5Store:
    """Datasets of an HDF5 file.

    Args:
        path: The file.
        stack: Closes it.
    """

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._file = stack.enter_context(_files.hdf5().File(path, "w"))

    def create(self, tensor: TensorInfo, shape: Shape, chunks: Shape) -> Any:
        """Return a dataset."""
        found = self._file.create_dataset(tensor.name, shape, "<f4", chunks=chunks, maxshape=shape)
        found.attrs.update(_files.attributes(tensor))
        return found

    def shorten(self, name: str, shape: Shape) -> None:
        """Cut a dataset to a shape."""
        self._file[name].resize(shape)


class ZarrStore:
    """Arrays of a zarr folder.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self._group = _files.zarr().open_group(str(path), mode="w")

    def create(self, tensor: TensorInfo, shape: Shape, chunks: Shape) -> Any:
        """Return an array."""
        found = self._group.create_array(tensor.name, shape=shape, dtype="float32", chunks=chunks)
        found.attrs.update(_files.attributes(tensor))
        return found

    def shorten(self, name: str, shape: Shape) -> None:
        """Cut an array to a shape."""
        self._group[name].resize(shape)


class NpyStore:
    """Memory-mapped `.npy` files, one per output.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.arrays: dict[str, Any] = {}

    def create(self, tensor: TensorInfo, shape: Shape, chunks: Shape) -> Any:
        """Return a memory map; it has no chunks."""
        del chunks
        self.arrays[tensor.name] = open_memmap(self.path(tensor.name), "w+", np.dtype("<f4"), shape)
        return self.arrays[tensor.name]

    def shorten(self, name: str, shape: Shape) -> None:
        """Copy what is kept of an array to a new file, sample by sample."""
        whole, short = self.arrays[name], self._folder / f"{name}.short"
        kept = open_memmap(short, "w+", np.dtype("<f4"), shape)
        for index in range(len(kept)):
            kept[index] = whole[index][tuple(slice(size) for size in shape[1:])]
        self.arrays[name] = kept
        short.replace(self.path(name))

    def path(self, name: str) -> Path:
        """Return the file of an output."""
        return self._folder / f"{name}.npy"


class Frames:
    """The writer of frames `[(batch), (component), *grid]` into arrays `[(batch), frame, (component), *grid]`.

    Args:
        store: The file.
        info: The model.
        total: How many frames are expected.

    Attributes:
        done: Frames that have been added.
        shapes: The shapes of the arrays by output name, after `finish`.
        spans: The least and the greatest finite number of each, `[2]`.
    """

    def __init__(self, store: Store, info: ModelInfo, total: int) -> None:
        self._store, self._info, self._total = store, info, total
        self._axes = 0 if info.grid is None else len(info.grid.axes)
        self._waiting: list[Mapping[str, Fields]] = []
        self._arrays: dict[str, Any] = {}
        self._most = 1
        self.done = 0
        self.shapes: dict[str, Shape] = {}
        self.spans: dict[str, Fields] = {}

    def add(self, outputs: Mapping[str, Fields]) -> None:
        """Append a frame.

        Raises:
            OSError: The file cannot be written.
        """
        if not self._arrays:
            self._begin(outputs)
        self._waiting.append(outputs)
        self.done += 1
        for name, array in outputs.items():
            known = np.append(self.spans.get(name, ()), array[np.isfinite(array)])
            self.spans[name] = np.array([known.min(), known.max()]) if len(known) else known
        if len(self._waiting) == self._most:
            self._write()

    def finish(self) -> None:
        """Write what is waiting, and cut the arrays to the frames that have been added.

        Raises:
            OSError: The file cannot be written.
        """
        if self._waiting:
            self._write()
        for name, array in self._arrays.items():
            axis = self._axis(name, len(array.shape) - 1)
            self.shapes[name] = (*array.shape[:axis], self.done, *array.shape[axis + 1 :])
            if self.done < self._total:
                self._store.shorten(name, self.shapes[name])

    def _begin(self, outputs: Mapping[str, Fields]) -> None:
        self._most = max(1, min(self._total, CHUNK_BYTES // max(array.nbytes for array in outputs.values())))
        for tensor in self._info.outputs:
            frame = outputs[tensor.name].shape
            axis = self._axis(tensor.name, len(frame))
            batch, field = frame[:axis], frame[axis:]
            samples = [min(count, max(1, CHUNK_BYTES // (4 * math.prod(field)))) for count in batch]
            chunks = (*samples, self._most, *field)
            self._arrays[tensor.name] = self._store.create(tensor, (*batch, self._total, *field), chunks)

    def _axis(self, name: str, rank: int) -> int:
        """Return the axis of the frames: behind that of the batch, if frames of this rank have one."""
        [tensor] = [tensor for tensor in self._info.outputs if tensor.name == name]
        return rank - self._axes - bool(tensor.components)

    def _write(self) -> None:
        for name, array in self._arrays.items():
            axis = self._axis(name, len(array.shape) - 1)
            place = (slice(None),) * axis + (slice(self.done - len(self._waiting), self.done),)
            array[place] = np.stack([outputs[name] for outputs in self._waiting], axis)
        self._waiting = []


class MovieFrames(Frames):
    """The writer of frames that become a movie: what none can show is an error at the first frame."""

    def _begin(self, outputs: Mapping[str, Fields]) -> None:
        super()._begin(outputs)
        _movie.channels(self._arrays, self._info)


@contextmanager
def writing(path: Path, info: ModelInfo, total: int) -> Iterator[Frames]:
    """Yield the writer of a file; after an error there is no file.

    Args:
        path: The file; its suffix selects the format.
        info: The model.
        total: How many frames are expected; the file has those that were added.

    Raises:
        OSError: The file cannot be written.
        ValueError: A movie cannot show the outputs.
    """
    with _files.replacing(path) as temporary, ExitStack() as stack:
        if path.suffix in _files.HDF5:
            store: Store = Hdf5Store(temporary, stack)
        elif path.suffix == _files.ZARR:
            store = ZarrStore(temporary)
        else:
            folder = stack.enter_context(TemporaryDirectory(dir=path.parent, prefix=f".{path.name}."))
            store = NpyStore(path.parent / folder)
        frames = (MovieFrames if path.suffix == _movie.SUFFIX else Frames)(store, info, total)
        yield frames
        frames.finish()
        if isinstance(store, NpyStore):
            _convert(store, temporary, path.suffix, info)


def _convert(store: NpyStore, path: Path, suffix: str, info: ModelInfo) -> None:
    """Make a file of memory-mapped arrays."""
    if suffix == _movie.SUFFIX:
        movie = path.with_suffix(suffix)  # by which the encoder knows the format
        try:
            _movie.write(movie, store.arrays, info)
            movie.replace(path)
        finally:
            movie.unlink(missing_ok=True)
    elif suffix == ".npz":
        with path.open("wb") as file:
            np.savez(file, **store.arrays)
    else:
        [name] = store.arrays
        store.arrays[name].flush()
        store.path(name).replace(path)
