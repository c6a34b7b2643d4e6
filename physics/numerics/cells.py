"""The nodes on the boundary of a mesh, which follow from all of its cells together, and distances to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import cKDTree

from physics.numerics.cell_types import (
    ON_EDGE,
    Cells,
    Indices,
    Kind,
    Points,
    UnknownCellsError,
    flat_cell,
    out_of_order,
    without_halves,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


def boundary(cells: Cells, points: Points) -> NDArray[np.bool_]:
    """Return which nodes lie on facets of one cell alone.

    Raises:
        UnknownCellsError: A cell has a node twice, most cells cross themselves, facets of neighbours do not match, no
            cell has one of its own, or one on the boundary is flat.

    Example:
        >>> points = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.5]])
        >>> boundary(Cells.of(np.array([[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]]), 2), points)
        array([ True,  True,  True,  True, False])
    """
    alone = facets_alone(cells, points)
    if flat := flat_cell(cells, points, alone):
        raise UnknownCellsError(flat)
    refuse_hanging(points, [facet for facet, _ in alone.values() if len(facet)])
    marked = np.zeros(len(points), dtype=np.bool_)
    for _, nodes in alone.values():
        marked[nodes] = True
    return marked


def seams(cells: Cells, points: Points) -> int:
    """Return how many facets of one cell alone lie on another one: those of a crack, or of parts that are not joined.

    Raises:
        UnknownCellsError: As `boundary` does.
    """
    place = np.unique(points, axis=0, return_inverse=True)[1].ravel()
    facets = [np.sort(place[facet], axis=1) for facet, _ in facets_alone(cells, points).values()]
    return sum(len(each) - len(np.unique(keys(each))) for each in facets)


def facets_alone(cells: Cells, points: Points) -> dict[int, tuple[Indices, Indices]]:
    """Return corners and nodes of the facets that belong to one cell alone, by the number of corners.

    Raises:
        UnknownCellsError: As `boundary` does, but for flat cells and nodes that hang on edges.
    """
    if wrong_order := out_of_order(cells, points):
        raise UnknownCellsError(wrong_order)
    found: dict[int, list[tuple[Indices, Indices]]] = {}  # corners and nodes of facets, by the number of corners
    for kind, nodes in cells.blocks:
        wrong = repeated(nodes)
        if wrong.any():
            raise UnknownCellsError(f"a cell has a node twice: {nodes[wrong.argmax()].tolist()[:8]}")
        if len(np.unique(keys(np.sort(nodes, axis=1)))) < len(nodes):
            raise UnknownCellsError("two cells have the same nodes")
        for ends, named in alike(kind):
            own = nodes[:, ends].reshape(-1, ends.shape[1])
            every = own if named is ends else nodes[:, named].reshape(-1, named.shape[1])
            found.setdefault(ends.shape[1], []).append((own, every))
    for face in (face for cell in cells.polyhedra for face in cell):
        found.setdefault(len(face), []).append((face[np.newaxis], face[np.newaxis]))
    alone = {count: once(each) for count, each in found.items()}
    if len(alone.get(4, ((), ()))[0]) and len(alone.get(3, ((), ()))[0]):
        alone = without_halves(alone)
    if not any(len(facet) for facet, _ in alone.values()):
        raise UnknownCellsError("no cell has a facet of its own")
    return alone


def distance(points: Points, marked: NDArray[np.bool_]) -> Points:
    """Return the distance of all points to the nearest of those that are marked."""
    nearest, _ = cKDTree(np.unique(points[marked], axis=0)).query(points)
    return np.asarray(nearest)


def repeated(nodes: Indices) -> NDArray[np.bool_]:
    """Return which cells or facets `[cell, node]` have a node twice."""
    ordered = np.sort(nodes, axis=1)
    return np.asarray((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))


def alike(kind: Kind) -> list[tuple[Indices, Indices]]:
    """Return corners and nodes of the facets of a type of cell as arrays `[facet, node]`, those of one size each."""
    found: dict[tuple[int, int], list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
    for facet, named in zip(kind.facets, kind.nodes, strict=True):
        found.setdefault((len(facet), len(named)), []).append((facet, named))
    pairs = [tuple(np.array(each, np.int64) for each in zip(*group, strict=True)) for group in found.values()]
    return [(facets, facets if facets.shape == named.shape else named) for facets, named in pairs]


def keys(rows: Indices) -> Indices:
    """Return a number for each row of nodes, the same for rows that are the same."""
    base = int(rows.max(initial=0)) + 1
    found, largest = rows[:, 0], base
    for column in rows.T[1:]:
        if largest * base >= 2**63:
            found, largest = np.unique(found, return_inverse=True)[1].astype(np.int64), len(rows)
        found, largest = found * base + column, largest * base
    return found


def once(parts: list[tuple[Indices, Indices]]) -> tuple[Indices, Indices]:
    """Return corners and nodes of the facets that belong to one cell.

    Raises:
        UnknownCellsError: Three cells share a facet.
    """
    width = max(nodes.shape[1] for _, nodes in parts)
    every = [(facets, padded(nodes, width)) for facets, nodes in parts]
    facets, nodes = every[0] if len(every) == 1 else (np.concatenate(each) for each in zip(*every, strict=True))
    _, index, count = np.unique(keys(np.sort(facets, axis=1)), return_index=True, return_counts=True)
    if count.max(initial=0) > 2:
        raise UnknownCellsError(f"three cells share the nodes {facets[index[count.argmax()]].tolist()[:8]}")
    return facets[index[count == 1]], nodes[index[count == 1]]


def padded(nodes: Indices, width: int) -> Indices:
    """Return nodes of facets in so many columns, the last of them repeated."""
    more = width - nodes.shape[1]
    return np.pad(nodes, [(0, 0), (0, more)], mode="edge") if more else nodes


def refuse_hanging(points: NDArray[np.float64], facets: list[Indices]) -> None:
    """Refuse facets on whose edges corners of other facets lie: cells of two sizes meet there.

    Raises:
        UnknownCellsError: There are such nodes.
    """
    ends = [np.stack([each, np.roll(each, 1, axis=1)], axis=-1).reshape(-1, 2) for each in facets]
    edges = np.sort(np.concatenate(ends), axis=1)
    edges = edges[np.unique(keys(edges), return_index=True)[1]]
    nodes = np.unique(edges)
    nodes = nodes[np.unique(points[nodes], axis=0, return_index=True)[1]]  # a search among equal ones takes all of them
    first, last = points[edges[:, 0]], points[edges[:, 1]]
    along = last - first
    squares = np.square(along).sum(axis=1)
    _, near = cKDTree(points[nodes]).query((first + last) / 2, k=min(3, len(nodes)))
    for each in np.atleast_2d(near.T):
        node = nodes[each]
        apart = points[node] - first
        share = (apart * along).sum(axis=1) / np.where(squares > 0, squares, 1)
        off = np.square(apart - share[:, np.newaxis] * along).sum(axis=1)
        hanging = (off < ON_EDGE**2 * squares) & (share > ON_EDGE) & (share < 1 - ON_EDGE)
        if hanging.any():
            raise UnknownCellsError(f"node {node[hanging.argmax()]} hangs on an edge of another cell")
