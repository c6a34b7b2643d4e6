"""Cells of requests in place of the inputs that follow from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from schema.card import Card
from serving import cells
from serving.errors import Problem
from tests import toy_points

SQUARE = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0.5, 0.5]], np.float32)
TRIANGLES = np.array([[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]])


def card(*names: str) -> Card:
    document = toy_points._card("cloud", 2)
    field = document["inputs"][1]
    document["inputs"] += [field | {"name": name, "meaning": name} for name in names]
    return Card.model_validate(document)


def test_boundary_distance_and_area_follow_from_triangles() -> None:
    known = card("boundary", "distance", "area")
    found = cells.derived({"coordinates": SQUARE}, [TRIANGLES], known)
    assert found["boundary"].tolist() == [1, 1, 1, 1, 0]
    assert found["distance"] == pytest.approx([0, 0, 0, 0, np.sqrt(0.5)])
    assert found["area"].sum() == pytest.approx(1)
    batch = np.stack([np.pad(SQUARE, [(0, 2), (0, 0)], constant_values=np.nan), np.pad(2 * SQUARE, [(0, 2), (0, 0)])])
    padding = np.concatenate([TRIANGLES, [[-1, -1, -1]]])
    counts, area = np.array([5, 5]), np.ones((2, 7))
    found = cells.derived({"coordinates": batch, "counts": counts, "area": area}, padding, known)
    assert found["distance"][:, 4] == pytest.approx([np.sqrt(0.5), np.sqrt(2)])
    assert found["area"] is area  # what was sent stays


@pytest.mark.parametrize(
    ("nodes", "names", "sentence"),
    [
        (TRIANGLES, (), "no input of the model follows from cells"),
        (TRIANGLES + 1, ("boundary",), "cells names the point 5 in cell 0; expected 0 to 4"),
        (TRIANGLES.astype(float), ("boundary",), "expected whole numbers"),
        (TRIANGLES[:, :2], ("boundary",), "expected cells of 3 nodes or more in 2 dimensions but got 2"),
    ],
)
def test_cells_that_say_nothing_are_refused(nodes: Any, names: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(Problem, match=sentence):
        cells.derived({"coordinates": SQUARE}, [nodes], card(*names))
