"""Products of Jacobians and vectors over every route, for a toy whose derivatives are known."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import numpy as np
import orjson
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from numpy.typing import NDArray
from safetensors.numpy import load, save

from serving.codecs import json_arrays
from serving.inputs import Arrays, Prediction
from serving.limits import ANYONE
from serving.local_triton.server import TritonServer
from serving.service import Service
from serving.triton import Triton
from tests import toy_fields
from tests.conftest import Gateway
from tests.toy_fields import NAME, drawn, gradients, samples, tangents

GRID = (6, 9)
SAFETENSORS = "application/vnd.safetensors"
X = samples(3, GRID)
C, T = drawn(dict(toy_fields.compute(**X)), 1), drawn(X, 2)


def listed(arrays: dict[str, Any], index: int | slice = slice(None)) -> dict[str, Any]:
    return {name: array[index].tolist() for name, array in arrays.items()}


def post(gateway: Gateway, path: str, body: Any, **options: Any) -> httpx2.Response:
    return httpx2.post(f"{gateway.url}/v1/models/{path}", json=body, **options)


def close(found: dict[str, Any], expected: dict[str, Any], index: int | slice = slice(None)) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(np.asarray(found[name]), array[index], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("path", [f"{NAME}/vjp", f"{NAME}/versions/1/vjp"])
def test_gradients_of_a_batch(gateway: Gateway, path: str) -> None:
    response = post(gateway, path, {"inputs": listed(X), "cotangents": listed(C)})
    found = response.raise_for_status().json()
    assert (found["model"], found["version"]) == (NAME, 1)
    assert found.keys() == {"model", "version", "outputs", "gradients"}
    assert (response.headers["Petrov-Model"], response.headers["Petrov-Version"]) == (NAME, "1")
    close(found["outputs"], dict(toy_fields.compute(**X)))
    close(found["gradients"], gradients(X, C))


def test_gradients_of_one_sample_for_what_was_sent(gateway: Gateway) -> None:
    inputs, flux = listed(X, 1), {"flux": C["flux"][1].tolist()}
    found = post(gateway, f"{NAME}/vjp", {"inputs": inputs, "cotangents": flux}).raise_for_status().json()
    expected = gradients(X, C | {"moved": np.zeros_like(C["moved"])})
    assert isinstance(found["gradients"]["time"], float)
    close(found["gradients"], expected, 1)
    del inputs["time"]  # it has a default
    found = post(gateway, f"{NAME}/vjp", {"inputs": inputs, "cotangents": flux}).raise_for_status().json()
    assert found["gradients"].keys() == {"density", "velocity"}


def test_one_number_for_all_samples_has_a_gradient_per_sample(gateway: Gateway) -> None:
    x = X | {"time": np.full(3, 0.5, np.float32)}
    body = {"inputs": listed(X) | {"time": 0.5}, "cotangents": listed(C)}
    found = post(gateway, f"{NAME}/vjp", body).raise_for_status().json()
    close(found["gradients"], gradients(x, C))


def test_tangents(gateway: Gateway) -> None:
    found = post(gateway, f"{NAME}/jvp", {"inputs": listed(X), "tangents": listed(T)}).raise_for_status().json()
    assert found.keys() == {"model", "version", "outputs", "tangents"}
    close(found["tangents"], tangents(X, T))
    only = {"time": T["time"][2].tolist()}
    found = (
        post(gateway, f"{NAME}/versions/1/jvp", {"inputs": listed(X, 2), "tangents": only}).raise_for_status().json()
    )
    zeros = {name: np.zeros_like(array) for name, array in T.items()}
    close(found["tangents"], tangents(X, zeros | {"time": T["time"]}), 2)


def test_safetensors(gateway: Gateway) -> None:
    url, headers = f"{gateway.url}/v1/models/{NAME}", {"Content-Type": SAFETENSORS}
    body = save(X | {f"cotangents.{name}": array for name, array in C.items()})
    found = load(httpx2.post(f"{url}/vjp", content=body, headers=headers).raise_for_status().content)
    expected = gradients(X, C)
    close(found, dict(toy_fields.compute(**X)) | {f"gradients.{name}": array for name, array in expected.items()})
    body = save(X | {f"tangents.{name}": array for name, array in T.items()})
    found = load(httpx2.post(f"{url}/jvp", content=body, headers=headers).raise_for_status().content)
    close({name: found[f"tangents.{name}"] for name in C}, tangents(X, T))


def test_base64(gateway: Gateway) -> None:
    coded = [{name: json_arrays.encode(array) for name, array in arrays.items()} for arrays in (X, C)]
    content = orjson.dumps({"inputs": coded[0], "cotangents": coded[1]})
    found = post(gateway, f"{NAME}/vjp", orjson.loads(content)).raise_for_status().json()
    assert {entry["dtype"] for entry in found["gradients"].values()} == {"float32"}


ONE, COTANGENT = listed(X, 0), listed(C, 0)
REFUSED: list[tuple[str, Any, int, str, str | None]] = [
    ("vjp", {"inputs": ONE}, 400, "unreadable-body", None),
    ("vjp", {"inputs": ONE, "tangents": COTANGENT}, 400, "unreadable-body", None),
    ("vjp", {"inputs": ONE, "cotangents": COTANGENT, "more": {}}, 400, "unreadable-body", None),
    ("vjp", {"inputs": ONE, "cotangents": {}}, 422, "wrong-input", "/cotangents/moved"),
    ("vjp", {"inputs": ONE, "cotangents": COTANGENT | {"heat": 1}}, 422, "wrong-input", "/cotangents/heat"),
    ("vjp", {"inputs": {}, "cotangents": COTANGENT}, 422, "wrong-input", "/inputs/density"),
    ("vjp", {"inputs": ONE, "cotangents": {"moved": [[1.0] * 5] * 5}}, 422, "wrong-shape", "/cotangents/moved"),
    ("vjp", {"inputs": ONE, "cotangents": listed(C)}, 422, "wrong-shape", "/cotangents/moved"),
    ("vjp", {"inputs": ONE | {"time": 3.0}, "cotangents": COTANGENT}, 422, "out-of-range", "/inputs/time"),
    ("vjp?tolerance=0.1", {"inputs": ONE, "cotangents": COTANGENT}, 422, "tolerance-unmet", None),
    ("jvp?outside=refuse", {"inputs": ONE, "tangents": {"time": 1}}, 422, "invalid-parameter", None),
    ("jvp", {"inputs": ONE, "tangents": {}}, 422, "wrong-input", "/tangents/density"),
    ("jvp", {"inputs": ONE, "tangents": {"time": "x"}}, 422, "wrong-shape", "/tangents/time"),
    ("versions/2/vjp", {"inputs": ONE, "cotangents": COTANGENT}, 404, "unknown-version", None),
]


@pytest.mark.parametrize(("path", "body", "status", "kind", "pointer"), REFUSED)
def test_refusals(gateway: Gateway, path: str, body: Any, status: int, kind: str, pointer: str | None) -> None:
    response = post(gateway, f"{NAME}/{path}", body)
    problem = response.json()
    assert (response.status_code, problem["type"]) == (status, f"urn:petrov:problem:{kind}")
    assert problem.get("where", {}).get("pointer") == pointer
    assert ("derivatives are those of the network" in problem["detail"]) == ("?" in path)


def test_a_value_that_is_not_finite_is_located(gateway: Gateway) -> None:
    flux = C["flux"][0].astype(np.float64)
    flux[1, 2, 3] = 1e300
    body = {"inputs": ONE, "cotangents": {"flux": flux.tolist()}}
    problem = post(gateway, f"{NAME}/vjp", body).json()
    assert problem["where"]["pointer"] == "/cotangents/flux/1/2/3"


@pytest.mark.parametrize("model", ["blur", "blur_torchscript", f"{NAME}_vjp"])
def test_a_model_without_derivatives_says_so(gateway: Gateway, model: str) -> None:
    response = post(gateway, f"{model}/vjp", {"inputs": {}, "cotangents": {}})
    assert (response.status_code, response.json()["type"]) == (404, "urn:petrov:problem:not-differentiable")
    assert NAME in response.json()["detail"]
    missing = post(gateway, "nowhere/vjp", {}).json()
    assert missing["type"] == "urn:petrov:problem:unknown-model"
    assert NAME in missing["detail"]
    assert f"{NAME}_" not in missing["detail"]  # its derivatives are reached through it


def test_an_array_alone_is_no_request(gateway: Gateway) -> None:
    headers = {"Content-Type": "application/x-npy"}
    response = httpx2.post(f"{gateway.url}/v1/models/{NAME}/vjp", content=b"", headers=headers)
    assert response.status_code == 415


def test_the_card_lists_derivatives_and_the_list_has_models_only(gateway: Gateway) -> None:
    def get(path: str) -> Any:
        return httpx2.get(f"{gateway.url}{path}").raise_for_status().json()

    names = {model["name"] for model in get("/v1/models")["models"]}
    assert NAME in names
    assert names.isdisjoint({f"{NAME}_vjp", f"{NAME}_jvp"})
    assert get(f"/v1/models/{NAME}")["card"]["differentiable"] == ["vjp", "jvp"]
    assert "differentiable" not in get("/v1/models/blur")["card"]
    assert get(f"/v1/models/{NAME}_vjp")["card"]["product"] == {"of": NAME, "kind": "vjp"}
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{gateway.settings.grpc_port}") as client:
        listed_names = {model.name for model in client.get_model_repository_index().models}
    assert NAME in listed_names
    assert f"{NAME}_vjp" not in listed_names


@pytest.mark.parametrize("protocol", [triton_http, triton_grpc])
def test_the_open_inference_protocol(gateway: Gateway, protocol: Any) -> None:
    arrays = X | {f"cotangents.{name}": array for name, array in C.items()}
    inputs = []
    for name, array in arrays.items():
        tensor = protocol.InferInput(name, array.shape, "FP32")
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    port = gateway.settings.port if protocol is triton_http else gateway.settings.grpc_port
    client = protocol.InferenceServerClient(f"127.0.0.1:{port}")
    try:
        result = client.infer(f"{NAME}_vjp", inputs)
        metadata = client.get_model_metadata(f"{NAME}_vjp")
    finally:
        client.close()
    for name, expected in gradients(X, C).items():
        found = result.as_numpy(f"gradients.{name}")
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=2e-5, atol=2e-5)
    outputs = metadata["outputs"] if protocol is triton_http else metadata.outputs
    assert len(outputs) == 5


def test_metrics_have_the_routes_of_derivatives(gateway: Gateway) -> None:
    post(gateway, f"{NAME}/vjp", {"inputs": ONE, "cotangents": COTANGENT}).raise_for_status()
    text = httpx2.get(f"{gateway.url}/metrics").text
    route = 'model="drift",route="/v1/models/{model}/vjp"'
    assert f'petrov_request_duration_seconds_count{{code="200",{route}}}' in text
    assert f'petrov_fields_total{{grid="other",model="{NAME}_vjp"}}' in text


def test_arrays_in_memory_are_differentiated(triton: TritonServer) -> None:
    """Routes of other protocols compute derivatives by this call."""
    settings = triton.settings
    server = Triton(settings.triton_address, settings.max_body_bytes)

    async def several() -> list[Any]:
        service = Service(settings, server, "0")
        async with service.run():
            while not service.readiness().ready:  # noqa: ASYNC110 - readiness has no event
                await asyncio.sleep(0.05)
            card = service.catalogue.derivative(NAME, "vjp")
            arrays = [
                {name: array[index] for name, array in X.items()}
                | {f"cotangents.{name}": array[index] for name, array in C.items()}
                for index in range(3)
            ]
            calls = (service.predictor.predict(Prediction(card, "", ANYONE), Arrays(each)) for each in arrays)
            return await asyncio.gather(*calls)

    for index, found in enumerate(asyncio.run(several())):
        assert found["gradients.time"].shape == (1,)
        close({name: found[f"gradients.{name}"] for name in ("density", "velocity")}, without_time(X, C), index)


def without_time(x: dict[str, NDArray[Any]], c: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: array for name, array in gradients(x, c).items() if name != "time"}
