"""The points on the boundary of a mesh, which follow from all of its cells together, and distances to them.

Types of cells have meshio's names and VTK's numbers. What follows is what a training on mesh files derives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from petrov_client._cell_types import KINDS, ON_EDGE, Cells, Kind, flat_cell, out_of_order, polygon, without_halves
from petrov_client._errors import InvalidInput, Where
from petrov_client._schema import BOUNDARY, DISTANCE

Array = npt.NDArray[Any]
#: VTK's numbers of the types of cells, by dimensions of space and meshio's name.
NUMBERS: Mapping[int, Mapping[str, int]] = {
    2: {"triangle": 5, "triangle6": 22, "quad": 9, "quad8": 23, "quad9": 28},
    3: {
        "tetra": 10,
        "tetra10": 24,
        "pyramid": 14,
        "pyramid13": 27,
        "pyramid14": -1,  # VTK has none
        "wedge": 13,
        "wedge15": 26,
        "wedge18": 32,
        "hexahedron": 12,
        "hexahedron20": 25,
        "hexahedron27": 29,
    },
}
#: The types of cells by dimensions of space, then by meshio's name and by VTK's number.
KNOWN: Mapping[int, Mapping[str | int, Kind]] = {
    dimensions: {key: KINDS[name] for name, number in numbers.items() for key in (name, number)}
    for dimensions, numbers in NUMBERS.items()
}
#: VTK's numbers of cells on a plane, on a line, and of points; those of all others are of cells in space.
PLANE, LINE, POINT = {5, 6, 7, 8, 9, 22, 23, 28, 30, 34, 36, 61, 62, 63, 69, 70}, {3, 4, 21, 35, 60, 68}, {0, 1, 2}
POLYGON = "polygon"  # how meshio calls those of one number of corners
MOST_NODES = 9  # of a facet
EDGES = 256  # that are compared with nodes at a time
#: Numbers of a table of distances in memory.
TABLE = 2**22


def on_boundary(mesh: Any, points: Array) -> npt.NDArray[np.bool_]:
    """Return which points lie on facets that belong to one cell alone.

    Raises:
        InvalidInput: There are no cells of the mesh's own dimension, or some of an unknown type, or of
            two sizes beside each other.
    """
    kinds, place = joined(mesh, points)
    found = marked(kinds, points, Where(BOUNDARY))[place]
    every = np.concatenate([nodes.ravel() for _, nodes in cells_of(mesh, points.shape[1])])
    check_every_point(every, len(points), Where(BOUNDARY))
    return found


def joined(mesh: Any, points: Array) -> tuple[list[tuple[Kind, Array]], Array]:
    """Return cells that share nodes, where each has its own (discontinuous elements), and the node of every point."""
    known = cells_of(mesh, points.shape[1])
    every = np.concatenate([nodes.ravel() for _, nodes in known])
    _, first, to = np.unique(points, axis=0, return_index=True, return_inverse=True)
    place = first[to.ravel()] if len(np.unique(every)) == len(every) else np.arange(len(points))
    return [(kind, place[nodes]) for kind, nodes in known], place


def check_every_point(nodes: Array, count: int, where: Where) -> None:
    """Refuse points that no cell has: a training on mesh files leaves them out."""
    alone = np.ones(count, np.bool_)
    alone[nodes] = False
    if alone.any():
        detail = f"point {int(alone.argmax())} is in no cell: expected cells of all {count} points"
        raise InvalidInput(f"{detail}; `remove_orphaned_nodes` of meshio takes such points away", where=where)


def cells_of(mesh: Any, dimensions: int) -> list[tuple[Kind, Array]]:
    """Return the cells of a mesh of its own dimension by their types, polygons by their numbers of corners, too."""
    known = KNOWN[dimensions]
    blocks = getattr(mesh, "cells", None)
    if isinstance(blocks, list):
        every = [(block.type, block.data) for block in blocks]
    else:
        every = [*getattr(mesh, "cells_dict", {}).items()]
    own = [(kind, nodes) for kind, nodes in every if _dimension(kind) >= dimensions]
    names = [*(kind for kind in known if isinstance(kind, str)), *[POLYGON] * (dimensions == 2)]
    strange = {kind for kind, _ in own} - {*known, *names}
    if not own or strange:
        seen = ", ".join(sorted(map(str, strange))) or "none"
        raise InvalidInput(
            f"expected cells of the types {', '.join(names)}, which the boundary follows from, or `{BOUNDARY}` and "
            f"`{DISTANCE}` as point data, but got {seen}",
            where=Where(BOUNDARY),
        )
    parts: dict[Kind, list[Array]] = {}
    for name, each in own:
        nodes = np.asarray(each)
        parts.setdefault(polygon(nodes.shape[1]) if name == POLYGON else known[name], []).append(nodes)
    return [(kind, np.concatenate(each)) for kind, each in parts.items()]


def marked(kinds: list[tuple[Kind, Array]], points: Array, where: Where) -> npt.NDArray[np.bool_]:
    """Return which points lie on facets that belong to one cell alone."""
    instead = f"so the boundary does not follow from the cells: expected `{BOUNDARY}` and `{DISTANCE}` as point data"
    if wrong_order := out_of_order(Cells(kinds), points):
        raise InvalidInput(f"{wrong_order}; {instead}", where=where)
    facets: dict[int, list[tuple[Array, Array]]] = {}  # corners and all nodes, by the number of corners
    for kind, cells in kinds:
        ordered = np.sort(cells, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if twice.any() or len(np.unique(ordered, axis=0)) < len(cells):
            fault = f"cell {int(twice.argmax())} has a node twice" if twice.any() else "two cells have the same nodes"
            raise InvalidInput(f"{fault}, {instead}", where=where)
        for corners, members in zip(kind.facets, kind.nodes, strict=True):
            padded = (*members, *members[-1:] * (MOST_NODES - len(members)))
            facets.setdefault(len(corners), []).append((cells[:, corners], cells[:, padded]))
    alone = {size: _once(parts, instead, where) for size, parts in facets.items()}
    if 3 in alone and 4 in alone:
        alone = without_halves(alone)
    if not any(len(corners) for corners, _ in alone.values()):
        raise InvalidInput(f"no cell has a facet of its own, {instead}", where=where)
    if flat := flat_cell(Cells(kinds), points, alone):
        raise InvalidInput(f"{flat}; {instead}", where=where)
    if (node := _hanging(points, [corners for corners, _ in alone.values()])) is not None:
        raise InvalidInput(f"node {node} hangs on an edge of another cell, {instead}", where=where)
    found = np.zeros(len(points), dtype=np.bool_)
    for _, nodes in alone.values():
        found[nodes] = True
    return found


def _dimension(kind: str | int) -> int:
    """Return the dimension of a type of cell, by meshio's name or VTK's number."""
    if not isinstance(kind, str):
        return next((number for number, kinds in enumerate((POINT, LINE, PLANE)) if kind in kinds), 3)
    shapes = ("vertex", "line|vtk_lagrange_curve", "triangle|quad|polygon|pixel|vtk_lagrange_(tri|quad)")
    return next((number for number, shape in enumerate(shapes) if re.match(shape, kind.lower())), 3)


def _once(parts: list[tuple[Array, Array]], instead: str, where: Where) -> tuple[Array, Array]:
    """Return corners and nodes of the facets that belong to one cell."""
    corners, nodes = (np.concatenate(each) for each in zip(*parts, strict=True))
    _, index, shared = np.unique(np.sort(corners, axis=1), axis=0, return_index=True, return_counts=True)
    if shared.max(initial=0) > 2:
        raise InvalidInput(f"three cells share a facet, {instead}", where=where)
    return corners[index[shared == 1]], nodes[index[shared == 1]]


def _hanging(points: Array, facets: list[Array]) -> int | None:
    """Return a corner of facets that lies on an edge of another one, if there is any."""
    ends = [np.stack([each, np.roll(each, 1, axis=1)], axis=-1).reshape(-1, 2) for each in facets]
    edges = np.unique(np.sort(np.concatenate(ends), axis=1), axis=0)
    nodes = np.unique(edges)
    nodes = nodes[np.argsort(points[nodes, 0])]  # along the first axis, so that few are compared with an edge
    edges = edges[np.argsort(points[edges, 0].min(axis=1))]
    positions, reach = points[nodes, 0], 2 * ON_EDGE * np.ptp(points[:, 0])
    for some in np.array_split(edges, -(-len(edges) // EDGES)):
        start = np.searchsorted(positions, points[some, 0].min() - reach)
        near = nodes[start : np.searchsorted(positions, points[some, 0].max() + reach)]
        first, along = points[some[:, :1]], points[some[:, 1:]] - points[some[:, :1]]
        apart = points[near] - first  # [edge, node, dimension]
        squares = np.maximum(np.square(along).sum(axis=2), np.finfo(np.float64).tiny)
        share = (apart * along).sum(axis=2) / squares
        off = np.square(apart - share[..., np.newaxis] * along).sum(axis=2)
        hanging = (off < ON_EDGE**2 * squares) & (share > ON_EDGE) & (share < 1 - ON_EDGE)
        if hanging.any():
            return int(near[hanging.any(axis=0).argmax()])
    return None


def distance(points: Array, edge: npt.NDArray[np.bool_]) -> Array:
    """Return the distance of all points `[point, dimension]` to the nearest of those on the edge."""
    targets = points[edge]
    rows = max(1, TABLE // max(1, targets.size))
    parts = (points[start : start + rows, None] - targets for start in range(0, len(points), rows))
    squares = [np.square(apart).sum(axis=2).min(axis=1) for apart in parts]
    return np.asarray(np.sqrt(np.concatenate(squares)))
