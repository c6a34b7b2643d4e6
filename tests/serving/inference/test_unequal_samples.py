"""Samples of unequal numbers of points in JSON, which are padded once their memory is counted."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schema.card import Card
from serving import padding
from serving.document import JSON
from serving.errors import Problem
from serving.protocols.v1 import Body
from serving.service import Service
from serving.settings import Settings
from serving.triton import Run, Triton
from tests import toy_points
from tests.refusals import refused
from tests.serving.triton.test_http_client import always, serving

POINTS = [[[0, 0], [1, 0], [0, 1], [1, 1]], [[0, 0], [1, 0], [0, 1], [1, 1], [2, 1]]]
HEAT = [[1] * 4, [2] * 5]


def read(inputs: dict[str, Any], *parameters: dict[str, Any]) -> tuple[dict[str, Any], Card]:
    document = toy_points._card("cloud", 2)
    document["parameters"] += parameters
    card = Card.model_validate(document)
    return Body(json.dumps({"inputs": inputs}).encode(), JSON, JSON).read(card, 2**26), card


def test_samples_are_padded_to_the_largest() -> None:
    arrays, card = read({"coordinates": POINTS, "heat": HEAT})
    shapes = padding.unequal(arrays, card)
    assert shapes == {"coordinates": (2, 5, 2), "heat": (2, 5)}
    found = padding.rectangular(arrays, shapes)
    assert found["counts"].tolist() == [4, 5]
    assert found["coordinates"][1].tolist() == POINTS[1]
    assert np.isnan(found["coordinates"]).sum() == 2
    np.testing.assert_array_equal(found["heat"], [[1, 1, 1, 1, np.nan], [2] * 5])


def test_a_small_body_takes_little_memory_until_it_is_counted() -> None:
    """One sample of many points beside many of one would be padded to a thousand times the body."""
    many = 1500
    inputs = {"coordinates": [[[0, 0]] * many, *[[[0, 0]]] * many], "heat": [[0] * many, *[[0]] * many]}
    tracemalloc.start()
    arrays, card = read(inputs)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert padding.unequal(arrays, card)["coordinates"] == (many + 1, many, 2)
    assert taken < 4 * (many + 1) * many


async def test_a_large_sample_is_padded_while_others_are_served(tmp_path: Path, held_up: list[str]) -> None:
    document = toy_points._card("cloud", 2)
    points = 40_000  # of two coordinates
    card = Card.model_validate(document | {"grid": document["grid"] | {"maximum": 2 * points}})
    sent = {"coordinates": np.zeros((1, points, 2), np.float32), "heat": np.zeros((1, points), np.float32)}
    async with (
        serving(always(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")) as (_, client),
        Triton(client.address, 2**20) as triton,
    ):
        service = Service(Settings(repository=tmp_path), triton, "0")
        service.catalogue._adopt({card.model: {1: card}})
        with refused("model-not-ready"):
            await service.predictor.infer(card, sent | {"counts": np.zeros(1, np.float32)}, Run.within(30))
    assert not held_up


def test_numbers_that_are_not_on_points_stay_as_they_are() -> None:
    load = {"name": "load", "meaning": "load", "units": "N", "components": ["x", "y"], "axes": ["batch", "component"]}
    arrays, card = read({"coordinates": POINTS, "heat": HEAT, "load": [[1, 2], [3, 4]]}, load)
    assert arrays["load"].tolist() == [[1, 2], [3, 4]]
    assert "load" not in padding.unequal(arrays, card)


@pytest.mark.parametrize(
    ("heat", "sentence"),
    [
        ([[1] * 4, [2] * 4], r"heat\[1\] has 4 points; coordinates\[1\] has 5"),
        ([*HEAT, [3] * 6], "heat has 3 samples; coordinates has 2"),
        ([HEAT[0]], "heat has 1 samples; coordinates has 2"),
    ],
)
def test_samples_of_other_sizes_are_refused(heat: Any, sentence: str) -> None:
    with pytest.raises(Problem, match=sentence) as caught:
        read({"coordinates": POINTS, "heat": heat})
    assert caught.value.kind == "wrong-shape"
