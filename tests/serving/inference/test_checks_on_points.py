"""Checks of samples on points of their own and in domains: what padding and the outside hold does not count."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from schema.card import Card
from serving import checks, padding
from serving.document import JSON
from serving.errors import Problem
from serving.protocols.v1 import Body
from serving.quality import Quality
from tests.serving.inference.test_checks import FLOW, tensor


def cloud() -> Card:
    axes = ["batch", "point"]
    place = tensor("coordinates", [*axes, "component"], "coordinates", positive=False) | {"shape": [None, None, 2]}
    return Card.model_validate(
        FLOW.model_dump()
        | {
            "inputs": [place, tensor("k", axes, "conductivity", positive=True)],
            "grid": {"axes": ["point"], "minimum": 4, "maximum": 20, "declared": [], "points": "anywhere"},
            "outputs": [tensor("u", axes, "temperature", positive=False)],
            "parameters": [
                {"name": "counts", "meaning": "valid points", "units": "1", "default": 0, "minimum": 0},
                {"name": "wind", "meaning": "wind", "units": "1", "default": 1},
            ],
        }
    )


def test_padding_of_points_is_neither_checked_nor_sent() -> None:
    k = np.ones((2, 6), np.float32)
    k[1, 4:] = np.nan
    arrays = {"coordinates": np.random.default_rng(0).random((2, 6, 2)), "k": k, "counts": np.asarray([0, 4])}
    found, single = checks.batch(arrays, cloud())
    assert not single
    assert (found["k"] == 1).all()
    assert (found["coordinates"][1, 4:] == found["coordinates"][1, :1]).all()
    assert cloud().grid_of(found) == (6,)
    one, single = checks.batch({name: array[1] for name, array in arrays.items()}, cloud())
    assert single
    assert (one["k"] == 1).all()
    assert one["wind"].tolist() == [1]


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        (
            {"counts": np.asarray([6, 3])},
            "out-of-range",
            r"counts\[1\] is 3; expected a whole number from 4 to 6",
        ),
        ({"counts": np.asarray([6, 4.5])}, "out-of-range", r"counts\[1\] is 4.5; expected a whole number"),
        ({"k": np.ones((2, 5))}, "wrong-shape", "expected the same samples and grid"),
        ({"k": np.ones((3, 6))}, "wrong-shape", "expected the same samples and grid"),
        ({"coordinates": np.ones((2, 6, 3))}, "wrong-shape", "coordinates has 3 components; expected 2"),
        (
            {"coordinates": np.ones((2, 21, 2))},
            "grid-out-of-limits",
            '21 points along "point"; the model takes 4 to 20',
        ),
    ],
)
def test_points_that_fit_no_card(changes: dict[str, NDArray[Any]], kind: str, sentence: str) -> None:
    arrays = {"coordinates": np.ones((2, 6, 2)), "k": np.ones((2, 6)), "counts": np.asarray([6, 4])} | changes
    with pytest.raises(Problem, match=sentence) as refusal:
        checks.batch(arrays, cloud())
    assert refusal.value.kind == kind


@pytest.mark.parametrize(("points", "size"), [(4, 4), (6, 7), (10, 12), (20, 20)])
def test_calls_on_points_have_few_sizes(points: int, size: int) -> None:
    sent, _ = checks.batch(
        {"coordinates": np.random.default_rng(0).random((2, points, 2)), "k": np.ones((2, points))}, cloud()
    )
    found = padding.padded(sent, cloud())
    assert (found["coordinates"].shape, found["k"].shape) == ((2, size, 2), (2, size))
    assert (found["coordinates"][:, points:] == sent["coordinates"][:, -1:]).all()
    assert (found["counts"] == (0 if size == points else points)).all()
    assert (found["wind"] == sent["wind"]).all()


def test_numbers_per_sample_are_not_cut_like_fields_on_points() -> None:
    number = tensor("loads", ["batch", "component"], "loads", positive=False) | {"shape": [None, 6]}
    field = tensor("u", ["batch", "point"], "pressure", positive=False)
    of = Card.model_validate(cloud().model_dump() | {"outputs": [field, number | {"components": [*"abcdef"]}]})
    body = Body(b"", JSON, JSON)
    body.counts = [4, 6]
    outputs = {name: np.ones((2, 6), np.float32) for name in ("u", "loads")}
    found = json.loads(bytes(body.write(of, outputs, Quality({}, np.zeros(2, np.int8))).body))["outputs"]
    assert {name: [len(each) for each in lists] for name, lists in found.items()} == {"u": [4, 6], "loads": [6, 6]}


def domain() -> Card:
    axes = ["batch", "row", "column"]
    inputs = [
        tensor("k", axes, "conductivity", positive=True),
        tensor("v", ["batch", "component", *axes[1:]], "velocity", positive=False) | {"shape": [None, 2, None, None]},
        tensor("w", ["batch", "history", "component", *axes[1:]], "winds", positive=False)
        | {"shape": [None, 2, 3, None, None]},
        tensor("inside", axes, "domain", positive=False),
    ]
    return Card.model_validate(FLOW.model_dump() | {"inputs": inputs, "mask": "inside", "parameters": []})


@pytest.mark.parametrize("batch", [(), (3,)])
def test_what_lies_outside_a_domain_is_neither_checked_nor_sent(batch: tuple[int, ...]) -> None:
    inside = np.ones((*batch, 5, 6))
    inside[..., 1:3, 2] = 0
    k, v = np.where(inside == 1, 2.0, -1.0), np.zeros((*batch, 2, 5, 6))
    v[..., 0, 1, 2] = np.nan
    sent = {"k": k, "v": v, "w": np.stack([v[..., :1, :, :]] * 2, axis=len(batch)).repeat(3, -3), "inside": inside}
    found, single = checks.batch(sent, domain())
    assert single == (batch == ())
    assert (found["k"][found["inside"] == 0] == 1).all()
    assert (found["v"][..., 1:3, 2] == 1).all()
    assert (found["w"][..., 1:3, 2] == 1).all()
    assert not found["w"][..., 0, 0].any()
    v[..., 0, 0, 0] = np.nan
    with pytest.raises(Problem, match=r"v\[(0,)?0,0,0\] is nan"):
        checks.batch(sent, domain())


def test_copies_without_what_lies_outside_are_counted() -> None:
    inside = np.ones((500, 9, 8), np.float32)
    inside[:, 3] = 0
    sent = {"k": inside + 1, "v": np.zeros((500, 2, 9, 8), np.float32), "w": np.zeros((500, 2, 3, 9, 8), np.float32)}
    assert checks.replaced_bytes(sent, domain()) == 0
    sent["inside"] = inside
    tracemalloc.start()
    found, _ = checks.batch(sent, domain())
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert (found["w"][:, :, :, 3] == 1).all()
    assert 0.9 * taken < checks.replaced_bytes(sent, domain()) < 1.1 * taken


def test_masks_are_0_and_1_and_have_an_inside() -> None:
    arrays = {"k": np.ones((2, 5, 6)), "v": np.ones((2, 2, 5, 6)), "w": np.ones((2, 2, 3, 5, 6))}
    arrays["inside"] = np.ones((2, 5, 6))
    arrays["inside"][1, 2, 3] = 2
    with pytest.raises(Problem, match=r"inside\[1,2,3\] is 2.0; expected 1 inside the domain, or 0 outside"):
        checks.batch(arrays, domain())
    arrays["inside"][1] = 0
    with pytest.raises(Problem, match=r"inside\[1\] has no point inside the domain"):
        checks.batch(arrays, domain())
