"""The routes of `/tesseract`: encodings, shapes without values, and refusals in the form that its clients read."""

from __future__ import annotations

import base64
import tracemalloc
from typing import Any

import httpx2
import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from schema.card import Card
from serving import checks
from serving.errors import Problem
from serving.protocols.tesseract_bodies import TesseractBody
from tests.conftest import Gateway
from tests.toy_fields import NAME, _card, compute, samples

X = samples(2, (5, 7))
Y = dict(compute(**X))


def encoded(array: NDArray[Any]) -> dict[str, Any]:
    data = {"buffer": base64.b64encode(array.tobytes()).decode(), "encoding": "base64"}
    return {"shape": list(array.shape), "dtype": array.dtype.name, "data": data}


def decoded(document: dict[str, Any]) -> NDArray[Any]:
    assert document["object_type"] == "array"
    data = document["data"]
    if data["encoding"] == "raw":
        return np.array(data["buffer"], document["dtype"]).reshape(document["shape"])
    return np.frombuffer(base64.b64decode(data["buffer"]), document["dtype"]).reshape(document["shape"])


def post(gateway: Gateway, endpoint: str, body: Any, model: str = NAME, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.post(f"{gateway.url}/tesseract/{model}/{endpoint}", json=body, headers=named)


INPUTS = {name: encoded(array) for name, array in X.items()}
COTANGENTS = {name: encoded(np.ones_like(array)) for name, array in Y.items()}
VJP = {
    "inputs": INPUTS,
    "vjp_inputs": ["time"],
    "vjp_outputs": ["moved", "flux"],
    "cotangent_vector": COTANGENTS,
}


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("*/*", "application/json+base64"),
        ("application/*; gpu_transport=none", "application/json+base64"),
        ("application/json", "application/json"),
        ("application/json+binref, application/json+base64", "application/json+base64"),
    ],
)
def test_encodings(gateway: Gateway, accept: str, media_type: str) -> None:
    response = post(gateway, "apply", {"inputs": INPUTS}, accept=accept).raise_for_status()
    assert response.headers["Content-Type"] == media_type
    for name, array in Y.items():
        np.testing.assert_allclose(decoded(response.json()[name]), array, rtol=1e-6)


@pytest.mark.parametrize("accept", ["application/json+binref", "*/*; gpu_transport=cuda_ipc", "text/html"])
def test_encodings_that_are_not_written(gateway: Gateway, accept: str) -> None:
    assert post(gateway, "apply", {"inputs": INPUTS}, accept=accept).status_code == 406


def test_nested_lists_numbers_and_a_batch_of_one_are_inputs(gateway: Gateway) -> None:
    raw = {"shape": [2, 5, 7], "dtype": "float64", "data": {"buffer": X["density"].tolist(), "encoding": "raw"}}
    inputs = {"density": raw, "velocity": X["velocity"][:1].tolist(), "time": 0.5}
    found = post(gateway, "apply", {"inputs": inputs}).raise_for_status().json()
    velocity = np.broadcast_to(X["velocity"][:1], X["velocity"].shape)
    np.testing.assert_allclose(
        decoded(found["moved"]), compute(X["density"], velocity, np.full(2, 0.5))["moved"], rtol=1e-5
    )


def test_gradients_have_shape_and_type_of_what_was_sent(gateway: Gateway) -> None:
    inputs = INPUTS | {"velocity": encoded(X["velocity"][:1].astype("f8")), "time": 0.5}
    body = VJP | {"inputs": inputs, "vjp_inputs": ["velocity", "time"]}
    found = post(gateway, "vector_jacobian_product", body).raise_for_status().json()
    velocity, time = decoded(found["velocity"]), decoded(found["time"])
    assert (velocity.shape, velocity.dtype.name, time.shape, time.dtype.name) == (
        (1, 2, 5, 7),
        "float64",
        (),
        "float64",
    )
    np.testing.assert_allclose(velocity[0], 2 * 0.5 + X["density"].sum(axis=0)[None].repeat(2, axis=0), rtol=1e-5)
    np.testing.assert_allclose(time, 2 * X["velocity"][0].sum(), rtol=1e-3, atol=1e-3)


def test_what_is_known_about_the_error_is_an_output(gateway: Gateway) -> None:
    openapi = httpx2.get(f"{gateway.url}/tesseract/{NAME}/openapi.json").raise_for_status().json()
    schemas = openapi["components"]["schemas"]
    assert set(schemas["ApplyInputSchema"]["differentiable_arrays"]) == set(X)
    assert set(schemas["ApplyOutputSchema"]["differentiable_arrays"]) == set(Y)
    assert schemas["Apply_InputSchema"]["required"] == ["density", "velocity"]


def test_shapes_without_values(gateway: Gateway) -> None:
    shapes = {name: {"shape": array.shape, "dtype": "float32"} for name, array in X.items()}
    found = post(gateway, "abstract_eval", {"inputs": shapes}).raise_for_status().json()
    assert found == {name: {"shape": list(array.shape), "dtype": "float32"} for name, array in Y.items()}
    one = {"density": {"shape": [5, 7], "dtype": "float32"}, "velocity": {"shape": [2, 5, 7], "dtype": "f4"}}
    found = post(gateway, "abstract_eval", {"inputs": one | {"time": 0.5}}).raise_for_status().json()
    assert found["flux"]["shape"] == [2, 5, 7]


REFUSED: list[tuple[str, Any, int, list[Any] | None]] = [
    ("apply", {"inputs": {"density": INPUTS["density"]}}, 422, ["body", "inputs", "velocity"]),
    ("apply", {"inputs": INPUTS | {"heat": 1.0}}, 422, ["body", "inputs", "heat"]),
    ("apply", {"inputs": INPUTS | {"density": (-X["density"]).tolist()}}, 422, ["body", "inputs", "density", 0, 0, 0]),
    ("apply", {"inputs": INPUTS | {"density": INPUTS["density"] | {"dtype": "object"}}}, 422, None),
    ("apply", {"inputs": INPUTS | {"density": INPUTS["density"] | {"shape": [9, 9]}}}, 400, None),
    ("apply", {"inputs": INPUTS | {"density": {"data": {"buffer": "a.bin", "encoding": "binref"}}}}, 400, None),
    ("apply", {"inputs": INPUTS | {"density": INPUTS["density"] | {"shape": [9] * 300_000}}}, 400, None),
    ("apply", {"inputs": []}, 400, None),
    ("apply", {"inputs": INPUTS, "more": 1}, 400, None),
    ("vector_jacobian_product", {"inputs": INPUTS}, 400, None),
    ("vector_jacobian_product", VJP | {"vjp_inputs": []}, 422, None),
    ("vector_jacobian_product", VJP | {"vjp_inputs": ["heat"]}, 422, None),
    ("vector_jacobian_product", VJP | {"vjp_outputs": ["flux"]}, 422, None),
    ("vector_jacobian_product", VJP | {"vjp_outputs": [], "cotangent_vector": {}}, 422, None),
    (
        "vector_jacobian_product",
        VJP | {"cotangent_vector": COTANGENTS | {"flux": [[1.0]]}},
        422,
        ["body", "cotangent_vector", "flux"],
    ),
    ("abstract_eval", {"inputs": {"density": {"shape": [5], "dtype": "f4"}, "velocity": 1.0}}, 422, None),
    ("abstract_eval", {"inputs": {"density": {"shape": [-5, 7], "dtype": "f4"}}}, 400, None),
]


@pytest.mark.parametrize(("endpoint", "body", "status", "location"), REFUSED)
def test_refusals(gateway: Gateway, endpoint: str, body: Any, status: int, location: list[Any] | None) -> None:
    response = post(gateway, endpoint, body)
    assert response.status_code == status, response.text
    if status == 422:
        [fault] = response.json()["detail"]
        assert fault.keys() == {"type", "loc", "msg"}
        assert location is None or fault["loc"] == location
    else:
        assert response.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("endpoint", ["apply", "abstract_eval", "vector_jacobian_product"])
def test_a_model_without_derivatives_is_no_tesseract(gateway: Gateway, endpoint: str) -> None:
    for model in ("blur", "tally", f"{NAME}_vjp", "nowhere"):
        assert post(gateway, endpoint, {"inputs": {}}, model).status_code == 404


CARD = Card.model_validate(_card(NAME, None))
MEBIBYTE = 2**20
LONG = np.ones(40_000, np.float32)


def tensors(density: tuple[int, ...], velocity: tuple[int, ...], **others: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {"density": np.ones(density), "velocity": np.ones(velocity), **others}


@pytest.mark.parametrize(
    ("arrays", "kind"),
    [
        (tensors((1, 128, 128), (2500, 2, 4, 4)), "wrong-shape"),
        (tensors((1, 16, 16), (2, 2, 16, 16), time=LONG), "wrong-shape"),
        (tensors((1, 32, 32), (1, 2, 32, 32), time=LONG), "body-too-large"),
    ],
)
def test_nothing_is_repeated_before_its_shape_is_right(arrays: dict[str, NDArray[Any]], kind: str) -> None:
    body = orjson.dumps({"inputs": {name: encoded(array.astype(np.float32)) for name, array in arrays.items()}})
    exchange = TesseractBody(bytearray(body), "base64")
    tracemalloc.start()
    try:
        with pytest.raises(Problem) as caught:
            checks.batch(exchange.read(CARD, 2**26), CARD)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.kind == kind
    assert peak < 16 * MEBIBYTE  # repeated, the arrays would take 41 to 164
