"""Mesh files and series of them as the inputs of a model: one mesh, or those that a rollout starts from.

A series is a list `.pvd` or `.series` of mesh files, or a file with steps, of XDMF or Exodus.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from petrov_client import _exodus as exodus
from petrov_client import _polydata as polydata
from petrov_client import _times as times_of_frames
from petrov_client._guards import guarded, is_mistake, read_any
from petrov_client._libraries import meshio
from petrov_client._meshes import arrays_of, arrays_of_steps, checked, without_loose_points
from petrov_client._models import ModelInfo
from petrov_client._schema import COORDINATES, FRAME
from petrov_client._wire_names import wire_name

SERIES = ".pvd"
#: Suffixes of lists of mesh files that are read: of ParaView, and its other one, in JSON, which OpenFOAM writes, too.
LISTS = frozenset({SERIES, ".series"})
XDMF = frozenset({".xdmf", ".xmf"})
GMSH = ".msh"
#: Suffixes of mesh files that are written, and how. By itself `meshio` would write `.msh` as Ansys does, without data,
#: as it does `.inp`, and the arrays of XDMF to another file beside it.
WRITTEN: Mapping[str, Mapping[str, Any]] = {
    ".vtu": {},
    ".vtk": {},
    GMSH: {"file_format": "gmsh22"},  # later versions need entities, which only files of Gmsh have
    **{suffix: {"data_format": "XML"} for suffix in XDMF},
}
MESHES = frozenset(WRITTEN)
#: Suffixes of those that are read.
READ = MESHES | exodus.SUFFIXES | {polydata.SUFFIX, ".inp"}


@dataclass(frozen=True)
class Source:
    """The arrays of a file that a model takes, and the names of the others in it."""

    arrays: Mapping[str, Any]  # datasets and memory maps stay on disk
    unused: tuple[str, ...] = ()
    mesh: Any = None
    loose: int = 0  # points of the file that no cell has, which `mesh` is without
    time: float = 0.0  # of the mesh, where a series says it
    remark: str = ""  # what the caller should know before the file is used


@dataclass(frozen=True)
class Step:
    """A step of a series: its time, where the series says it, and how its mesh is read."""

    read: Callable[[], Any]
    time: float | None = None


def of_meshes(path: Path, info: ModelInfo, frames: int | None, given: Collection[str] = ()) -> Source:
    """Return the points of a mesh file and the point data that the model takes, without points that no cell has.

    Single numbers of a lone file, its field data, are parameters by their names, but those that are `given`.

    Of a series they are those of the last meshes, as many as the model starts a rollout from. Where an input changes in
    time they are those of the first ones, and it has the values of all meshes from there on.

    Raises:
        ValueError: The file cannot be read, has too few meshes, or times that are not those of the model's steps.
    """
    history, steps = info.frames.history if info.frames else 1, steps_in(path)
    if steps is not None and len(steps) > 1 and info.frames is None:
        raise ValueError(f'expected a mesh file for "{info.name}", which computes no trajectories, but got {path}')
    listed = steps or [Step(partial(_mesh, path))]
    if len(listed) < history:
        found = "one mesh" if steps is None else f"{len(listed)} in {path}"
        raise ValueError(
            f'expected a list .pvd of at least {history} meshes, which "{info.name}" starts from, but got {found}'
        )
    changing = [tensor for tensor in info.inputs if FRAME in tensor.axes]
    start = history if changing else len(listed)
    ahead = any(tensor.per_frame == "end" for tensor in changing)
    following = listed[start - 1 :][: frames and frames + ahead]
    _check_times(path, [*listed[start - history : start - 1], *following], info)
    read = [step.read() for step in listed[start - history : start]]
    each = [without_loose_points(mesh) for mesh in read]
    mesh, loose = each[-1]
    arrays = arrays_of(mesh, info) if history == 1 else arrays_of_steps([one for one, _ in each], info)
    if changing:
        arrays |= _in_advance(path, following, info, frames, single=steps is None)
    if steps is None:
        arrays = {**arrays, **_numbers(mesh, {one.name for one in info.parameters} - {*given})}
    # A mesh has a state by the name of its output, too.
    known = {argument.name for argument in (*info.arguments, *(info.outputs if info.frames else ()))}
    unused = tuple(name for name in mesh.point_data if wire_name(name) not in known)
    names = {tensor.name for tensor in changing}
    mesh.point_data = {name: values for name, values in mesh.point_data.items() if wire_name(name) not in names}
    time, remark = listed[start - 1].time, ""
    if not changing and history == 1 and (unlike := times_of_frames.unlike([step.time for step in listed], info)):
        remark = f"{path}: {unlike}: the rollout starts from its last mesh, and its own frames are a step apart"
    counted = (start - 1) * info.frames.step if info.frames else 0.0
    return Source(arrays, unused, mesh, loose, counted if time is None else time, remark)


def _numbers(mesh: Any, names: Collection[str]) -> dict[str, Any]:
    """Return the parameters of these names that a mesh file has as its field data."""
    single = {wire_name(str(name)): np.ravel(each) for name, each in dict(mesh.field_data or {}).items()}
    return {name: each[0] for name, each in single.items() if name in names and each.size == 1}


def _check_times(path: Path, used: Sequence[Step], info: ModelInfo) -> None:
    """Refuse meshes, of those that a rollout is made of, that are not one step of the model apart."""
    if unlike := times_of_frames.unlike([step.time for step in used], info):
        raise ValueError(f"{path}: {unlike}: {times_of_frames.REMEDY}")


def _in_advance(
    path: Path, steps: Sequence[Step], info: ModelInfo, frames: int | None, *, single: bool
) -> dict[str, Any]:
    """Return inputs that change in time `[frame, point, (component)]`, of a series from the last mesh of the start on.

    A single mesh has the values of all frames.
    """
    assert info.frames is not None  # noqa: S101  an input has the axis
    tensors = {tensor.name: tensor for tensor in info.inputs if FRAME in tensor.axes}
    each = [arrays_of(without_loose_points(step.read())[0], info, changing=True) for step in steps]
    for number, one in enumerate(each):
        if not np.array_equal(one[COORDINATES], each[0][COORDINATES]):
            raise ValueError(f"expected one mesh in all frames of {path} but {number} frames on it has other points")
    held = {name: tensor for name, tensor in tensors.items() if any(name in one for one in each)}
    if not held:
        return {}
    for name in held:
        if any(name not in one or one[name].shape != each[0][name].shape for one in each):
            raise ValueError(f'expected "{name}" at all points of every mesh of {path}, from the start on')
    if single:
        count = frames or info.frames.trained
        return {name: np.broadcast_to(each[0][name], (count, *each[0][name].shape)) for name in held}
    behind = {name: int(tensor.per_frame == "end") for name, tensor in held.items()}
    most = len(each) - max(behind.values())
    if most < (frames or 1):
        listed = ", ".join(f'"{name}"' for name in held)
        raise ValueError(
            f"expected {listed} for {frames or 1} frames but the meshes of {path} have them for {most}: "
            f"--frames {most} is the most that follow"
        )
    return {
        name: np.stack([one[name] for one in each[first : first + (frames or most)]]) for name, first in behind.items()
    }


def _mesh(path: Path) -> Any:
    """Return a mesh of meshio."""
    suffix = path.suffix.lower()
    with _readable(path):
        if suffix in exodus.SUFFIXES:
            return checked(next(exodus.meshes_of(path)))
        return checked(polydata.read_polydata(path) if suffix == polydata.SUFFIX else read_any(path))


@contextmanager
def _readable(path: Path, guard: Callable[[Path], AbstractContextManager[object]] = guarded) -> Iterator[Any]:
    """Yield meshio, and say of a file that cannot be read that it holds no mesh, and what is wrong with it."""
    library = meshio()
    try:
        with guard(path):
            yield library
    except ModuleNotFoundError as error:
        raise ValueError(f"{path} needs another library: pip install {error.name}") from error
    except (Exception, SystemExit) as error:  # what a damaged file leads to in meshio is not only its ReadError
        if is_mistake(error):
            raise
        raise ValueError(
            f"expected a mesh in {path} but it cannot be read ({str(error) or type(error).__name__})"
        ) from error


def steps_in(path: Path) -> list[Step] | None:
    """Return the steps of a list, or of an XDMF or Exodus file that has some; None of a file of one mesh."""
    suffix = path.suffix.lower()
    if suffix in LISTS:
        return [Step(partial(_mesh, file), time) for time, file in _meshes_in(path)]
    if suffix in exodus.SUFFIXES:
        with _readable(path):
            said = exodus.times_of(path)
        return [Step(partial(_exodus_step, path, number), time) for number, time in enumerate(said)] or None
    if suffix not in XDMF:
        return None
    try:
        grids = [*ET.parse(path).iter("Grid")]  # noqa: S314  expat bounds and ignores entities
    except ET.ParseError:
        return None  # what reads it says what is wrong
    if not any(grid.get("CollectionType") == "Temporal" for grid in grids):
        return None
    if sum(grid.get("CollectionType") == "Temporal" for grid in grids) > 1:  # of which meshio would read the last
        raise ValueError(f"expected one collection of steps in {path}, with all functions, but there are several")
    with _readable(path) as library:
        reader = library.xdmf.TimeSeriesReader(path)
        marks = [grid.find("Time") for grid in reader.collection]
        every = all(each is not None for each in marks)
        times = [float(each.get("Value")) if every else None for each in marks]
        for grid, mark in zip(reader.collection, marks, strict=True):
            if mark is None:  # without which meshio reads no step
                ET.SubElement(grid, "Time", Value="0")
    return [Step(partial(_step_of, path, reader, number), time) for number, time in enumerate(times)]


def _exodus_step(path: Path, number: int) -> Any:
    """Return the mesh of a step of an Exodus file."""
    with _readable(path):
        return checked(next(exodus.meshes_of(path, (number,))))


def _step_of(path: Path, reader: Any, number: int) -> Any:
    """Return the mesh of a step of an XDMF file, which is that of the first one where it has none."""
    reader.hdf5_files.clear()  # which the step before has closed
    with _readable(path, nullcontext) as library, reader:  # what it refers to has been checked as it was opened
        grid, first = reader.collection[number], reader.mesh_grid
        reader.mesh_grid = grid if {"Topology", "Geometry"} <= {each.tag for each in grid} else first
        points, cells = reader.read_points_cells()
        _, point_data, cell_data = reader.read_data(number)
        return checked(library.Mesh(points, cells, point_data, cell_data))


def _entries(path: Path) -> list[tuple[str, str]]:
    """Return the times of a list of meshes, as it writes them, and the names of its files."""
    if path.suffix.lower() == SERIES:
        found = ET.parse(path).iter("DataSet")  # noqa: S314  expat bounds and ignores entities
        return [(each.get("timestep") or "", each.get("file") or "") for each in found]
    listed = json.loads(path.read_text(encoding="utf-8-sig"))["files"]
    return [(str(each.get("time", "")), str(each["name"])) for each in listed]


def _meshes_in(path: Path) -> list[tuple[float | None, Path]]:
    """Return the files of a list in order, with their times; they are beside it or in folders below."""
    try:
        entries = _entries(path)
        every = all(said for said, _ in entries)  # else they are in the order of the list
        listed = {float(said if every else number): name for number, (said, name) in enumerate(entries)}
    except (ET.ParseError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"expected a list of meshes in {path} but: {error}") from error
    times = sorted(listed)
    if not np.isfinite(times).all():
        raise ValueError(f"{path} lists a time that is no finite number: expected the time of every mesh, or of none")
    if not times:
        raise ValueError(f"expected a list of meshes in {path} but it lists none")
    names = [listed[time] for time in times]
    files, folder = [path.parent / name for name in names], path.resolve().parent
    for name, file in zip(names, files, strict=True):
        beside = bool(name) and not file.is_symlink() and file.resolve().is_relative_to(folder)
        if not beside or file.suffix.lower() not in READ:
            raise ValueError(f"{path} lists {name!r}: expected mesh files beside it or in folders below")
    if len(files) < len(entries):
        raise ValueError(f"{path} lists several meshes for one time: join the parts of a mesh in one file")
    return [(time if every else None, file) for time, file in zip(times, files, strict=True)]
