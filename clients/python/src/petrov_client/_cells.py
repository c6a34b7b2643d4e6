"""Cells of meshes and what follows from their facets: the boundary, distances to it, normals, and sizes.

Types of cells have meshio's names and VTK's numbers. What follows is what a training on mesh files derives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from petrov_client._errors import InvalidInput, Where

Array = npt.NDArray[Any]
BOUNDARY, DISTANCE, AREA, NORMAL = "boundary", "distance", "area", "boundary_normal"
Nodes = tuple[tuple[int, ...], ...]
#: The corners of the facets of a cell, and all nodes on each of them.
Facets = tuple[Nodes, Nodes]


def linear(facets: Nodes) -> Facets:
    return facets, facets


def _quadratic(facets: Nodes, edges: Nodes, middles: tuple[int, ...] = ()) -> Facets:
    """Return the facets of a cell with nodes in the middles of its edges, and then of the facets `middles`."""
    first = 1 + max(node for facet in facets for node in facet)
    nodes = [
        (*facet, *(first + number for number, edge in enumerate(edges) if {*edge} <= {*facet})) for facet in facets
    ]
    for number, facet in enumerate(middles, start=first + len(edges)):
        nodes[facet] = (*nodes[facet], number)
    return facets, tuple(nodes)


TRIANGLE: Nodes = ((0, 1), (1, 2), (2, 0))
QUAD: Nodes = ((0, 1), (1, 2), (2, 3), (3, 0))
TETRA: Nodes = ((0, 1, 2), (0, 1, 3), (1, 2, 3), (0, 2, 3))
PYRAMID: Nodes = ((0, 1, 2, 3), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4))
WEDGE: Nodes = ((0, 1, 2), (3, 4, 5), (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5))
HEXAHEDRON: Nodes = ((0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7))
#: The ends of the edges in whose middles quadratic cells have nodes, in order.
TETRA_EDGES: Nodes = (*TRIANGLE, (0, 3), (1, 3), (2, 3))
PYRAMID_EDGES: Nodes = (*QUAD, (0, 4), (1, 4), (2, 4), (3, 4))
WEDGE_EDGES: Nodes = (*TRIANGLE, (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5))
HEXAHEDRON_EDGES: Nodes = (*QUAD, (4, 5), (5, 6), (6, 7), (7, 4), (0, 4), (1, 5), (2, 6), (3, 7))
#: By dimensions of space, then by meshio's name of a type of cell and VTK's number of it.
KINDS: Mapping[int, Mapping[tuple[str, int], Facets]] = {
    2: {
        ("triangle", 5): linear(TRIANGLE),
        ("triangle6", 22): _quadratic(TRIANGLE, TRIANGLE),
        ("quad", 9): linear(QUAD),
        ("quad8", 23): _quadratic(QUAD, QUAD),
        ("quad9", 28): _quadratic(QUAD, QUAD),  # with a node inside
    },
    3: {
        ("tetra", 10): linear(TETRA),
        ("tetra10", 24): _quadratic(TETRA, TETRA_EDGES),
        ("pyramid", 14): linear(PYRAMID),
        ("pyramid13", 27): _quadratic(PYRAMID, PYRAMID_EDGES),
        ("pyramid14", -1): _quadratic(PYRAMID, PYRAMID_EDGES, (0,)),  # VTK has none
        ("wedge", 13): linear(WEDGE),
        ("wedge15", 26): _quadratic(WEDGE, WEDGE_EDGES),
        ("wedge18", 32): _quadratic(WEDGE, WEDGE_EDGES, (2, 3, 4)),
        ("hexahedron", 12): linear(HEXAHEDRON),
        ("hexahedron20", 25): _quadratic(HEXAHEDRON, HEXAHEDRON_EDGES),
        ("hexahedron27", 29): _quadratic(HEXAHEDRON, HEXAHEDRON_EDGES, (5, 3, 2, 4, 0, 1)),  # with a node inside
    },
}
FACETS: Mapping[int, Mapping[str | int, Facets]] = {
    dimensions: {key: facets for keys, facets in kinds.items() for key in keys} for dimensions, kinds in KINDS.items()
}
#: The types of cells in space by their number of nodes, where a caller passes no more than that.
SOLIDS = {4: "tetra", 5: "pyramid", 6: "wedge", 8: "hexahedron", 10: "tetra10"}
#: VTK's numbers of cells on a plane, on a line, and of points; those of all others are of cells in space.
PLANE, LINE, POINT = {5, 6, 7, 8, 9, 22, 23, 28, 30, 34, 36, 61, 62, 63, 69, 70}, {3, 4, 21, 35, 60, 68}, {0, 1, 2}
MOST_NODES = 9  # of a facet
ON_EDGE = 1e-6  # a node this near to an edge, in lengths of the edge, lies on it, as in the training
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
    every = np.concatenate([np.asarray(mesh.cells_dict[kind]).ravel() for kind in kinds_of(mesh, points.shape[1])])
    check_every_point(every, len(points), Where(BOUNDARY))
    return found


def joined(mesh: Any, points: Array) -> tuple[list[tuple[Facets, Array]], Array]:
    """Return cells that share nodes, where each has its own (discontinuous elements), and the node of every point."""
    known = kinds_of(mesh, points.shape[1])
    every = np.concatenate([np.asarray(mesh.cells_dict[kind]).ravel() for kind in known])
    _, first, to = np.unique(points, axis=0, return_index=True, return_inverse=True)
    place = first[to.ravel()] if len(np.unique(every)) == len(every) else np.arange(len(points))
    return [(facets, place[np.asarray(mesh.cells_dict[kind])]) for kind, facets in known.items()], place


def check_every_point(nodes: Array, count: int, where: Where) -> None:
    """Refuse points that no cell has: a training on mesh files leaves them out."""
    alone = np.ones(count, np.bool_)
    alone[nodes] = False
    if alone.any():
        detail = f"point {int(alone.argmax())} is in no cell: expected cells of all {count} points"
        raise InvalidInput(f"{detail}; `remove_orphaned_nodes` of meshio takes such points away", where=where)


def kinds_of(mesh: Any, dimensions: int) -> dict[str | int, Facets]:
    """Return the types of a mesh's cells of its own dimension, with their facets."""
    known = FACETS[dimensions]
    blocks = getattr(mesh, "cells", None)
    listed = [block.type for block in blocks] if isinstance(blocks, list) else list(getattr(mesh, "cells_dict", {}))
    of_mesh = {kind for kind in listed if _dimension(kind) >= dimensions}
    if not of_mesh or of_mesh - {*known}:
        seen = ", ".join(sorted(map(str, of_mesh - {*known}))) or "none"
        raise InvalidInput(
            f"expected cells of the types {', '.join(kind for kind in known if isinstance(kind, str))}, which the "
            f"boundary follows from, or `{BOUNDARY}` and `{DISTANCE}` as point data, but got {seen}",
            where=Where(BOUNDARY),
        )
    return {kind: known[kind] for kind in of_mesh}


def marked(kinds: list[tuple[Facets, Array]], points: Array, where: Where) -> npt.NDArray[np.bool_]:
    """Return which points lie on facets that belong to one cell alone."""
    instead = f"so the boundary does not follow from the cells: expected `{BOUNDARY}` and `{DISTANCE}` as point data"
    facets: dict[int, list[tuple[Array, Array]]] = {}  # corners and all nodes, by the number of corners
    for (ends, every), cells in kinds:
        ordered = np.sort(cells, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if twice.any() or len(np.unique(ordered, axis=0)) < len(cells):
            fault = f"cell {int(twice.argmax())} has a node twice" if twice.any() else "two cells have the same nodes"
            raise InvalidInput(f"{fault}, {instead}", where=where)
        for corners, members in zip(ends, every, strict=True):
            padded = (*members, *members[-1:] * (MOST_NODES - len(members)))
            facets.setdefault(len(corners), []).append((cells[:, corners], cells[:, padded]))
    alone = {size: _once(parts, instead, where) for size, parts in facets.items()}
    if 3 in alone and 4 in alone:
        kept = _without_halves(alone[3][0], alone[4][0])
        alone = {size: (alone[size][0][keep], alone[size][1][keep]) for size, keep in zip((3, 4), kept, strict=True)}
    if not any(len(corners) for corners, _ in alone.values()):
        raise InvalidInput(f"no cell has a facet of its own, {instead}", where=where)
    if (node := _hanging(points, [corners for corners, _ in alone.values()])) is not None:
        raise InvalidInput(f"node {node} hangs on an edge of another cell, {instead}", where=where)
    found = np.zeros(len(points), dtype=np.bool_)
    for _, nodes in alone.values():
        found[nodes] = True
    return found


def sizes(kinds: list[tuple[Facets, Array]], points: Array) -> Array:
    """Return the area, in space the volume, of the cells around each point, which a cell's nodes share equally."""
    found, flat = np.zeros(len(points)), points.shape[1] == 2
    for (facets, _), nodes in kinds:
        corners = points[nodes[:, : 1 + max(node for facet in facets for node in facet)]]
        middle = corners.mean(axis=1)
        size = np.zeros(len(nodes))
        if flat:  # edges run around their cell, which may be no convex one
            x, y = np.moveaxis(corners - middle[:, None], 2, 0)
            size = (x * np.roll(y, -1, axis=1) - np.roll(x, -1, axis=1) * y).sum(axis=1) / 2
        for facet in () if flat else facets:  # tetrahedra between the middle and the facets
            rays = [points[nodes[:, each]] - middle for each in facet]
            for fan in [rays] if len(rays) < 4 else [rays[:3], [rays[0], *rays[2:]]]:
                size += np.abs(np.linalg.det(np.stack(fan, axis=1))) / 6
        np.add.at(found, nodes, np.abs(size)[:, None] / nodes.shape[1])
    return found


def normals(kinds: list[tuple[Facets, Array]], points: Array, edge: Array) -> Array:
    """Return vectors out of the domain at points on its boundary, as long as the part of it that each stands for.

    What the facets of a cell give to their points, those of its neighbours take away again, so that inside nothing is
    left.
    """
    found, flat = np.zeros(points.shape), points.shape[1] == 2
    for (facets, every), nodes in kinds:
        corners = points[nodes[:, : 1 + max(node for facet in facets for node in facet)]]
        if flat:  # all edges at once: a polygon may have as many as the mesh has nodes
            x, y = np.moveaxis(corners - corners[:, :1], 2, 0)  # far from the origin nothing would be left otherwise
            turn = np.sign((x * np.roll(y, -1, axis=1) - np.roll(x, -1, axis=1) * y).sum(axis=1))
            first, last = np.moveaxis(points[nodes[:, np.array(facets)]], 2, 0)
            edges = turn[:, None, None] * np.stack([(last - first)[..., 1], (first - last)[..., 0]], axis=2)
            shared = np.array(every)
            np.add.at(found, nodes[:, shared], edges[:, :, None] / shared.shape[1])
            continue
        for facet, members in zip(facets, every, strict=True):
            own = points[nodes[:, facet]]
            vectors = np.cross(own[:, 1:-1] - own[:, :1], own[:, 2:] - own[:, :1]).sum(axis=1) / 2
            out = (vectors * (own.mean(axis=1) - corners.mean(axis=1))).sum(axis=1)
            vectors = np.where(out[:, None] < 0, -vectors, vectors)
            np.add.at(found, nodes[:, members], vectors[:, None] / len(members))
    return np.where(edge[:, None], found, 0.0)


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


def _without_halves(triangles: Array, quads: Array) -> list[npt.NDArray[np.bool_]]:
    """Return what stays of triangles and quadrilaterals without the latter that two of the former cover, and these."""
    known = {tuple(sorted(each)): number for number, each in enumerate(triangles.tolist())}
    kept = [np.ones(len(each), dtype=np.bool_) for each in (triangles, quads)]
    for number, (a, b, c, d) in enumerate(quads.tolist()):
        for halves in (((a, b, c), (a, c, d)), ((a, b, d), (b, c, d))):
            behind = [known.get(tuple(sorted(half)), -1) for half in halves]
            if min(behind) >= 0:
                kept[0][behind], kept[1][number] = False, False
    return kept


def distance(points: Array, edge: npt.NDArray[np.bool_]) -> Array:
    """Return the distance of all points `[point, dimension]` to the nearest of those on the edge."""
    targets = points[edge]
    rows = max(1, TABLE // max(1, targets.size))
    parts = (points[start : start + rows, None] - targets for start in range(0, len(points), rows))
    squares = [np.square(apart).sum(axis=2).min(axis=1) for apart in parts]
    return np.asarray(np.sqrt(np.concatenate(squares)))
