"""Series of meshes in time, one sample each: a list `.pvd` or `.series`, a folder of numbered files, or XDMF of steps.

The mesh is the same in every step. What follows from it alone, `coordinates`, `boundary`, `distance` and `area`, is
`[1, point, …]` as of one mesh file; point data, of whatever name, and the means of cell data at each node are
`[1, time, point, (component)]`. Regions are those of the first step where all have the same, else fields. A vector that
leaves the plane of a plane mesh in any step has three components in all. The steps are read when they are needed:
memory holds those of the series that were read last (`recent.py`). The collections of an XDMF file, as FEniCS writes
one for each function, are one series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import meshio
import numpy as np
from meshio.xdmf.time_series import TimeSeriesReader
from numpy.typing import NDArray

from schema.card import AREA, BOUNDARY, COORDINATES, DISTANCE, NORMAL
from schema.problem import UNEVEN
from training.data.readers import exodus
from training.data.readers.data_file import DataFile, LazyArray, ReadError, damage_named
from training.data.readers.formats import LISTS, entries_of, is_temporal, lists_in, meshes_in, named_in
from training.data.readers.guards import guarded
from training.data.readers.mesh import (
    described,
    exodus_meshes,
    first_bad,
    in_plane,
    narrowed,
    read_mesh,
    whole_fields_of,
)
from training.data.readers.mesh_cells import without_loose_points
from training.data.readers.recent import RECENT, Arrays, Stamp, reread, stamp_of

FRAME = ("time", "point", "component")  # the axes of a field behind the sample's


@dataclass(frozen=True)
class Series:
    """The steps of a series."""

    files: tuple[Path, ...]  # that hold them
    times: tuple[float, ...]  # of each step; none where nothing says them
    meshes: Callable[[], Iterator[meshio.Mesh]]  # reads them one after the other


@contextmanager
def open_series(path: Path) -> Iterator[DataFile]:
    """Open a series of meshes, which is one sample."""
    with damage_named(path, "a series of meshes"):
        series = series_of(path)
        stamp = stamp_of(*dict.fromkeys((path, *series.files, *named_in(path))))
    try:
        yield opened(path, series, stamp)
    finally:
        for key in (stamp, (path, stamp)):
            RECENT.forget(key)


def first_step(path: Path, series: Series) -> tuple[meshio.Mesh, meshio.Mesh, NDArray[np.float64]]:
    """Return the meshes of the first two steps, of which there may be one alone, and the points."""
    with damage_named(path, "a series of meshes"):
        meshes = series.meshes()
        first = next(meshes)
        points = np.asarray(first.points, np.float64)
        if not len(points) or not np.isfinite(points).all():
            at = f"those of point {first_bad(points)} are not" if len(points) else "there are none"
            raise ReadError(f"{path}: expected finite coordinates but {at}")
        return first, next(meshes, first), points


def opened(path: Path, series: Series, stamp: Stamp) -> DataFile:
    """Describe a series as one sample."""

    def again() -> DataFile:
        mesh, _, points = first_step(path, series)
        return described(path, mesh, points)

    first, second, points = first_step(path, series)
    with damage_named(path, "a series of meshes"):
        made = reread(described(path, first, points), stamp, stamp, again)
    check_times(path, series.times)
    steps = len(series.files) if len(series.files) > 1 else len(series.times)
    if steps == 1:
        return replace(made, format="series")
    made = without_numbers(made)
    stored = whole_fields_of(first, points)
    derived = {COORDINATES, BOUNDARY, DISTANCE, AREA, NORMAL} - stored.keys()  # unless a field has the name
    still = {name: one for name, one in made.arrays.items() if name in derived}
    followed = {name: one for name, one in made.parts.items() if name in derived}
    # Whole numbers of cells that change, as of damage, are no regions but a field.
    changed = {name for name in made.regions if np.ptp(loaded(path, stamp)[name], axis=0).any()}
    shares = {name: name.rpartition("=")[0] for name in made.arrays}
    still |= {name: one for name, one in made.arrays.items() if shares[name] in made.regions.keys() - changed}
    changing = {
        name: one
        for name, one in {**made.arrays, **made.parts}.items()
        if name not in {*still, *followed} and shares.get(name) not in changed
    }
    late = {*second.point_data, *second.cell_data} - {*first.point_data, *first.cell_data}
    left_out = dict.fromkeys(sorted(late), "the first step has none")

    def array(name: str, one: LazyArray) -> LazyArray:
        def rows(start: int, stop: int) -> NDArray[Any]:
            return loaded(path, stamp)[name][np.newaxis][start:stop]

        # A later step may leave the plane that the first one is in.
        dropped = name in stored and stored[name].shape != one.shape[1:]
        shape = (1, *loaded(path, stamp)[name].shape) if dropped else (1, steps, *one.shape[1:])
        return replace(one, shape=shape, rows=rows, dimensions=FRAME[: len(shape) - 1])

    arrays = {name: array(name, one) for name, one in changing.items()}
    return replace(
        made,
        format="series",
        arrays=still | {name: one for name, one in arrays.items() if name not in made.parts.keys() - changed},
        parts=followed | {name: arrays[name] for name in made.parts.keys() - changed - followed.keys()},
        regions={name: values for name, values in made.regions.items() if name not in changed},
        left_out={**made.left_out, **left_out},
        samples="one series of meshes per sample",
        coordinates={**made.coordinates, **({"time": np.asarray(series.times)} if series.times else {})},
    )


def without_numbers(made: DataFile) -> DataFile:
    """Return the first step of a series without the numbers of its file: other steps may have others."""
    each = {**made.arrays, **made.parts}
    numbers = {name for name, one in each.items() if one.shape == (1,)}
    arrays, parts = ({name: one for name, one in of.items() if name not in numbers} for of in (made.arrays, made.parts))
    left_out = dict.fromkeys(sorted(numbers), "it is a number of one step, and steps may have others: save a table")
    return replace(made, arrays=arrays, parts=parts, left_out=left_out | {**made.left_out})


def series_of(path: Path) -> Series:
    """Return the steps of a series."""
    if path.is_dir():
        lists = lists_in(path)
        return of_files(*listed(lists[0])) if lists else of_files(tuple(meshes_in(path)), ())
    if path.suffix.lower() in LISTS:
        return of_files(*listed(path))
    if path.suffix.lower() in exodus.SUFFIXES:
        return of_exodus(path)
    if not is_temporal(path):
        raise ReadError(f"{path}: expected a series of meshes but found one mesh")
    return of_xdmf(path)


Step = tuple[float, dict[str, Any], dict[str, Any]]  # the time, and data of points and of cells by name


def of_exodus(path: Path) -> Series:
    """Return the steps of an Exodus file."""
    with damage_named(path, "an Exodus file"):
        times = exodus.times_of(path)
    return Series((path,), times, lambda: map(without_loose_points, exodus_meshes(path)))


def of_xdmf(path: Path) -> Series:
    """Return the steps of an XDMF file, whose collections are read together.

    Raises:
        ReadError: Its collections have other times, or fields of the same name.
    """
    with opened_xdmf(path) as reader:
        reader.read_points_cells()
        times = times_of(path, {name: steps_of(reader, name) for name in collections_of(reader)})

    def meshes() -> Iterator[meshio.Mesh]:
        with opened_xdmf(path) as reader:
            points, cells = reader.read_points_cells()
            collections = collections_of(reader)
            for number, together in enumerate(zip(*(steps_of(reader, name) for name in collections), strict=True)):
                own = points
                # Files that write their mesh anew in every step may move it: `read_steps` refuses that.
                for grid in (steps[number] for steps in collections.values()):
                    for item in grid.findall("Geometry/DataItem"):
                        own = reader._read_data_item(item)  # noqa: SLF001
                on_points = {name: values for _, each, _ in together for name, values in each.items()}
                on_cells = {name: values for _, _, each in together for name, values in each.items()}
                yield without_loose_points(meshio.Mesh(own, cells, on_points, on_cells))

    return Series((path,), times, meshes)


@contextmanager
def opened_xdmf(path: Path) -> Iterator[TimeSeriesReader]:
    """Open an XDMF file of steps.

    Raises:
        ReadError: It is none that `meshio` reads.
    """
    try:
        with guarded(path), TimeSeriesReader(path) as reader:
            yield reader
    except (meshio.ReadError, AssertionError) as error:
        reason = str(error) or type(error).__name__
        if b'ItemType="FiniteElementFunction"' in path.read_bytes():
            reason = "it is a checkpoint of FEniCS, which write(u, t) of its XDMFFile is not"
        raise ReadError(
            f"{path}: expected an XDMF file of version 3, with steps on one mesh, but meshio cannot read it "
            f"({reason}): save a list .pvd of .vtu files"
        ) from error


def collections_of(reader: TimeSeriesReader) -> dict[str, list[ET.Element]]:
    """Return the steps of every temporal collection of an XDMF file, by its name."""
    found: dict[str, list[ET.Element]] = {}
    grids = [grid for grid in reader.domain.iter("Grid") if grid.get("CollectionType") == "Temporal"]
    for number, grid in enumerate(grids):
        name = grid.get("Name") or "unnamed"
        found[f"{name} ({number})" if name in found else name] = list(grid)
    return found


def steps_of(reader: TimeSeriesReader, name: str) -> Iterator[Step]:
    """Read the steps of one collection of an XDMF file."""
    steps = collections_of(reader)[name]
    for number in range(len(steps)):
        reader.collection = steps
        yield reader.read_data(number)


def times_of(path: Path, collections: Mapping[str, Iterable[Step]]) -> tuple[float, ...]:
    """Return the times of collections, which all of them have.

    Raises:
        ReadError: They have other times, none, or fields of the same name.
    """
    times: dict[str, list[float]] = {}
    names: dict[str, str] = {}  # of the collections, by those of their fields
    for label, steps in collections.items():
        times[label] = []
        for time, on_points, on_cells in steps:
            times[label].append(time)
            for name in (*on_points, *on_cells):
                if names.setdefault(name, label) != label:
                    raise ReadError(
                        f"{path}: expected fields of names of their own but the collections {names[name]} and {label} "
                        f"both have {name!r}: rename one, or write a file for each"
                    )
    (first, lead), *others = times.items()
    if not lead:
        raise ReadError(f"{path}: expected steps but the collection {first} has none")
    for label, each in others:
        if each != lead:
            raise ReadError(
                f"{path}: expected collections of the same times but {first} has {span(lead)} and {label} "
                f"{span(each)}: write all fields at the same times, or a file for each"
            )
    return tuple(lead)


def span(times: Sequence[float]) -> str:
    """Return the number of some times, the first and the last of them."""
    return f"{len(times)} from {times[0]:g} to {times[-1]:g}" if times else "none"


def of_files(files: tuple[Path, ...], times: tuple[float, ...]) -> Series:
    """Return a series with a file for each step."""
    return Series(files, times, lambda: map(read_mesh, files))


def listed(path: Path) -> tuple[tuple[Path, ...], tuple[float, ...]]:
    """Return the files of a list of ParaView or OpenFOAM, and their times, in order of time.

    Raises:
        ReadError: It lists no files, several for one time, or one that is not below its folder.
    """
    found: dict[float, Path] = {}
    for name, said in entries_of(path):
        time = float(said or len(found))
        file = path.parent / name
        if not name or not file.resolve().is_relative_to(path.resolve().parent) or file.is_symlink():
            raise ReadError(f"{path}: expected mesh files beside it or in folders below but it lists {name!r}")
        if not file.is_file():
            raise ReadError(f"{path}: it lists {name!r}, and there is no such file")
        if time in found:
            raise ReadError(
                f"{path}: expected one mesh for each time but it lists {found[time].name} and {file.name} at {time:g}: "
                "join the parts of a mesh in one file"
            )
        found[time] = file
    if not found:
        raise ReadError(f"{path}: expected a list of meshes, one for each time, but it lists none")
    times = sorted(found)
    return tuple(found[time] for time in times), tuple(times)


def check_times(path: Path, times: tuple[float, ...]) -> None:
    """Refuse steps that are not equally long, or unknown: one network makes all of them."""
    if not np.isfinite(times).all():
        raise ReadError(f"{path}: expected the time of every step, or of none, but one is no finite number")
    apart = np.diff(times)
    if len(apart) and apart.max() - apart.min() > UNEVEN * apart.mean():
        usual = float(np.median(apart))
        at = int(np.abs(apart - usual).argmax())
        raise ReadError(
            f"{path}: expected steps of equal length but step {at + 1} takes {apart[at]:g} and most take {usual:g}: "
            "leave out the frames between, or interpolate in time"
        )


def loaded(path: Path, stamp: Stamp) -> Arrays:
    """Return the fields `[time, point, (component)]` of a series by name, whose files have the stamp."""
    return RECENT.get((path, stamp), partial(read_steps, path))


def read_steps(path: Path) -> dict[str, NDArray[Any]]:
    """Read the fields `[time, point, (component)]` of a series.

    Raises:
        ReadError: The points of a step are others than those of the first one, or it lacks a field.
    """
    with damage_named(path, "a series of meshes"):
        points: NDArray[Any] | None = None
        steps: list[dict[str, NDArray[Any]]] = []
        for step, mesh in enumerate(series_of(path).meshes()):
            if points is None:
                points = np.asarray(mesh.points)
            if np.shape(mesh.points) != points.shape:
                raise ReadError(
                    f"{path}: step {step} has {len(mesh.points)} points and the first one {len(points)}: expected one "
                    "mesh in all steps; interpolate the fields to that of the first step"
                )
            moved = (np.asarray(mesh.points) != points).any(axis=1)
            if moved.any():
                raise ReadError(
                    f"{path}: the points move, point {int(moved.argmax())} at step {step} first: expected points that "
                    "stay where they are; save displacements from them as a field"
                )
            plane = mesh
            steps.append(whole_fields_of(mesh, np.asarray(points, np.float64)))
            if missing := steps[0].keys() - steps[-1].keys():
                raise ReadError(f"{path}: expected {min(missing)!r} in every step but step {step} has none")
        return {name: narrowed(in_plane(plane, np.stack([each[name] for each in steps])), 2) for name in steps[0]}
