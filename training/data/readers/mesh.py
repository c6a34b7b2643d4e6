"""Mesh files, one sample each: VTU, VTK, VTP, MSH, XDMF, INP, Exodus and whatever else `meshio` reads.

The nodes are the sample's points, `coordinates` `[1, point, dimension]`; a coordinate that is the same for all of them
is left out. Point data are fields by their names, and cell data too, as the mean of the cells at each node. Of cell
data that are few whole numbers, such as regions and materials, the field `material=2` is the share of the cells at each
node that have the number 2: 0 where a mesh has no such cells. Whole numbers that number the points or the cells are
left out, and single numbers of the file, its field data, are those of the sample. Where the cells are known, two fields
follow from them: `boundary`, 1 on nodes of facets that belong to one cell, 0 elsewhere, and `distance` to the nearest
of these nodes; and `area`, weights of the nodes: the area (in space the volume) of the cells around each, which a
cell's nodes share equally. A problem file may name `boundary_normal`, too: vectors out of the domain at nodes on the
boundary, as long as the part of it that each stands for, and 0 inside. Values are float32 where that loses no digits of
what varies. They are read when they are needed: memory holds those of the files that were read last (`recent.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import meshio
import numpy as np
from numpy.typing import NDArray

from physics.numerics.cell_types import UnknownCellsError, normals, sizes
from physics.numerics.cells import boundary, distance, seams
from schema.card import AREA, BOUNDARY, COORDINATES, DISTANCE, NORMAL
from training.data.readers import exodus, polydata
from training.data.readers.data_file import DataFile, LazyArray, ReadError, damage_named
from training.data.readers.formats import named_in
from training.data.readers.guards import guarded, read_any
from training.data.readers.mesh_cells import (
    at_nodes,
    is_polyhedra,
    joined_nodes,
    known_cells,
    numberings,
    regions,
    without_loose_points,
)
from training.data.readers.recent import RECENT, Recent, reread, stamp_of

SPACE = ("x", "y", "z")
TIMES = {"timevalue", "time", "cycle"}  # names of numbers that say when a mesh was saved
SAVED_AT = "it says when the mesh was saved: if outputs depend on it, write a table of parameters with this key"
RESOLVED = 100  # values of this size in units of their variation have five digits of it in float32
ROUNDING = 1e-12  # nodes that are less apart, in units of the largest coordinate, are one that was computed twice
SEAMS = "facets that lie on each other"  # among what follows from the cells of a mesh, which no array is called
FOLLOWING = Recent(0)
"""What follows from the cells of the last mesh: samples on one mesh with other fields share it."""


@contextmanager
def open_mesh(path: Path) -> Iterator[DataFile]:
    """Open a mesh file, which is one sample."""
    stamp = stamp_of(path, *named_in(path))
    try:
        yield reread(whole_mesh(path), stamp, stamp, partial(whole_mesh, path))
    finally:
        RECENT.forget(stamp)


def whole_mesh(path: Path) -> DataFile:
    """Return a mesh file with its arrays in memory."""
    with damage_named(path, "a mesh file"):
        mesh = read_mesh(path)
        points = np.asarray(mesh.points, dtype=np.float64)
        if not len(points):
            raise ReadError(f"{path}: expected points but the mesh has none")
        if not np.isfinite(points).all():
            raise ReadError(f"{path}: expected finite coordinates but those of point {first_bad(points)} are not")
        return described(path, mesh, points)


def read_mesh(path: Path) -> meshio.Mesh:
    """Read a mesh file, without points that no cell has.

    Raises:
        ReadError: It is none.
    """
    with damage_named(path, "a mesh file"), guarded(path):
        if path.suffix.lower() in exodus.SUFFIXES:
            return without_loose_points(next(exodus_meshes(path)))
        read = polydata.read_polydata if path.suffix.lower() == polydata.SUFFIX else read_any
        return without_loose_points(read(path))


def exodus_meshes(path: Path) -> Iterator[meshio.Mesh]:
    """Read the meshes of the steps of an Exodus file, one after the other.

    Raises:
        ReadError: It is none.
    """
    with damage_named(path, "an Exodus file"):
        yield from exodus.meshes_of(path)


def described(path: Path, mesh: meshio.Mesh, points: NDArray[np.float64]) -> DataFile:
    """Describe a mesh as one sample."""
    arrays, unknown = sample(mesh, points)
    found = {name: regions(mesh, blocks, len(points)) for name, blocks in mesh.cell_data.items()}
    found = {name: each for name, each in found.items() if each and name not in mesh.point_data}
    counted = numberings(mesh)
    named = {*found, *counted} | ({NORMAL} - {*mesh.point_data, *mesh.cell_data})
    means = {name: arrays.pop(name) for name in named if name in arrays}  # which problem files may name, too
    arrays |= {f"{name}={value}": share for name, each in found.items() for value, share in each.items()}
    kinds = {name: np.asarray(blocks[0]).dtype for name, blocks in mesh.cell_data.items()}
    kinds |= {name: np.asarray(values).dtype for name, values in mesh.point_data.items()}
    left_out = {name: f"it holds {dtype}" for name, dtype in kinds.items() if name not in {*arrays, *found, *means}}
    numbers = {name: np.ravel(each) for name, each in (mesh.field_data or {}).items() if name not in arrays}
    left_out |= {name: f"it holds {each.dtype}" for name, each in numbers.items() if each.dtype.kind not in "fiub"}
    several = {name: each.size for name, each in numbers.items() if each.size > 1 and not is_group(each)}
    left_out |= {
        name: f"it has {count} values of the whole file: save them as numbers" for name, count in several.items()
    }
    numbers = {name: each for name, each in numbers.items() if each.shape == (1,) and each.dtype.kind in "fiub"}
    left_out |= counted | {name: SAVED_AT for name in numbers if name.lower() in TIMES}
    left_out |= (mesh.info or {}).get("left_out", {})  # of PolyData of several pieces, and Exodus
    remarks: tuple[str, ...] = (
        (f"boundary, distance and {AREA} do not follow from the cells: {unknown}",) if unknown else ()
    )
    if count := int(arrays.pop(SEAMS, 0)):
        said = (
            f"{count} facets lie on others that they share no nodes with, and count as boundary, as those of a crack do"
        )
        remarks += (f"{said}: join the parts of one domain before, as Clean to Grid of ParaView does",)
    if (in_cells := (mesh.info or {}).get("in_cells")) is not None:
        remarks += (f"{(~in_cells).sum()} of {len(in_cells)} points are in no cell, and left out",)
    places = narrowed_points(arrays.pop(COORDINATES))
    held = {COORDINATES: LazyArray.of(COORDINATES, places[None])}
    held |= {name: LazyArray.of(name, narrowed(values)[None]) for name, values in arrays.items()}
    held |= {name: LazyArray.of(name, each, setting=True) for name, each in numbers.items() if name not in left_out}
    parts = {name: LazyArray.of(name, narrowed(values)[None]) for name, values in means.items()}
    parts |= {name: LazyArray.of(name, each) for name, each in numbers.items() if name in left_out}
    known = {name: frozenset(each) for name, each in found.items()}
    across = across_plane(mesh)
    along = {} if across is None else {SPACE[across]: np.array(mesh.points[:1, across], np.float64)}
    if any(along.values()):
        remarks += (
            f"its points have {', '.join(f'{axis} = {one[0]:g}' for axis, one in along.items())}, which is left out",
        )
    stored = {name: np.asarray(blocks[0]) for name, blocks in mesh.cell_data.items()} | dict(mesh.point_data)
    flat = {name: across for name in held if across is not None and is_flattened(held[name], stored.get(name))}
    return DataFile(
        path,
        "mesh",
        held,
        remarks=remarks,
        samples="one file per sample",
        left_out=left_out,
        parts=parts,
        regions=known,
        in_cells=in_cells,
        coordinates=along,
        flat=flat,
    )


def is_group(values: NDArray[Any]) -> bool:
    """Return whether field data are the number and the dimension of a physical group of Gmsh."""
    return values.shape == (2,) and values.dtype.kind in "iu"


def is_flattened(one: LazyArray, stored: Any) -> bool:
    """Return whether an array `[sample, point, component]` is a vector of a mesh file without one of its components."""
    return stored is not None and one.shape[2:] == (2,) and np.shape(stored)[1:] == (3,)


def across_plane(mesh: meshio.Mesh) -> int | None:
    """Return the number of the coordinate that is the same for all points of a plane mesh; None of others."""
    still = np.flatnonzero(np.ptp(np.asarray(mesh.points), axis=0) == 0)
    return int(still[0]) if np.shape(mesh.points)[1] == 3 and len(still) == 1 else None


def narrowed(values: NDArray[Any], leading: int = 1) -> NDArray[Any]:
    """Return values as float32 unless most digits of what varies would be lost, as those of a pressure of 101325 Pa.

    Every component counts by itself: those of coordinates have unlike offsets, and one hides the loss of another.

    Args:
        values: Values `[point, (component)]`, or with frames before the points.
        leading: The number of axes before that of the components.
    """
    narrow, over = np.ascontiguousarray(values, np.float32), tuple(range(leading))
    if not values.size or np.can_cast(values.dtype, np.float32):
        return narrow
    varying = np.subtract(values.max(axis=over), values.min(axis=over), dtype=np.float64)
    return narrow if (np.abs(narrow).max(axis=over) <= RESOLVED * varying).all() else values


def narrowed_points(points: NDArray[np.float64]) -> NDArray[Any]:
    """Return coordinates as float32 unless digits would be lost, or points would be one that are apart.

    Nodes at one place that every cell computes for itself differ by their rounding, and are one in float32.
    """
    narrow = narrowed(points)
    order = np.lexsort(narrow.T)
    same = ~np.diff(narrow[order], axis=0).any(axis=1)
    apart = np.abs(np.diff(points[order], axis=0))[same]
    return points if (apart > ROUNDING * np.abs(points).max(initial=0.0)).any() else narrow


def first_bad(points: NDArray[np.float64]) -> int:
    """Return the number of the first point that is not finite."""
    return int((~np.isfinite(points)).any(axis=1).argmax())


def sample(mesh: meshio.Mesh, points: NDArray[np.float64]) -> tuple[dict[str, NDArray[Any]], str]:
    """Return the coordinates and all fields `[point]` or `[point, component]` of a mesh, by name.

    The text says why `boundary`, `distance` and `area` are not among them; it is empty where they are.
    """
    if (across := across_plane(mesh)) is not None:
        points = np.delete(points, across, axis=1)
    found: dict[str, NDArray[Any]] = {COORDINATES: points}
    unknown = ""
    try:
        found |= FOLLOWING.get(digest(mesh, points), partial(following, mesh, points))
    except UnknownCellsError as error:
        unknown = str(error)
    return found | fields_of(mesh, points), unknown


def following(mesh: meshio.Mesh, points: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Return what follows from points and cells alone, which files of one mesh with other fields have in common.

    Raises:
        UnknownCellsError: It does not follow from these cells.
    """
    shared, to, several = joined_nodes(mesh, points)
    cells = known_cells(shared, points)
    once = boundary(cells, points)
    marked, out = once[to], normals(cells, points, once)[to]
    area = sizes(known_cells(mesh, points), points)
    found = {BOUNDARY: marked.astype(np.float64), DISTANCE: distance(points, marked), AREA: area, NORMAL: out}
    made = {name: narrowed(values) for name, values in found.items()}
    return made | {SEAMS: np.array(seams(cells, points) if several else 0)}


def digest(mesh: meshio.Mesh, points: NDArray[np.float64]) -> str:
    """Return what tells points and cells from those of other meshes."""
    found = hashlib.sha256(np.ascontiguousarray(points).data)
    for block in mesh.cells:
        faces = [face for cell in block.data for face in cell] if is_polyhedra(block) else [block.data]
        sizes_of_cells = [len(cell) for cell in block.data] if is_polyhedra(block) else []
        found.update(f"{block.type} {sizes_of_cells} {[np.shape(face) for face in faces]}".encode())
        for face in faces:
            found.update(np.ascontiguousarray(face, np.int64).data)
    return found.hexdigest()


def fields_of(mesh: meshio.Mesh, points: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Return point data, and means of cell data at the nodes, `[point]` or `[point, component]`, by name."""
    return {name: in_plane(mesh, values) for name, values in whole_fields_of(mesh, points).items()}


def in_plane(mesh: meshio.Mesh, values: NDArray[Any]) -> NDArray[Any]:
    """Return vectors `[…, point, 3]` that are all in the plane of a plane mesh with two components, others as they are.

    Mesh files give every vector three.
    """
    across = across_plane(mesh)
    if across is None or values.ndim < 2 or values.shape[-1] != 3 or values[..., across].any():
        return values
    return np.delete(values, across, axis=-1)


def whole_fields_of(mesh: meshio.Mesh, points: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Return what `fields_of` does with all components of vectors."""
    found = {}
    data = {name: np.asarray(values) for name, values in mesh.point_data.items()}
    for name, blocks in mesh.cell_data.items():
        if all(np.asarray(block).dtype.kind in "fiub" for block in blocks):
            data.setdefault(name, at_nodes(mesh, blocks, len(points)))
    for name, values in data.items():
        if values.dtype.kind not in "fiub" or name == COORDINATES:
            continue
        flat = values.reshape(len(points), -1)
        found[name] = flat[:, 0] if flat.shape[1] == 1 else flat
    return found
