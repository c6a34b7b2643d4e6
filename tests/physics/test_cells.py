"""What follows from the cells of a mesh, of wrong cells and of large ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial import Delaunay

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


@pytest.mark.parametrize("dimensions", [2, 3])
def test_flat_cells_along_a_straight_boundary_are_refused(dimensions: int) -> None:
    """As those of a Delaunay triangulation of points in single precision, which hid most nodes of the boundary."""
    side = np.linspace(0, 1, 12 if dimensions == 2 else 5)
    points = np.stack(np.meshgrid(*[side] * dimensions, indexing="ij"), axis=-1).reshape(-1, dimensions)
    edge = ((points == 0) | (points == 1)).any(axis=1)
    turned = np.eye(dimensions)
    turned[:2, :2] = [[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]]
    rounded = (points @ turned.T).astype(np.float32).astype(np.float64)
    triangles = Delaunay(rounded).simplices.astype(np.int64)
    with pytest.raises(UnknownCellsError, match=r"the cell \[.*\] on the boundary is flat: leave out such cells"):
        boundary(Cells.of(triangles, dimensions), rounded)
    if dimensions == 2:
        (a, b, c) = np.moveaxis(rounded[triangles], 1, 0)
        area = (b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]
        assert (boundary(Cells.of(triangles[np.abs(area) > 1e-4], 2), rounded) == edge).all()


def test_thin_cells_of_a_boundary_layer_are_not_flat() -> None:
    points = np.array([[0.9, 0], [0.9, 1e-6], [0.901, 0], [0.901, 1e-6]], np.float32).astype(np.float64)
    assert boundary(Cells.of(np.array([[0, 2, 3], [0, 3, 1]]), 2), points).all()


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
