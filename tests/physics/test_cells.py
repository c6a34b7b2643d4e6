"""What follows from the cells of a mesh, of wrong cells and of large ones."""

from __future__ import annotations

import numpy as np
import pytest

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
