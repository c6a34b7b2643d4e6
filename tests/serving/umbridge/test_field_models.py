"""Field models over UM-Bridge: grids, which inputs are vectors, parameters, limits, keys and metrics."""

from __future__ import annotations

from typing import Any

import httpx2
import numpy as np
import pytest

from tests.conftest import Gateway
from tests.toy_fields import GRID, NAME, compute, gradients, samples, tangents

ROWS, COLUMNS = 6, 9
POINTS = ROWS * COLUMNS
X = samples(1, (ROWS, COLUMNS))
RNG = np.random.default_rng(2)
C = {name: RNG.standard_normal(array.shape) for name, array in compute(**X).items()}
ZEROS = {name: np.zeros_like(array) for name, array in X.items()}
ALL = {"grid": [ROWS, COLUMNS], "inputs": ["time", "velocity", "density"]}
VECTORS = [X[name].reshape(-1).tolist() for name in ALL["inputs"]]


def post(gateway: Gateway, route: str, name: str = NAME, **members: Any) -> httpx2.Response:
    return httpx2.post(f"{gateway.url}/umbridge/{route}", json={"name": name, **members})


def output(gateway: Gateway, route: str, **members: Any) -> Any:
    return post(gateway, route, **members).raise_for_status().json()["output"]


def sizes(gateway: Gateway, role: str, config: Any) -> list[int]:
    found = post(gateway, f"{role.capitalize()}Sizes", config=config).raise_for_status().json()
    vectors: list[int] = found[f"{role}Sizes"]
    return vectors


def test_sizes_follow_the_configuration(gateway: Gateway) -> None:
    assert sizes(gateway, "input", {}) == [GRID[0] * GRID[1], 2 * GRID[0] * GRID[1]]
    assert sizes(gateway, "input", {"grid": 8}) == [64, 128]
    assert sizes(gateway, "input", ALL) == [1, 2 * POINTS, POINTS]
    assert sizes(gateway, "input", {"grid": 8, "parameters": {"velocity": 1, "time": 0.5}}) == [64]
    assert sizes(gateway, "output", ALL) == [POINTS, 2 * POINTS]


def test_values(gateway: Gateway) -> None:
    expected = compute(**X)
    for found, name in zip(output(gateway, "Evaluate", input=VECTORS, config=ALL), ("moved", "flux"), strict=True):
        np.testing.assert_allclose(found, expected[name].reshape(-1), rtol=1e-5)
    config = {"grid": [ROWS, COLUMNS], "parameters": {"velocity": -2.0, "time": 0.25}}
    moved, flux = output(gateway, "Evaluate", input=[VECTORS[2]], config=config)
    np.testing.assert_allclose(moved, np.array(VECTORS[2]) - 1.0, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(flux, np.tile(-2 * np.array(VECTORS[2]), 2), rtol=1e-5)


@pytest.mark.parametrize("index", [0, 1])
def test_products_by_every_input_and_output(gateway: Gateway, index: int) -> None:
    names, results = ALL["inputs"], ("moved", "flux")
    only = {name: C[name] if name == results[index] else np.zeros_like(C[name]) for name in C}
    for by, name in enumerate(names):
        product = {"input": VECTORS, "config": ALL, "outWrt": index, "inWrt": by}
        found = output(gateway, "Gradient", **product, sens=C[results[index]].reshape(-1).tolist())
        np.testing.assert_allclose(found, gradients(X, only)[name].reshape(-1), rtol=1e-4, atol=1e-4)
        direction = RNG.standard_normal(X[name].shape)
        found = output(gateway, "ApplyJacobian", **product, vec=direction.reshape(-1).tolist())
        expected = tangents(X, ZEROS | {name: direction})[results[index]]
        np.testing.assert_allclose(found, expected.reshape(-1), rtol=1e-4, atol=1e-4)


REFUSED: list[tuple[Any, str]] = [
    ([], "config"),
    ({"grid": 3}, "grid"),
    ({"grid": 1000}, "grid"),
    ({"grid": [6, 9, 9]}, "grid"),
    ({"grid": [6.5, 9]}, "grid"),
    ({"grid": True}, "grid"),
    ({"grid": [2] * 1025}, "at most 1024 members"),
    ({"parameters": {str(index): 1 for index in range(1025)}}, "at most 1024 members"),
    ({str(index): 1 for index in range(1025)}, "at most 1024 members"),
    ({"grid": [6, 9], "heat": 1}, "heat"),
    ({"inputs": ["density"]}, "velocity"),
    ({"inputs": ["density", "density", "velocity"]}, "once"),
    ({"inputs": ["density", "heat", "velocity"]}, "heat"),
    ({"inputs": []}, "inputs"),
    ({"parameters": {"density": 1.0, "velocity": 1.0}}, "at least one"),
    ({"parameters": {"heat": 1.0}}, "heat"),
    ({"parameters": {"time": "1"}}, "time"),
    ({"frames": 3}, "frames"),
    ({"outside": "refuse", **ALL}, "novelty"),
    ({"tolerance": 1e-3, **ALL}, "tolerance"),
    ({"parameters": {"time": 3.0}, "grid": [ROWS, COLUMNS]}, "time"),
]


@pytest.mark.parametrize(("config", "word"), REFUSED)
def test_configurations_that_are_none(gateway: Gateway, config: Any, word: str) -> None:
    vectors = VECTORS if "inputs" in config else [VECTORS[2], VECTORS[1]]
    response = post(gateway, "Evaluate", input=vectors, config=config)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "InvalidInput"
    assert word in error["message"]


def test_an_unknown_version_is_no_model(gateway: Gateway) -> None:
    response = post(gateway, "Evaluate", input=VECTORS, config=ALL | {"version": 7})
    assert response.json()["error"]["type"] == "ModelNotFound"
    assert output(gateway, "Evaluate", input=VECTORS, config=ALL | {"version": 1})


def test_values_are_checked_as_in_predict(gateway: Gateway) -> None:
    negative = [VECTORS[0], VECTORS[1], [-1.0] * POINTS]
    response = post(gateway, "Evaluate", input=negative, config=ALL)
    assert response.status_code == 400
    assert response.json()["error"] == {
        "type": "InvalidInput",
        "message": "density[0,0] is -1.0; a density must be positive",
    }


@pytest.mark.parametrize("content", [b"nonsense", b"[1]", b'{"name": 7}', b'{"name": "drift", "input": {}}'])
def test_bodies_that_are_no_message(gateway: Gateway, content: bytes) -> None:
    response = httpx2.post(f"{gateway.url}/umbridge/Evaluate", content=content)
    assert response.status_code == 400
    assert response.json().keys() == {"error"}


@pytest.mark.parametrize(
    ("route", "members", "known"),
    [
        ("ModelInfo", {"Config": {}}, "name, config"),
        ("InputSizes", {"Config": {"grid": 9}}, "name, config"),
        ("Evaluate", {"input": VECTORS, "config": ALL, "sens": [1]}, "name, config, input"),
        ("Gradient", {"config": ALL, "out": 0}, "name, config, input, outWrt, inWrt, sens"),
        ("ApplyJacobian", {"config": ALL, "sens": [1]}, "name, config, input, outWrt, inWrt, vec"),
    ],
)
def test_members_that_a_message_does_not_have(gateway: Gateway, route: str, members: Any, known: str) -> None:
    response = post(gateway, route, **members)
    unknown = next(name for name in members if name not in known.split(", "))
    assert (response.status_code, response.json()["error"]) == (
        400,
        {"type": "InvalidInput", "message": f'the message has no member "{unknown}"; there are {known}'},
    )


def test_a_body_beyond_the_limit(gateway: Gateway) -> None:
    content = b" " * (gateway.settings.max_body_bytes // 4 + 1)
    response = httpx2.post(f"{gateway.url}/umbridge/Evaluate", content=content)
    assert response.status_code == 413
    assert response.json()["error"]["type"] == "BodyTooLarge"


@pytest.mark.parametrize("route", ["ModelInfo", "InputSizes", "OutputSizes", "ApplyHessian"])
def test_a_message_without_vectors_is_short(gateway: Gateway, route: str) -> None:
    response = post(gateway, route, config={"grid": [6, 9], "inputs": ["x" * 2**18]})
    assert (response.status_code, response.json()["error"]["type"]) == (413, "BodyTooLarge")


def test_metrics_name_the_model_of_the_body(gateway: Gateway) -> None:
    output(gateway, "Evaluate", input=VECTORS, config=ALL)
    text = httpx2.get(f"{gateway.url}/metrics").text
    assert f'petrov_request_duration_seconds_count{{code="200",model="{NAME}",route="/umbridge/Evaluate"}}' in text
