"""Mesh files, one sample each: VTU, VTK, MSH, XDMF, INP, Exodus and whatever else `meshio` reads.

The nodes are the sample's points, `coordinates` `[1, point, dimension]`; a coordinate that is the same for all of them
is left out. Point data are fields by their names, and cell data too, as the mean of the cells at each node. Where the
cells are known, two fields follow from them: `boundary`, 1 on nodes of facets that belong to one cell, 0 elsewhere, and
`distance` to the nearest of these nodes; and `area`, weights of the nodes: the area (in space the volume) of the cells
around each, which a cell's nodes share equally. The arrays are held in memory, as float32 where that loses no digits of
what varies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import meshio
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from training.data.readers.data_file import DataFile, LazyArray, ReadError, damage_named
from training.data.readers.mesh_guard import guarded

FACETS = {
    "triangle": ((0, 1), (1, 2), (2, 0)),
    "triangle6": ((0, 1, 3), (1, 2, 4), (2, 0, 5)),
    "quad": ((0, 1), (1, 2), (2, 3), (3, 0)),
    "quad8": ((0, 1, 4), (1, 2, 5), (2, 3, 6), (3, 0, 7)),
    "quad9": ((0, 1, 4), (1, 2, 5), (2, 3, 6), (3, 0, 7)),
    "tetra": ((0, 1, 2), (0, 1, 3), (1, 2, 3), (0, 2, 3)),
    "tetra10": ((0, 1, 2, 4, 5, 6), (0, 1, 3, 4, 8, 7), (1, 2, 3, 5, 9, 8), (0, 2, 3, 6, 9, 7)),
    "hexahedron": ((0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7)),
}
"""The nodes of the facets of a cell, in meshio's order."""
AREA = "area"
RESOLVED = 100  # values of this size in units of their variation have five digits of it in float32
CORNERS = {"triangle": 3, "triangle6": 3, "quad": 4, "quad8": 4, "quad9": 4, "tetra": 4, "tetra10": 4, "hexahedron": 8}
PLANE = frozenset({"triangle", "triangle6", "quad", "quad8", "quad9"})


@contextmanager
def open_mesh(path: Path) -> Iterator[DataFile]:
    """Open a mesh file, which is one sample."""
    with damage_named(path, "a mesh file"):
        try:
            with guarded(path):
                mesh = meshio.read(path)
        except (meshio.ReadError, SystemExit, AssertionError) as error:  # meshio ends the program for some files
            raise ReadError(f"{path}: expected a mesh file but meshio cannot read it ({error})") from error
        points = np.asarray(mesh.points, dtype=np.float64)
        if not len(points):
            raise ReadError(f"{path}: expected points but the mesh has none")
        if not np.isfinite(points).all():
            raise ReadError(f"{path}: expected finite coordinates but those of point {first_bad(points)} are not")
        arrays = sample(mesh, points)
        kinds = {name: np.asarray(blocks[0]).dtype for name, blocks in mesh.cell_data.items()}
        kinds |= {name: np.asarray(values).dtype for name, values in mesh.point_data.items()}
    left_out = {name: f"it holds {dtype}" for name, dtype in kinds.items() if name not in arrays}
    remarks = () if "boundary" in arrays else ("the boundary is not known: there are no cells, or of other types",)
    held = {name: LazyArray.of(name, narrowed(values)[None]) for name, values in arrays.items()}
    yield DataFile(path, "mesh", held, remarks=remarks, samples="one file per sample", left_out=left_out)


def narrowed(values: NDArray[Any]) -> NDArray[Any]:
    """Return values as float32 unless most digits of what varies would be lost, as those of a pressure of 101325 Pa."""
    narrow = np.ascontiguousarray(values, np.float32)
    resolved = np.abs(narrow).max(initial=0.0) < RESOLVED * np.ptp(values) if values.size else True
    return narrow if resolved or np.can_cast(values.dtype, np.float32) else values


def first_bad(points: NDArray[np.float64]) -> int:
    """Return the number of the first point that is not finite."""
    return int((~np.isfinite(points)).any(axis=1).argmax())


def sample(mesh: meshio.Mesh, points: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Return the coordinates and all fields `[point]` or `[point, component]` of a mesh, by name."""
    varying = np.ptp(points, axis=0) > 0
    if varying.sum() == 2:  # as the third coordinate of a plane mesh
        points = points[:, varying]
    found: dict[str, NDArray[Any]] = {"coordinates": points}
    marked = boundary(mesh, len(points), flat=points.shape[1] == 2)
    if marked is not None:
        nearest, _ = cKDTree(points[marked]).query(points)
        found |= {"boundary": marked.astype(np.float64), "distance": np.asarray(nearest), AREA: areas(mesh, points)}
    data = {name: np.asarray(values) for name, values in mesh.point_data.items()}
    for name, blocks in mesh.cell_data.items():
        if all(np.asarray(block).dtype.kind in "fiub" for block in blocks):
            data.setdefault(name, at_nodes(mesh, blocks, len(points)))
    for name, values in data.items():
        if values.dtype.kind not in "fiub" or name == "coordinates":
            continue
        flat = values.reshape(len(points), -1)
        if points.shape[1] == 2 and flat.shape[1] == 3 and not flat[:, ~varying].any():
            flat = flat[:, varying]  # mesh files give every vector three components
        found[name] = flat[:, 0] if flat.shape[1] == 1 else flat
    return found


def boundary(mesh: meshio.Mesh, count: int, *, flat: bool) -> NDArray[np.bool_] | None:
    """Return which nodes lie on facets of one cell alone; None where no cell's facets are known."""
    facets: list[NDArray[np.int64]] = []
    for block in mesh.cells:
        if block.type in FACETS and (block.type in PLANE) == flat:
            facets += [np.asarray(block.data)[:, nodes] for nodes in FACETS[block.type]]
    owners = Counter(tuple(sorted(facet)) for each in facets for facet in each.tolist())
    alone = [node for facet, cells in owners.items() if cells == 1 for node in facet]
    if not alone:
        return None
    marked = np.zeros(count, dtype=np.bool_)
    marked[alone] = True
    return marked


def areas(mesh: meshio.Mesh, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the area, in space the volume, of the cells around each node; sides of cells are taken as straight."""
    found, flat = np.zeros(len(points)), points.shape[1] == 2
    for block in mesh.cells:
        if block.type not in FACETS or (block.type in PLANE) != flat:
            continue
        nodes = np.asarray(block.data)
        middle = points[nodes[:, : CORNERS[block.type]]].mean(axis=1)
        size = np.zeros(len(nodes))
        for facet in FACETS[block.type]:  # triangles or tetrahedra between the middle and the facets
            corners = [points[nodes[:, each]] - middle for each in facet[: (2 if flat else 4)]]
            fans = [corners] if flat or len(facet) in {3, 6} else [corners[:3], [corners[0], *corners[2:]]]
            for fan in fans:
                edges = np.stack(fan[: points.shape[1]], axis=1)
                size += np.abs(np.linalg.det(edges)) / (2 if flat else 6)
        np.add.at(found, nodes, size[:, None] / nodes.shape[1])
    return found


def at_nodes(mesh: meshio.Mesh, blocks: list[Any], count: int) -> NDArray[np.float64]:
    """Return cell data `[cell, (component)]` per block as the mean of the cells at each node, 0 at nodes without."""
    width = int(np.prod(np.shape(blocks[0])[1:]))
    total, cells = np.zeros((count, width)), np.zeros((count, 1))
    for block, values in zip(mesh.cells, blocks, strict=True):
        nodes = np.asarray(block.data)
        spread = np.repeat(np.asarray(values, dtype=np.float64).reshape(len(nodes), 1, width), nodes.shape[1], axis=1)
        np.add.at(total, nodes.ravel(), spread.reshape(-1, width))
        np.add.at(cells, nodes.ravel(), 1)
    return total / np.maximum(cells, 1)
