"""What follows from the cells of a mesh, of wrong cells and of large ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from physics.numerics.cell_types import Cells, UnknownCellsError, sizes
from physics.numerics.cells import alike, boundary, distance, keys

SQUARE = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0.5, 0.5]])
TRIANGLES = [[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]]


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ([[0, 1, 1], [1, 2, 4]], r"a cell has a node twice: \[0, 1, 1\]"),
        ([*TRIANGLES, [4, 1, 0]], "two cells have the same nodes"),
        ([*TRIANGLES, [1, 4, 3]], r"three cells share the nodes \[1, 4\]"),
    ],
)
def test_cells_that_are_none_of_a_mesh_are_refused(nodes: list[list[int]], sentence: str) -> None:
    with pytest.raises(UnknownCellsError, match=sentence):
        boundary(Cells.of(np.array(nodes), 2), SQUARE)


def grid(dimensions: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the points of three by three squares, or cubes, and their cells, whose nodes come row by row."""
    number = np.arange(4**dimensions).reshape((4,) * dimensions)
    points = np.stack(np.meshgrid(*[np.arange(4.0)] * dimensions, indexing="ij"), axis=-1).reshape(-1, dimensions)
    corners = [number[tuple(slice(at, at + 3) for at in each)].ravel() for each in np.ndindex(*[2] * dimensions)]
    return points, np.stack(corners, axis=1)


AROUND = {2: [0, 2, 3, 1], 3: [0, 4, 6, 2, 1, 5, 7, 3]}  # the order of nodes around a square and a cube of these


@pytest.mark.parametrize("dimensions", [2, 3])
def test_cells_whose_nodes_come_row_by_row_are_refused(dimensions: int) -> None:
    """As those of deal.II and FEniCSx, whose diagonals would be taken for sides."""
    points, cells = grid(dimensions)
    count = 3**dimensions
    with pytest.raises(UnknownCellsError, match=rf"{count} of {count} cells cross themselves"):
        boundary(Cells.of(cells, dimensions), points)
    right = Cells.of(cells[:, AROUND[dimensions]], dimensions)
    assert boundary(right, points).sum() == 4**dimensions - 2**dimensions
    points[5 if dimensions == 2 else 21] += 2  # a point inside, by which few cells become tangled
    assert boundary(right, points).sum() == 4**dimensions - 2**dimensions


def test_quadratic_triangles_are_no_hexagons() -> None:
    corners = np.array([[0.0, 0], [1, 0], [0, 1]])
    points = np.concatenate([corners, (corners + np.roll(corners, -1, axis=0)) / 2])
    with pytest.raises(UnknownCellsError, match="1 of 1 cells cross themselves"):
        boundary(Cells.of(np.arange(6)[np.newaxis], 2), points)
    hexagon = np.array([[0, 3, 1, 4, 2, 5]])
    arrow = np.array([[0.0, 0], [2, 0], [1, 0.2], [0, 2]])  # which is not convex
    bulged = points + np.array([[0, 0], [0, 0], [0, 0], [0, -0.1], [0.1, 0.1], [-0.1, 0]])
    assert boundary(Cells.of(hexagon, 2), bulged).all()
    assert boundary(Cells.of(np.arange(4)[np.newaxis], 2), arrow).all()


def test_the_facets_of_a_polygon_are_taken_at_once() -> None:
    angles = np.linspace(0, 2 * np.pi, 2000, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    cells = Cells.of(np.arange(len(circle))[np.newaxis], 2)
    [(facets, named)] = alike(cells.blocks[0][0])
    assert facets.shape == (2000, 2)
    assert named is facets
    assert boundary(cells, circle).all()
    assert sizes(cells, circle).sum() == pytest.approx(np.pi, rel=1e-5)


def test_rows_have_the_same_number_only_where_they_are_the_same() -> None:
    rows = np.array([[1, 2**31, 2**32], [1, 2**31, 2**32 - 1], [1, 2**31, 2**32], [0, 2**31, 2**32]])
    found = keys(rows)
    assert found[0] == found[2]
    assert len(np.unique(found)) == 3


def test_many_points_at_one_place_are_searched_once() -> None:
    """A search tree puts equal points into one leaf, so that each search would compare all of them."""
    rows = np.arange(20_000).reshape(2, -1)
    cells = np.stack([rows[0, :-1], rows[0, 1:], rows[1, 1:], rows[1, :-1]], axis=1)
    marked = boundary(Cells.of(cells, 2), np.zeros((20_000, 2)))
    assert marked.all()
    assert not distance(np.zeros((20_000, 2)), marked).any()
