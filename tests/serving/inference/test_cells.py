"""Cells of requests in place of the inputs that follow from them."""

from __future__ import annotations

import base64
import json
import tracemalloc
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save

from schema.card import Card
from serving import checks, padding
from serving.cells import CELLS, Derivation
from serving.codecs.binary import SAFETENSORS
from serving.document import JSON
from serving.errors import Problem
from serving.inputs import own_bytes
from serving.protocols.v1 import Body
from tests import toy_points

SQUARE = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0.5, 0.5]], np.float32)
TRIANGLES = np.array([[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]])
PLATE = ("boundary", "distance")
EVERY = ("boundary", "distance", "area", "boundary_normal")


def card(*names: str, dimensions: int = 2) -> Card:
    document = toy_points._card("cloud", dimensions)
    field = document["inputs"][1]
    vector = document["inputs"][0]
    others = ((vector if name == "boundary_normal" else field) | {"name": name, "meaning": name} for name in names)
    document["inputs"] = [vector, *others]
    return Card.model_validate(document)


def derived(arrays: Mapping[str, NDArray[Any]], known: Card) -> dict[str, NDArray[Any]]:
    derivation = Derivation(arrays, known)
    for piece in derivation.pieces():
        derivation.derive(piece)
    return derivation.arrays


def read(content: Any, known: Card) -> dict[str, NDArray[Any]]:
    """Return the batches of a document of JSON, or of arrays in safetensors."""
    text = isinstance(content.get("inputs"), dict)
    body = json.dumps(content).encode() if text else save({name: np.asarray(each) for name, each in content.items()})
    arrays = Body(body, JSON if text else SAFETENSORS, JSON).read(known, 2**26)
    arrays = padding.rectangular(arrays, padding.unequal(arrays, known))
    follow = CELLS in arrays and CELLS not in known.names
    return checks.batch(derived(arrays, known) if follow else arrays, known)[0]


def test_boundary_distance_area_and_normals_follow_from_triangles() -> None:
    known = card(*EVERY)
    found = derived({"coordinates": SQUARE, "cells": TRIANGLES}, known)
    assert found["boundary"].tolist() == [1, 1, 1, 1, 0]
    assert found["distance"] == pytest.approx([0, 0, 0, 0, np.sqrt(0.5)])
    assert found["area"].sum() == pytest.approx(1)
    assert found["boundary_normal"].tolist() == [[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5], [0, 0]]
    batch = np.stack([np.pad(SQUARE, [(0, 2), (0, 0)], constant_values=np.nan), np.pad(2 * SQUARE, [(0, 2), (0, 0)])])
    padding = np.pad(TRIANGLES, [(1, 0), (0, 2)], constant_values=-1)
    counts, area = np.array([5, 5]), np.ones((2, 7))
    found = derived({"coordinates": batch, "counts": counts, "area": area, "cells": padding}, known)
    assert found["distance"][:, 4] == pytest.approx([np.sqrt(0.5), np.sqrt(2)])
    assert found["boundary_normal"][:, 1].tolist() == [[0.5, -0.5], [1, -1]]
    assert found["area"] is area  # what was sent stays


@pytest.mark.parametrize("cells", [TRIANGLES, np.stack([TRIANGLES] * 2)], ids=["one mesh", "of every sample"])
def test_cells_mean_the_same_in_every_format(cells: NDArray[Any]) -> None:
    known, two = card(*PLATE), np.stack([SQUARE, 2 * SQUARE])
    coded = {"shape": cells.shape, "dtype": "int16", "base64": base64.b64encode(cells.astype("<i2").tobytes()).decode()}
    for content in (
        {"inputs": {"coordinates": two.tolist()}, "cells": cells.tolist()},
        {"inputs": {"coordinates": two.tolist()}, "cells": coded},
        {"coordinates": two, "cells": cells.astype(np.int8)},
    ):
        found = read(content, known)
        assert found["boundary"].tolist() == [[1, 1, 1, 1, 0]] * 2
        assert found["distance"][:, 4] == pytest.approx([np.sqrt(0.5), np.sqrt(2)])


def test_meshes_of_unequal_size_have_their_own_cells() -> None:
    triangle, quadrilateral = [[0, 1, 2], [0, 2, 3]], [[0, 1, 2, 3]]
    for cells in (triangle, quadrilateral):
        document = {"coordinates": [SQUARE.tolist(), SQUARE[:4].tolist()]}
        found = read({"inputs": document, "cells": [TRIANGLES.tolist(), cells]}, card(*PLATE))
        assert found["boundary"][:, :4].all()
        assert not found["boundary"][0, 4]


def test_arrays_of_every_sample_are_counted_as_what_they_hold() -> None:
    document = {"inputs": {"coordinates": [SQUARE.tolist(), SQUARE[:4].tolist()]}}
    body = json.dumps(document | {"cells": [TRIANGLES.tolist(), [[0, 1, 2, 3]]]}).encode()
    sent = Body(body, JSON, JSON).read(card(*PLATE), 2**26)
    numbers = {"coordinates": 2 * (5 + 4), CELLS: 12 + 4}
    assert {name: own_bytes({name: sent[name]}) for name in numbers} == {name: 8 * n for name, n in numbers.items()}


@pytest.mark.parametrize(
    ("cells", "kind", "sentence", "index"),
    [
        (TRIANGLES + 1, "out-of-range", "cells names the point 5 in cell 0; expected 0 to 4", [0, 2]),
        ([[-1, -1, -1], [0, 1, -1], [0, 1, 4]], "out-of-range", "names the point -1 in cell 1", [1, 2]),
        ([[0, 1, 2**40]], "out-of-range", f"names the point {2**40} in cell 0", [0, 2]),
        ([TRIANGLES, TRIANGLES[:, [0, 0, 1]]], "wrong-shape", "cells has 2 samples; coordinates has 1", None),
        ([[0, 1, 4], [1, 2, 2]], "wrong-input", "cells has a point twice in cell 1", [1]),
        ([[-1] * 3, *TRIANGLES, [4, 1, 0]], "wrong-input", "two cells have the same nodes", None),
        ([[-1, -1, -1]], "wrong-shape", "cells has no cells", None),
        ([[0, 1, 3, 2], [1, 0, 2, 3], [0, 1, 4, 3]], "wrong-input", "cells: 2 of 3 cells cross themselves", None),
        (np.tile(TRIANGLES, (3, 1)), "wrong-input", "cells names points 36 times; .* at most 30", None),
        ([[0, 1, 2, 3, 4] * 1000], "wrong-input", "cells names points 5000 times; .* at most 30", None),
        (TRIANGLES.astype(float), "wrong-dtype", "cells are float64; expected whole numbers", None),
        (TRIANGLES[:, :2], "wrong-input", "expected cells of 3 nodes or more in 2 dimensions but got 2", None),
        (3, "wrong-shape", r"cells has shape \(\); expected", None),
        ([0, 1, 4], "wrong-shape", r"cells has shape \(3,\); expected", None),
        ([], "wrong-", "cells", None),
        ([[[[0, 1, 4]]]], "wrong-shape", "cells", ...),
    ],
)
def test_wrong_cells_are_refused_with_their_place(cells: Any, kind: str, sentence: str, index: Any) -> None:
    for content in (
        {"inputs": {"coordinates": SQUARE.tolist()}, "cells": np.asarray(cells).tolist()},
        {"coordinates": SQUARE, "cells": np.asarray(cells)},
    ):
        with pytest.raises(Problem, match=sentence) as caught:
            read(content, card(*PLATE))
        assert caught.value.kind.startswith(kind)
        assert caught.value.where is not None
        assert caught.value.where.pointer.startswith("/cells")
        assert index is ... or caught.value.where.index == index


@pytest.mark.parametrize(
    ("more", "kind", "array"),
    [
        ({"coordinates": np.where(SQUARE == 1, 1e300, SQUARE.astype(float))}, "non-finite", "coordinates"),
        ({"coordinates": SQUARE[0]}, "wrong-shape", "coordinates"),
        ({"coordinates": SQUARE[:, :1]}, "wrong-shape", "coordinates"),
        ({"coordinates": np.stack([SQUARE] * 2), "counts": np.array([2.0, 2, 2])}, "wrong-shape", "counts"),
        ({"coordinates": np.stack([SQUARE] * 2), "counts": np.array([[5.0, 5]])}, "wrong-shape", "counts"),
        ({"coordinates": np.stack([SQUARE] * 2), "counts": np.array([5.0, 99])}, "out-of-range", "counts"),
        ({"boundary": np.ones(5), "distance": np.ones(5)}, "wrong-input", "cells"),
        ({"boundary": np.ones(5), "heat": np.ones(5)}, "wrong-input", "heat"),
    ],
)
def test_wrong_points_beside_cells_are_refused_as_without(more: dict[str, Any], kind: str, array: str) -> None:
    inputs = {"coordinates": SQUARE} | more
    lists = {name: each.tolist() for name, each in inputs.items()}
    for content in ({"inputs": lists, "cells": TRIANGLES.tolist()}, {**inputs, "cells": TRIANGLES}):
        with pytest.raises(Problem) as caught:
            read(content, card(*PLATE))
        assert caught.value.kind == kind
        assert caught.value.where is not None
        assert caught.value.where.array == array


def test_cells_that_no_input_follows_from_are_refused() -> None:
    for content in ({"inputs": {"coordinates": SQUARE.tolist(), "u": [0] * 5}}, {"coordinates": SQUARE, "u": [0] * 5}):
        with pytest.raises(Problem, match="no input follows from cells: none of the model's"):
            read({**content, "cells": TRIANGLES.tolist()}, card("u"))


def test_what_does_not_follow_from_cells_is_named_as_what_to_send() -> None:
    cells = np.array([*TRIANGLES, [1, 4, 3]])  # three share an edge
    with pytest.raises(Problem, match="send area and boundary_normal as inputs"):
        derived({"coordinates": SQUARE, "cells": cells}, card("area", "boundary_normal"))


def layers(side: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return points of a cube and its cells, each cut into tetrahedra that do not meet those of others."""
    at = np.arange(side**3).reshape(side, side, side)
    corners = [at[a : side - 1 + a, b : side - 1 + b, c : side - 1 + c].ravel() for a, b, c in np.ndindex(2, 2, 2)]
    cut = [(0, 4, 2, 1), (4, 6, 2, 7), (4, 2, 1, 7), (4, 1, 5, 7), (2, 1, 3, 7)]
    points = np.stack(np.meshgrid(*[np.linspace(0, 1, side)] * 3, indexing="ij"), -1).reshape(-1, 3)
    return points.astype(np.float32), np.concatenate([np.stack([corners[n] for n in each], axis=1) for each in cut])


@pytest.mark.parametrize("form", ["polygon", "triangles", "tetrahedra"])
def test_the_memory_of_cells_is_counted_before_it_is_taken(form: str) -> None:
    known, angles = card(*EVERY), np.linspace(0, 2 * np.pi, 3000, endpoint=False)
    points, cells = np.stack([np.cos(angles), np.sin(angles)], axis=1), np.arange(3000)[np.newaxis]
    if form == "triangles":
        cells = np.stack([np.zeros(2998, int), np.arange(1, 2999), np.arange(2, 3000)], axis=1)
    elif form == "tetrahedra":
        known, (points, cells) = card(*EVERY, dimensions=3), layers(14)
    derivation = Derivation({"coordinates": points.astype(np.float32), "cells": cells}, known)
    tracemalloc.start()
    for piece in derivation.pieces():
        derivation.derive(piece)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert derivation.bytes / 8 < taken < derivation.bytes


def test_a_batch_is_derived_in_pieces_between_which_its_request_may_end() -> None:
    known, samples = card(*PLATE), 1000
    derivation = Derivation({"coordinates": np.stack([SQUARE] * samples), "cells": TRIANGLES}, known)
    pieces = list(derivation.pieces())
    assert 2 < len(pieces) < samples / 10
    assert [each for piece in pieces for each in piece] == list(range(samples))
    assert derivation.work > samples * 2**14  # so much that a thread does it
