"""Files of trajectories, written frame by frame from those that have arrived (`kept_frames`): memory holds a few.

HDF5, zarr and `.npy` take the frames themselves. A `.npz` archive and a movie are made from `.npy` files on the disk.
Whatever the format, the file has its name only once it is complete (`local.replacing`).
"""

from __future__ import annotations

import math
import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.lib.format import open_memmap

from petrov_client._files import local, movies
from petrov_client._files.quality_columns import frame_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from petrov_client._files.partial_file import Job
    from petrov_client._values.arrays import Fields
    from petrov_client._values.models import ModelInfo, TensorInfo

    Shape = tuple[int, ...]

#: Bytes of one chunk of a file, and of the frames that are held in memory, unless one frame takes more.
CHUNK_BYTES = 2**18
#: Suffixes of the formats that say what their frames depend on, so that a finished rollout can be continued.
CONTINUED = local.HDF5 | {local.ZARR}
#: Suffixes of the formats that have a place for what is known about the errors of frames.
WITH_COLUMNS = local.SEVERAL | {local.ZARR}


class Store(Protocol):
    """A file, or a folder, of one array per output and column."""

    def create(self, tensor: TensorInfo, shape: Shape, chunks: Shape) -> Any:
        """Return an array of float32 that slices can be assigned to."""
        ...


class Hdf5Store:
    """Datasets of an HDF5 file, whose attributes describe the rollout.

    Args:
        path: The file.
        described: The rollout.
        stack: Closes it.
    """

    def __init__(self, path: Path, described: Job, stack: ExitStack) -> None:
        self._file = stack.enter_context(local.hdf5().File(path, "w"))
        self._file.attrs.update(described)

    def create(self, tensor: TensorInfo, shape: Shape, chunks: Shape) -> Any:
        """Return a dataset."""
        found = self._file.create_dataset(tensor.name, shape, "<f4", chunks=chunks)
        found.attrs.update(local.attributes(tensor))
        return found


class ZarrStore:
    """Arrays of a zarr folder, whose attributes describe the rollout.

    Args:
        path: The folder.
        described: The rollout.
    """

    def __init__(self, path: Path, described: Job) -> None:
        self._group = local.zarr().open_group(str(path), mode="w")
        self._group.attrs.update(described)

    def create(self, tensor: TensorInfo, shape: Shape, chunks: Shape) -> Any:
        """Return an array."""
        found = self._group.create_array(tensor.name, shape=shape, dtype="float32", chunks=chunks)
        found.attrs.update(local.attributes(tensor))
        return found


class NpyStore:
    """Memory-mapped `.npy` files, one per output.

    Args:
        folder: A folder of their own.
        stack: Removes it.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)  # one that a killed process has left is used again
        stack.callback(shutil.rmtree, folder)
        self.arrays: dict[str, Any] = {}

    def create(self, tensor: TensorInfo, shape: Shape, chunks: Shape) -> Any:
        """Return a memory map; it has no chunks."""
        del chunks
        self.arrays[tensor.name] = open_memmap(self.path(tensor.name), "w+", np.dtype("<f4"), shape)
        return self.arrays[tensor.name]

    def path(self, name: str) -> Path:
        """Return the file of an output."""
        return self._folder / f"{name}.npy"


@dataclass(frozen=True)
class Written:
    """What a file of trajectories holds.

    Attributes:
        shapes: The shapes of the arrays by name.
        spans: The least and the greatest finite number of each, `[2]`, or `[0]` where none is finite.
    """

    shapes: Mapping[str, Shape]
    spans: Mapping[str, Fields]


class Frames:
    """The writer of frames `[(batch), (component), *grid]` into arrays `[(batch), frame, (component), *grid]`.

    A number per frame, `[(batch)]`, becomes a column `[(batch), frame]`.

    Args:
        store: The file.
        info: The model.
        total: How many frames there are.
    """

    def __init__(self, store: Store, info: ModelInfo, total: int) -> None:
        self._store, self._info, self._total = store, info, total
        self._waiting: list[Mapping[str, Fields]] = []
        self._tensors: list[TensorInfo] = []
        self._arrays: dict[str, Any] = {}
        self._spans: dict[str, Fields] = {}
        self._most = 1
        self._done = 0

    def add(self, outputs: Mapping[str, Fields]) -> None:
        """Append a frame.

        Raises:
            OSError: The file cannot be written.
        """
        if not self._arrays:
            self._begin(outputs)
        self._waiting.append(outputs)
        self._done += 1
        for name, array in outputs.items():
            known = np.append(self._spans.get(name, ()), array[np.isfinite(array)])
            self._spans[name] = np.array([known.min(), known.max()]) if len(known) else known
        if len(self._waiting) == self._most or self._done == self._total:
            self._write()

    def written(self) -> Written:
        """Return what has been written."""
        return Written({name: array.shape for name, array in self._arrays.items()}, self._spans)

    def _begin(self, outputs: Mapping[str, Fields]) -> None:
        self._most = max(1, min(self._total, CHUNK_BYTES // max(array.nbytes for array in outputs.values())))
        self._tensors = [tensor for tensor in arrays_of(self._info) if tensor.name in outputs]
        for tensor in self._tensors:
            frame = outputs[tensor.name].shape
            axis = _axis(self._info, tensor, len(frame))
            batch, field = frame[:axis], frame[axis:]
            samples = [min(count, max(1, CHUNK_BYTES // (4 * math.prod(field)))) for count in batch]
            chunks = (*samples, self._most, *field)
            self._arrays[tensor.name] = self._store.create(tensor, (*batch, self._total, *field), chunks)

    def _write(self) -> None:
        for tensor in self._tensors:
            array = self._arrays[tensor.name]
            axis = _axis(self._info, tensor, len(array.shape) - 1)
            place = (slice(None),) * axis + (slice(self._done - len(self._waiting), self._done),)
            array[place] = np.stack([outputs[tensor.name] for outputs in self._waiting], axis)
        self._waiting = []


def arrays_of(info: ModelInfo) -> tuple[TensorInfo, ...]:
    """Return the arrays that a file of trajectories of a model may hold: its outputs, and columns."""
    return (*info.outputs, *frame_tensors(info))


def batch_of(outputs: Mapping[str, Fields], info: ModelInfo) -> Shape:
    """Return the axis of the batch of a frame: `(samples,)`, or `()` for a single sample."""
    first = info.outputs[0]
    shape = outputs[first.name].shape
    return shape[: _axis(info, first, len(shape))]


def _axis(info: ModelInfo, tensor: TensorInfo, rank: int) -> int:
    """Return the axis of the frames: behind that of the batch, if frames of this rank have one."""
    if tensor not in info.outputs:
        return rank  # a column
    return rank - (0 if info.grid is None else len(info.grid.axes)) - bool(tensor.components)


def check_frame(path: Path, outputs: Mapping[str, Fields], info: ModelInfo) -> None:
    """Check that a file can show frames like this one.

    Raises:
        ValueError: It is a movie, and there are several samples or three axes.
    """
    if path.suffix == movies.SUFFIX:
        frames = {
            tensor.name: np.expand_dims(outputs[tensor.name], _axis(info, tensor, outputs[tensor.name].ndim))
            for tensor in info.outputs
        }
        movies.channels(frames, info)


def write(
    path: Path, frames: Iterable[Mapping[str, Fields]], info: ModelInfo, total: int, described: Job | None = None
) -> Written:
    """Write trajectories; after an error there is no file.

    Args:
        path: The file; its suffix selects the format. No other process writes it.
        frames: Frames `[(batch), (component), *grid]` by output name, with the numbers `[(batch)]` of columns, for
            which only the formats in `WITH_COLUMNS` have a place.
        info: The model.
        total: How many frames there are, at least one.
        described: What the frames depend on, for the formats in `CONTINUED`.

    Raises:
        OSError: The file cannot be written.
        ValueError: A movie cannot show the outputs.
    """
    with local.replacing(path, "new") as temporary, ExitStack() as stack:
        if path.suffix in local.HDF5:
            store: Store = Hdf5Store(temporary, described or {}, stack)
        elif path.suffix == local.ZARR:
            store = ZarrStore(temporary, described or {})
        else:
            store = NpyStore(temporary.with_name(f"{temporary.name}.arrays"), stack)
        writer = Frames(store, info, total)
        for frame in frames:
            writer.add(frame if path.suffix in WITH_COLUMNS else outputs_of(frame, info))
        if isinstance(store, NpyStore):
            _convert(store, temporary, path.suffix, info)
        return writer.written()


def outputs_of(frame: Mapping[str, Fields], info: ModelInfo) -> dict[str, Fields]:
    """Return a frame without the numbers of columns."""
    return {tensor.name: frame[tensor.name] for tensor in info.outputs}


@dataclass(frozen=True)
class Finished:
    """A file of trajectories that can be continued.

    Attributes:
        described: What its frames depend on.
        arrays: Its arrays by name.
        info: The model.
    """

    described: Mapping[str, Any]
    arrays: Mapping[str, Any]
    info: ModelInfo

    @property
    def count(self) -> int:
        """How many frames it has."""
        return min(int(array.shape[self._axis(name)]) for name, array in self.arrays.items())

    def frames(self) -> Iterator[dict[str, Fields]]:
        """Yield its frames; memory holds those of a chunk."""
        step = min(array.chunks[self._axis(name)] for name, array in self.arrays.items())
        for start in range(0, self.count, step):
            place = slice(start, min(start + step, self.count))
            parts = {
                name: np.moveaxis(np.asarray(array[(slice(None),) * self._axis(name) + (place,)]), self._axis(name), 0)
                for name, array in self.arrays.items()
            }
            for index in range(place.stop - place.start):
                yield {name: part[index] for name, part in parts.items()}

    def _axis(self, name: str) -> int:
        [tensor] = [tensor for tensor in arrays_of(self.info) if tensor.name == name]
        return _axis(self.info, tensor, len(self.arrays[name].shape) - 1)


@contextmanager
def finished(path: Path, info: ModelInfo) -> Iterator[Finished]:
    """Open a file of one of the formats in `CONTINUED`.

    Raises:
        OSError: It cannot be read.
        ValueError: It holds no trajectories of the model.
    """
    with ExitStack() as stack:
        if path.suffix in local.HDF5:
            file = stack.enter_context(local.hdf5().File(path, "r"))
        else:
            file = local.zarr().open_group(str(path), mode="r")
        arrays = {tensor.name: file.get(tensor.name) for tensor in info.outputs}
        if missing := [name for name, array in arrays.items() if getattr(array, "chunks", None) is None]:
            raise ValueError(f'expected trajectories "{missing[0]}" in {path} but found none')
        columns = {tensor.name: file.get(tensor.name) for tensor in frame_tensors(info)}
        arrays |= {name: array for name, array in columns.items() if getattr(array, "chunks", None) is not None}
        yield Finished(dict(file.attrs), arrays, info)


def _convert(store: NpyStore, path: Path, suffix: str, info: ModelInfo) -> None:
    """Make a file of memory-mapped arrays."""
    if suffix == movies.SUFFIX:
        movie = path.with_suffix(suffix)  # by which the encoder knows the format
        try:
            movies.write(movie, store.arrays, info)
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
