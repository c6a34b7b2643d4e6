"""Files of trajectories, made of frames one after another: HDF5, netCDF, zarr, NumPy, a movie or a series of meshes.

Memory holds a few frames. HDF5, netCDF, zarr and `.npy` take the frames themselves. A `.npz` archive and a movie are
made from `.npy` files on the disk. A series of meshes is a list `.pvd` of a mesh file for each frame, as ParaView reads
it.
"""

from __future__ import annotations

import functools
import math
import os
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap

from petrov_client import _files as files
from petrov_client import _formats as formats
from petrov_client._arrays import Fields
from petrov_client._kept import Description
from petrov_client._labels import Labels
from petrov_client._libraries import meshio
from petrov_client._mesh_series import SERIES
from petrov_client._meshes import with_outputs
from petrov_client._models import ModelInfo
from petrov_client._quality import columns
from petrov_client._schema import TensorInfo
from petrov_client._spans import Span

Shape = tuple[int, ...]


#: Bytes of one chunk of a file, and of the frames that are held in memory, unless one frame takes more.
CHUNK_BYTES = 2**18
#: Suffixes of the formats that say what their frames depend on, so that a finished rollout can be continued.
CONTINUED = files.HDF5 | formats.NETCDF | {files.ZARR}
#: Suffixes of the formats that have a place for what is known about the errors of frames.
WITH_COLUMNS = files.SEVERAL | {files.ZARR}
#: The attribute of such a file with the checksum of its outputs.
CHECKSUM = "outputs_crc32"
FRAMES_PER_SECOND = 12
FRAME_FILE = "frame_"  # how the names of the mesh files of a series begin
SIDE, DOTS = 4.0, 120  # inches of a picture of a movie, and dots per inch


@dataclass(frozen=True)
class Written:
    """What a file of trajectories holds."""

    shapes: Mapping[str, Shape]
    spans: Mapping[str, Span]


@dataclass(frozen=True)
class Start:
    """What a file of trajectories goes on from, and what it is called in the end."""

    path: Path  # the file in the end
    mesh: Any = None  # of meshio
    time: float = 0.0  # of the state, where a series of meshes says it
    labels: Labels | None = None  # of the state, where a netCDF file has them


def write(
    path: Path,
    read: Callable[[int], Mapping[str, Fields]],
    info: ModelInfo,
    total: int,
    described: Description | None = None,
    start: Start | None = None,
) -> Written:
    """Write trajectories `[(batch), frame, (component), *grid]`, and columns `[(batch), frame]`.

    Args:
        path: The file; its suffix selects the format.
        read: Returns a frame by its number: `[(batch), (component), *grid]` by output name, and with the numbers
            `[(batch)]` of columns, for which only the formats in `WITH_COLUMNS` have a place.
        info: The model.
        total: How many frames there are, at least one.
        described: What the frames depend on, for the formats in `CONTINUED`.
        start: Of a series of meshes, and where a netCDF file has coordinates, what they go on from.
    """
    suffix, start = path.suffix.lower(), start or Start(path)
    if suffix == SERIES:
        return write_series(path, start, read, info, total)
    first, reported = read(0), columns(info) if suffix in WITH_COLUMNS else ()
    tensors = [tensor for tensor in (*info.outputs, *reported) if tensor.name in first]
    most = max(1, min(total, CHUNK_BYTES // max(array.nbytes for array in first.values())))
    arrays, spans = dict[str, Any](), defaultdict[str, Span](Span)
    axes = {tensor.name: _axis(info, tensor, first[tensor.name].ndim) for tensor in tensors}
    shapes = {name: (*first[name].shape[:axis], total, *first[name].shape[axis:]) for name, axis in axes.items()}
    labelled = _labelled(shapes, tensors, info, total, start) if suffix in formats.NETCDF else None
    with _group_or_folder(path, labelled) as (group, folder):
        for tensor in tensors:
            whole, axis, shape = first[tensor.name].shape, axes[tensor.name], shapes[tensor.name]
            field = whole[axis:]
            samples = [min(count, max(1, CHUNK_BYTES // (4 * math.prod(field)))) for count in whole[:axis]]
            if group is None:
                file = path if suffix == ".npy" else folder / f"{tensor.name}.npy"
                array = new_array(file, shape)
            elif labelled is not None:
                array = formats.new_variable(group, labelled[tensor.name], (*samples, most, *field))
            else:
                make = group.create_dataset if suffix in files.HDF5 else group.create_array
                array = make(tensor.name, shape=shape, dtype="float32", chunks=(*samples, most, *field))
                array.attrs.update(files.attributes(tensor))
            arrays[tensor.name] = array
        checksum = 0
        for begin in range(0, total, most):
            frames = [read(number) for number in range(begin, min(begin + most, total))]
            checksum = functools.reduce(lambda known, frame: _checksum(frame, info, known), frames, checksum)
            for name, array in arrays.items():
                part = np.stack([frame[name] for frame in frames], axes[name])
                array[(slice(None),) * axes[name] + (slice(begin, begin + len(frames)),)] = part
                spans[name].add(part)
        if group is not None:
            group.attrs.update({**(described or {}), CHECKSUM: checksum})
        elif suffix == files.MOVIE:
            write_movie(path, arrays, info)
        elif suffix == ".npz":
            with path.open("wb") as archive:  # NumPy would append another suffix to one in upper case
                np.savez(archive, **arrays)
        return Written(shapes, spans)


def _labelled(
    shapes: Mapping[str, Shape], tensors: Sequence[TensorInfo], info: ModelInfo, total: int, start: Start
) -> Any:
    """Return the dimensions, coordinates and attributes of trajectories as a dataset of xarray."""
    times = start.time + (info.frames.step if info.frames else 1.0) * np.arange(1, total + 1)
    return formats.frames_dataset(shapes, {each.name: each for each in tensors}, times, start.labels)


def write_series(
    path: Path, start: Start, read: Callable[[int], Mapping[str, Fields]], info: ModelInfo, total: int
) -> Written:
    """Write the trajectories of one mesh: a file for each frame in a folder beside the target, and their list.

    Args:
        path: Where the list is written first.
        start: What it is called in the end, and its mesh; its folder is `NAME_frames` beside it.
        read: As for `write`.
        info: The model.
        total: How many frames there are.
    """
    folder, step = frames_folder(start.path), info.frames.step if info.frames else 1.0
    entries, spans, shapes = list[str](), defaultdict[str, Span](Span), dict[str, Shape]()
    with files.replacing(folder) as temporary:
        temporary.mkdir()
        for number in range(total):
            frame = read(number)
            outputs = {tensor.name: frame[tensor.name] for tensor in info.outputs}
            name = f"{FRAME_FILE}{number + 1:0{len(str(total))}}.vtu"
            meshio().write(temporary / name, with_outputs(start.mesh, outputs, info.outputs))
            time, file = f"{start.time + step * (number + 1):.9g}", escape(f"{folder.name}/{name}", quote=True)
            entries.append(f'    <DataSet timestep="{time}" group="" part="0" file="{file}"/>')
            for output, values in outputs.items():
                spans[output].add(values)
                shapes[output] = (total, *values.shape)
            for column in columns(info):  # for which mesh files have no place
                if column.name in frame:
                    spans[column.name].add(frame[column.name])
                    shapes[column.name] = (total,)
    head = ['<?xml version="1.0"?>', '<VTKFile type="Collection" version="0.1">', "  <Collection>"]
    path.write_text("\n".join([*head, *entries, "  </Collection>", "</VTKFile>", ""]), encoding="utf-8")
    return Written(shapes, spans)


def frames_folder(target: Path) -> Path:
    """Return the folder of the frames of a series of meshes."""
    return target.with_name(f"{target.stem}_frames")


def check_series(source: Path, target: Path, mesh: Any) -> None:
    """Check that a series of meshes can be written, if the target is one; its folder of frames is replaced.

    Raises:
        ValueError: There is no mesh, or the folder holds the source, or something else than the frames of the target.
    """
    if target.suffix.lower() != SERIES:
        return
    if mesh is None:
        raise ValueError(f"expected a mesh file as input for {target.name}, which holds outputs on its mesh")
    folder = frames_folder(target)
    if target.resolve() == source.resolve() or folder.resolve() in source.resolve().parents:
        raise ValueError(f"expected another name than {target}: its frames would replace {folder}, which has {source}")
    listed = target.read_text(encoding="utf-8", errors="replace") if target.is_file() else ""
    entries = folder.iterdir() if folder.is_dir() else [folder] if folder.exists() else []
    if others := [
        each for each in entries if f'file="{escape(f"{folder.name}/{each.name}", quote=True)}"' not in listed
    ]:
        detail = f"it holds {others[0].name}, which {target} does not list"
        raise ValueError(f"expected a new folder {folder} for the frames but {detail}")


@contextmanager
def _group_or_folder(path: Path, labelled: Any) -> Iterator[tuple[Any, Path]]:
    """Open a new file or folder that takes arrays; or None, and where `.npy` files become the arrays."""
    suffix = path.suffix.lower()
    if labelled is not None:
        with files.new_netcdf(path, labelled) as group:
            yield group, path
    elif suffix in files.HDF5 | {files.ZARR}:
        with files.group(path, "w") as group:
            yield group, path
    elif suffix == ".npy":
        yield None, path.parent
    else:
        with TemporaryDirectory(prefix=".arrays", dir=path.parent) as folder:
            yield None, Path(folder)


def new_array(path: Path, shape: Shape) -> np.memmap[Any, np.dtype[np.float32]]:
    """Make a `.npy` file of float32 and return it as a memory map, for all of which the disk has room.

    A write to a memory map that the disk has no room for ends the process at once.

    Raises:
        OSError: It has not.
    """
    array: np.memmap[Any, np.dtype[np.float32]] = open_memmap(path, "w+", np.dtype("<f4"), shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def _checksum(frame: Mapping[str, Fields], info: ModelInfo, earlier: int) -> int:
    """Return the checksum of the outputs of a frame and of all before it."""
    for tensor in info.outputs:
        earlier = zlib.crc32(np.ascontiguousarray(frame[tensor.name], "<f4").data, earlier)
    return earlier


@contextmanager
def finished(path: Path, info: ModelInfo) -> Iterator[tuple[Mapping[str, Any], int, Iterator[dict[str, Fields]]]]:
    """Open a file of one of the formats in `CONTINUED`: what its frames depend on, their number, and they themselves.

    That it is damaged, an `OSError`, is known at the latest when all frames have been read.
    """
    with ExitStack() as stack:
        file = stack.enter_context(files.group(path, "r"))
        arrays: dict[str, tuple[Any, int]] = {}
        for tensor in (*info.outputs, *columns(info)):
            array = file.get(tensor.name)
            if hasattr(array, "shape"):
                arrays[tensor.name] = array, _axis(info, tensor, len(array.shape) - 1)
            elif tensor in info.outputs:
                raise ValueError(f'expected trajectories "{tensor.name}" in {path} but found none')
        count = min(int(array.shape[axis]) for array, axis in arrays.values())
        attributes = dict(file.attrs)

        def frames() -> Iterator[dict[str, Fields]]:
            fault, checksum = f"{path} is damaged: compute it again without --resume", 0
            for number in range(count):
                try:
                    frame = {
                        name: np.asarray(array[(slice(None),) * axis + (number,)], np.float32)
                        for name, (array, axis) in arrays.items()
                    }
                except (RuntimeError, ValueError) as error:  # of the library that decompresses
                    raise OSError(fault) from error
                checksum = _checksum(frame, info, checksum)
                yield frame
            if attributes.get(CHECKSUM, checksum) != checksum:  # files of earlier versions have none
                raise OSError(fault)

        yield attributes, count, frames()


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
    """Check that a file can show frames like this one."""
    if path.suffix.lower() == files.MOVIE:
        frames = {
            tensor.name: np.expand_dims(outputs[tensor.name], _axis(info, tensor, outputs[tensor.name].ndim))
            for tensor in info.outputs
        }
        _channels(frames, info)


def _channels(outputs: Mapping[str, Fields], info: ModelInfo) -> dict[str, Fields]:
    """Return scalar fields `[frame, *grid]` by title."""
    axes = len(info.grid.axes) if info.grid else 0
    if info.scattered:
        raise ValueError("a movie shows fields on a grid, not on points: choose .pvd, which ParaView plays")
    found: dict[str, Fields] = {}
    for tensor in info.outputs:
        array, components = outputs[tensor.name], len(tensor.components)
        rank = 1 + axes + bool(components)
        if array.ndim > rank and len(array) != 1:
            raise ValueError(f"a movie shows one sample, and there are {len(array)}: choose another suffix")
        single = array[0] if array.ndim > rank else array
        parts = {f" {name}": single[:, number] for number, name in enumerate(tensor.components)} or {"": single}
        found |= {f"{tensor.name}{name}": part for name, part in parts.items()}
    if axes not in {1, 2}:
        raise ValueError(f"a movie shows one or two axes, and there are {axes}: choose another suffix")
    return found


def write_movie(path: Path, outputs: Mapping[str, Fields], info: ModelInfo) -> None:
    """Write the trajectories of one sample as a picture per frame, with one scale for all frames.

    A vector field is one picture per component. Movies need the extra `[movie]`.
    """
    import imageio_ffmpeg  # noqa: PLC0415  optional
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  optional, half a second
    from matplotlib.figure import Figure  # noqa: PLC0415  as above

    shown = _channels(outputs, info)
    figure = Figure(figsize=(SIDE * len(shown), SIDE), dpi=DOTS, layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    title = figure.suptitle(" ")
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    drawn = [_draw(panel, name, field, info) for panel, (name, field) in zip(panels, shown.items(), strict=True)]
    step = info.frames.step if info.frames else 1.0

    def picture(index: int) -> Any:
        """Return the picture of a frame, bytes `[row, column, 3]` of even sides."""
        title.set_text(f"{info.name}, time {step * (index + 1):g}")
        for each, field in zip(drawn, shown.values(), strict=True):
            (each.set_ydata if field.ndim == 2 else each.set_data)(field[index])
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[..., :3]
        rows, columns = (side - side % 2 for side in pixels.shape[:2])
        return np.ascontiguousarray(pixels[:rows, :columns])

    size = picture(0).shape[1::-1]
    writer = imageio_ffmpeg.write_frames(str(path), size, fps=FRAMES_PER_SECOND, macro_block_size=2)
    try:
        writer.send(None)
        for index in range(len(next(iter(shown.values())))):
            writer.send(picture(index))
    finally:
        writer.close()


def _draw(panel: Any, title: str, field: Fields, info: ModelInfo) -> Any:
    names = info.grid.axes if info.grid else ()
    low, high = float(np.nanmin(field)), float(np.nanmax(field))
    panel.set_title(title)
    panel.set_xlabel(names[-1])
    if field.ndim == 2:
        room = 0.05 * (high - low or 1.0)
        panel.set_ylim(low - room, high + room)
        return panel.plot(field[0])[0]
    panel.set_ylabel(names[-2])
    drawn = panel.imshow(field[0], vmin=low, vmax=high, cmap="inferno")
    panel.figure.colorbar(drawn, ax=panel)
    return drawn
