"""Types of cells of meshes, and what follows from every cell by itself: its size, and the normals of its facets.

Types of cells have the names of `meshio`, whose order of nodes is that of VTK: corners, then the middles of the
edges, then those of some facets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Nodes = tuple[tuple[int, ...], ...]
Indices = NDArray[np.int64]
Points = NDArray[np.float64]

MOST_CORNERS = 9  # of polygons whose sides are compared with one another
ON_EDGE = 1e-6  # a node this near to an edge, in lengths of the edge, lies on it


class UnknownCellsError(ValueError):
    """The boundary does not follow from the cells; the message says why."""


class Shape(NamedTuple):
    """The nodes of the facets and of the edges of a cell that has corners alone.

    In the middles of the edges, in their order, quadratic cells have nodes.
    """

    facets: Nodes
    edges: Nodes


class Kind(NamedTuple):
    """The facets of a type of cell: their corners, and all their nodes."""

    corners: int  # of the cell
    facets: Nodes
    nodes: Nodes


TRIANGLE = Shape(((0, 1), (1, 2), (2, 0)), ((0, 1), (1, 2), (2, 0)))
QUAD = Shape(((0, 1), (1, 2), (2, 3), (3, 0)), ((0, 1), (1, 2), (2, 3), (3, 0)))
TETRA = Shape(
    ((0, 1, 2), (0, 1, 3), (1, 2, 3), (0, 2, 3)),
    ((0, 1), (1, 2), (0, 2), (0, 3), (1, 3), (2, 3)),
)
PYRAMID = Shape(
    ((0, 1, 2, 3), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)),
    ((0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4), (2, 4), (3, 4)),
)
WEDGE = Shape(
    ((0, 1, 2), (3, 4, 5), (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5)),
    ((0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5)),
)
HEXAHEDRON = Shape(
    ((0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7)),
    ((0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4), (0, 4), (1, 5), (2, 6), (3, 7)),
)


def linear(shape: Shape) -> Kind:
    """Return the cells of a shape that have corners alone."""
    return Kind(corners(shape), shape.facets, shape.facets)


def quadratic(shape: Shape, middles: tuple[int, ...] = ()) -> Kind:
    """Return the cells with a node in the middle of every edge, and of the facets `middles`, in this order."""
    first = corners(shape)
    named = [
        (*facet, *(first + number for number, edge in enumerate(shape.edges) if {*edge} <= {*facet}))
        for facet in shape.facets
    ]
    for number, facet in enumerate(middles, start=first + len(shape.edges)):
        named[facet] = (*named[facet], number)
    return linear(shape)._replace(nodes=tuple(named))


def corners(shape: Shape) -> int:
    """Return the number of corners of a shape."""
    return 1 + max(node for facet in shape.facets for node in facet)


KINDS = {
    "triangle": linear(TRIANGLE),
    "triangle6": quadratic(TRIANGLE),
    "quad": linear(QUAD),
    "quad8": quadratic(QUAD),
    "quad9": quadratic(QUAD),  # with a node inside
    "tetra": linear(TETRA),
    "tetra10": quadratic(TETRA),
    "pyramid": linear(PYRAMID),
    "pyramid13": quadratic(PYRAMID),
    "pyramid14": quadratic(PYRAMID, (0,)),
    "wedge": linear(WEDGE),
    "wedge15": quadratic(WEDGE),
    "wedge18": quadratic(WEDGE, (2, 3, 4)),
    "hexahedron": linear(HEXAHEDRON),
    "hexahedron20": quadratic(HEXAHEDRON),
    "hexahedron27": quadratic(HEXAHEDRON, (5, 3, 2, 4, 0, 1)),  # with a node inside
}


class Cells(NamedTuple):
    """The cells of a mesh: type and nodes `[cell, node]` of those of each type, and the faces of every polyhedron."""

    blocks: Sequence[tuple[Kind, Indices]]
    polyhedra: Sequence[Sequence[Indices]] = ()

    @classmethod
    def of(cls, nodes: Indices, dimensions: int) -> Cells:
        """Return cells of one type by their number of nodes: polygons on a plane, `SOLIDS` in space.

        Raises:
            UnknownCellsError: There are no such cells.

        Example:
            >>> Cells.of(np.array([[0, 1, 2], [1, 3, 2]]), 2).blocks[0][0].corners
            3
        """
        count = nodes.shape[1]
        if dimensions == 2 and count >= 3:
            return cls([(polygon(count), nodes)])
        if dimensions == 3 and count in SOLIDS:
            return cls([(KINDS[SOLIDS[count]], nodes)])
        named = "3 nodes or more" if dimensions == 2 else f"{', '.join(map(str, SOLIDS))} nodes"
        raise UnknownCellsError(f"expected cells of {named} in {dimensions} dimensions but got {count}")


SOLIDS = {4: "tetra", 5: "pyramid", 6: "wedge", 8: "hexahedron", 10: "tetra10"}
"""The types of cells in space by their number of nodes."""


def polygon(corners: int) -> Kind:
    """Return the polygons of so many corners."""
    edges = tuple((node, (node + 1) % corners) for node in range(corners))
    return linear(Shape(edges, edges))


def out_of_order(cells: Cells, points: Points) -> str:
    """Say that most cells cross themselves, as those do whose nodes come row by row; empty where they do not.

    Few such cells are those of a tangled mesh, whose neighbours are known all the same.

    Example:
        >>> corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> print(out_of_order(Cells.of(np.array([[0, 1, 2, 3]]), 2), corners))
        1 of 1 cells cross themselves: expected the nodes of each in their order around it, as VTK has them
    """
    crossing = [crossed(kind, points[nodes[:, : kind.corners]]) for kind, nodes in cells.blocks]
    total, count = sum(map(len, crossing)), sum(int(each.sum()) for each in crossing)
    said = f"{count} of {total} cells cross themselves: expected the nodes of each in their order around it, as VTK has"
    return f"{said} them" if 2 * count > total else ""


def crossed(kind: Kind, corners: Points) -> NDArray[np.bool_]:
    """Return which cells `[cell, corner, dimension]` have sides that cross; none where cells of the type cannot.

    In space they are sides of quadrilateral facets, in the plane of these.
    """
    if corners.shape[2] == 2:
        count = kind.corners
        found = np.zeros(len(corners) if 3 < count <= MOST_CORNERS else 0, np.bool_)
        ends = [(corners[:, node], corners[:, (node + 1) % count]) for node in range(count)]
        for one in range(count if len(found) else 0):
            for other in range(one + 2, count - (one == 0)):
                (a, b), (c, d) = ends[one], ends[other]
                found |= (turn(a, b, c) * turn(a, b, d) < 0) & (turn(c, d, a) * turn(c, d, b) < 0)
        return found
    facets = [facet for facet in kind.facets if len(facet) == 4]
    found = np.zeros(len(corners) if facets else 0, np.bool_)
    for facet in facets:  # both diagonals divide it into triangles that lie on each other
        a, b, c, d = (corners[:, node] for node in facet)
        halves = ((turn(a, b, c), turn(a, c, d)), (turn(b, c, d), turn(b, d, a)))
        folded = [(first * second).sum(axis=1) < 0 for first, second in halves]
        found |= folded[0] & folded[1]
    return found


def flat_cell(cells: Cells, points: Points, alone: Mapping[int, tuple[Indices, Indices]]) -> str:
    """Say that a triangle on a plane, or a tetrahedron, with a facet of its own is flat; empty where none is.

    A Delaunay triangulation has such cells along straight boundaries, as wide as the coordinates are rounded. They hide
    the nodes that lie there.

    Args:
        cells: Of a mesh.
        points: Its nodes.
        alone: Corners and nodes of the facets that belong to one cell, by the number of corners.
    """
    dimensions = points.shape[1]
    rounding = 2.0**-21 if (points == points.astype(np.float32)).all() else 2.0**-50
    for kind, nodes in (each for each in cells.blocks if each[0].corners == dimensions + 1):
        corners = points[nodes[:, : kind.corners]]
        if dimensions == 2:
            ends = [corners[:, last] - corners[:, first] for first, last in kind.facets]
            base = length = np.max([np.linalg.norm(each, axis=1) for each in ends], axis=0)
            content = np.abs(turn(*np.moveaxis(corners, 1, 0)))
        else:
            areas = [turn(*np.moveaxis(corners[:, facet], 1, 0)) for facet in kind.facets]
            base = np.max([np.linalg.norm(each, axis=1) for each in areas], axis=0)
            length, content = np.sqrt(base), np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1]))
        height = np.maximum(ON_EDGE * length, rounding * np.abs(corners).max(axis=(1, 2)))
        flat = np.flatnonzero(content <= height * base)
        if len(flat):
            own = np.sort(nodes[flat][:, np.array(kind.facets)], axis=2).reshape(-1, dimensions)
            known = np.sort(alone[dimensions][0], axis=1)
            to = np.unique(np.concatenate([known, own]), axis=0, return_inverse=True)[1].ravel()
            outside = np.isin(to[len(known) :], to[: len(known)]).reshape(len(flat), -1).any(axis=1)
            if outside.any():
                shown = nodes[flat[outside.argmax()], : kind.corners].tolist()
                return (
                    f"the cell {shown} on the boundary is flat: leave out such cells, which a Delaunay triangulation "
                    "has along straight boundaries"
                )
    return ""


def turn(start: Points, middle: Points, end: Points) -> Points:
    """Return twice the areas of triangles on a plane, with signs; in space as vectors along their normals."""
    one, other = middle - start, end - start
    if start.shape[1] == 2:
        return one[:, 0] * other[:, 1] - one[:, 1] * other[:, 0]
    return np.asarray(np.cross(one, other))


def without_halves(alone: dict[int, tuple[Indices, Indices]]) -> dict[int, tuple[Indices, Indices]]:
    """Leave out quadrilaterals that two triangles of the cells behind them cover, and these triangles."""
    triangles, quads = alone[3][0], alone[4][0]
    known = {tuple(sorted(each)): number for number, each in enumerate(triangles.tolist())}
    kept = {3: np.ones(len(triangles), np.bool_), 4: np.ones(len(quads), np.bool_)}
    for number, (a, b, c, d) in enumerate(quads.tolist()):
        for halves in (((a, b, c), (a, c, d)), ((a, b, d), (b, c, d))):
            behind = [known.get(tuple(sorted(half)), -1) for half in halves]
            if min(behind) >= 0:
                kept[4][number], kept[3][behind] = False, False
    return alone | {count: (alone[count][0][keep], alone[count][1][keep]) for count, keep in kept.items()}


def sizes(cells: Cells, points: Points) -> Points:
    """Return the area, in space the volume, of the cells around each node, which a cell's nodes share equally.

    Sides of cells are taken as straight.
    """
    found, flat = np.zeros(len(points)), points.shape[1] == 2
    for kind, nodes in cells.blocks:
        middle = points[nodes[:, : kind.corners]].mean(axis=1)
        size = np.zeros(len(nodes))
        if flat:  # edges run around their cell, which may be no convex one
            x, y = np.moveaxis(points[nodes[:, : kind.corners]] - middle[:, np.newaxis], 2, 0)
            size = (x * np.roll(y, -1, axis=1) - np.roll(x, -1, axis=1) * y).sum(axis=1) / 2
        for facet in () if flat else kind.facets:  # tetrahedra between the middle and the facets
            rays = [points[nodes[:, each]] - middle for each in facet]
            fans = [rays] if len(rays) < 4 else [rays[:3], [rays[0], *rays[2:]]]
            for fan in fans:
                size += np.abs(np.linalg.det(np.stack(fan, axis=1))) / 6
        np.add.at(found, nodes, np.abs(size)[:, None] / nodes.shape[1])
    for cell in cells.polyhedra:
        own = np.unique(np.concatenate(cell))
        middle, volume = points[own].mean(axis=0), 0.0
        for face in cell:
            first, centre = points[face] - middle, points[face].mean(axis=0) - middle
            corners = np.stack([first, np.roll(first, 1, axis=0), np.broadcast_to(centre, first.shape)], axis=1)
            volume += float(np.abs(np.linalg.det(corners)).sum()) / 6
        found[own] += volume / len(own)
    return found


def normals(cells: Cells, points: Points, marked: NDArray[np.bool_]) -> Points:
    """Return the outward normals of the boundary at its nodes, as long as the part of it that each stands for.

    In space the length is an area. The nodes of a facet share it equally. What the facets of a cell give to their
    nodes, those of its neighbours take away again, so that inside nothing is left. The sum of a pressure times these
    vectors is the force on the boundary.

    Args:
        cells: Of the mesh; cells in space are convex.
        points: Its nodes.
        marked: Which of them lie on the boundary; it is 0 at all others.

    Example:
        >>> points = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
        >>> normals(Cells.of(np.array([[0, 1, 2, 3]]), 2), points, np.ones(4, bool)).tolist()
        [[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]]
    """
    found = np.zeros(points.shape)
    for kind, nodes in cells.blocks:
        corners = points[nodes[:, : kind.corners]]
        if points.shape[1] == 2:  # all edges at once: a polygon may have as many as the mesh has nodes
            members = np.array(kind.nodes)
            edges = across(points[nodes[:, np.array(kind.facets)]], corners)
            np.add.at(found, nodes[:, members], edges[:, :, np.newaxis] / members.shape[1])
            continue
        for facet, shared in zip(kind.facets, kind.nodes, strict=True):
            vectors = outward(points[nodes[:, facet]], corners)
            np.add.at(found, nodes[:, shared], vectors[:, np.newaxis] / len(shared))
    for cell in cells.polyhedra:
        own = points[np.unique(np.concatenate(cell))][np.newaxis]
        for face in cell:
            np.add.at(found, face, outward(points[face][np.newaxis], own) / len(face))
    return np.where(marked[:, np.newaxis], found, 0.0)


def across(edges: Points, cells: Points) -> Points:
    """Return vectors `[cell, edge, 2]` as long as the edges `[cell, edge, end, 2]` of cells on a plane, out of these.

    `cells` are their corners `[cell, corner, 2]`, in order around them.
    """
    x, y = np.moveaxis(cells - cells[:, :1], 2, 0)  # far from the origin nothing would be left of small cells
    turn = np.sign((x * np.roll(y, -1, axis=1) - np.roll(x, -1, axis=1) * y).sum(axis=1))
    along = edges[:, :, 1] - edges[:, :, 0]
    return np.asarray(turn[:, np.newaxis, np.newaxis] * np.stack([along[..., 1], -along[..., 0]], axis=2))


def outward(facets: Points, cells: Points) -> Points:
    """Return the vectors `[facet, 3]` of the areas of facets in space, `[facet, corner, 3]`, out of their cells.

    `cells` are the corners of the cell of each, `[facet, corner, 3]`.
    """
    first = facets[:, :1]
    vectors = np.cross(facets[:, 1:-1] - first, facets[:, 2:] - first).sum(axis=1) / 2
    out = (vectors * (facets.mean(axis=1) - cells.mean(axis=1))).sum(axis=1)
    return np.asarray(np.where(out[:, np.newaxis] < 0, -vectors, vectors))
