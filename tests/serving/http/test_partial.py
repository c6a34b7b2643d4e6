"""Batches in which the model's output for one sample is not finite: an error that names it, or a partial response."""

from __future__ import annotations

from typing import Any

import httpx2
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from numpy.typing import NDArray
from safetensors.numpy import load, save

from tests import toy_fields
from tests.conftest import Gateway

URL = "/v1/models/drift/predict"
SAFETENSORS = {"Content-Type": "application/vnd.safetensors"}
LARGEST = np.finfo(np.float32).max


@pytest.fixture
def inputs() -> dict[str, NDArray[np.float32]]:
    """Return three samples; the sum of the second one's velocities overflows at one point."""
    found = toy_fields.samples()
    found["velocity"][1, :, 4, 7] = LARGEST
    return found


def document(inputs: dict[str, NDArray[Any]]) -> dict[str, Any]:
    return {"inputs": {name: array.tolist() for name, array in inputs.items()}}


def failures(http: httpx2.Client) -> float:
    name = 'petrov_model_failures_total{model="drift",reason="non-finite-output",version="1"} '
    lines = [line for line in http.get("/metrics").text.splitlines() if line.startswith(name)]
    return float(lines[0].removeprefix(name)) if lines else 0.0


def test_the_error_names_the_sample_and_is_counted_for_the_version(
    http: httpx2.Client, inputs: dict[str, NDArray[Any]]
) -> None:
    before = failures(http)
    response = http.post(URL, json=document(inputs))
    problem = response.json()
    assert (response.status_code, problem["type"]) == (502, "urn:petrov:problem:non-finite-output")
    assert problem["detail"] == (
        'the output of "drift" version 1 for sample 1 of density, velocity is not finite (moved[4,7] is inf); '
        "1 of 3 samples fail, and partial=true returns the others"
    )
    assert problem["where"] == {"array": "density", "index": [1], "pointer": "/inputs/density/1"}
    assert failures(http) == before + 1


def test_a_partial_response_marks_the_sample_and_has_the_others(
    http: httpx2.Client, inputs: dict[str, NDArray[Any]]
) -> None:
    before, expected = failures(http), toy_fields.compute(**toy_fields.samples())
    response = http.post(f"{URL}?partial=true", json=document(inputs))
    found = response.json()
    assert found["quality"] == {"failed": [False, True, False], "solved_by": "network"}
    assert response.headers["petrov-failed"] == "1"
    for name, array in expected.items():
        np.testing.assert_allclose(np.array(found["outputs"][name], np.float32)[[0, 2]], array[[0, 2]], rtol=1e-5)
        assert np.isnan(np.array(found["outputs"][name], np.float32)[1]).all()
    assert failures(http) == before + 1


def test_a_partial_response_in_safetensors_has_a_tensor_of_marks(
    http: httpx2.Client, inputs: dict[str, NDArray[Any]]
) -> None:
    found = load(http.post(f"{URL}?partial=true", content=save(inputs), headers=SAFETENSORS).content)
    assert found["failed"].tolist() == [False, True, False]
    assert [np.isnan(found["flux"][sample]).all() for sample in range(3)] == [False, True, False]


def test_where_no_sample_fails_none_is_marked(http: httpx2.Client) -> None:
    response = http.post(f"{URL}?partial=true", json=document(toy_fields.samples()))
    assert response.json()["quality"]["failed"] == [False, False, False]
    assert response.headers["petrov-failed"] == "0"


def test_where_every_sample_fails_there_is_no_partial_response(
    http: httpx2.Client, inputs: dict[str, NDArray[Any]]
) -> None:
    for count in (slice(1, 2), 1):
        response = http.post(f"{URL}?partial=true", json=document({name: a[count] for name, a in inputs.items()}))
        assert response.status_code == 502
        assert "partial" not in response.json()["detail"]


def test_another_value_of_partial_is_refused(http: httpx2.Client, inputs: dict[str, NDArray[Any]]) -> None:
    response = http.post(f"{URL}?partial=some", json=document(inputs))
    assert (response.status_code, response.json()["detail"]) == (
        422,
        'partial: expected true or false but got "some"',
    )


@pytest.mark.parametrize("protocol", [triton_http, triton_grpc])
def test_the_open_inference_protocol_lists_the_samples_that_failed(
    gateway: Gateway, inputs: dict[str, NDArray[Any]], protocol: Any
) -> None:
    settings = gateway.settings
    port = settings.port if protocol is triton_http else settings.grpc_port
    tensors = []
    for name, array in inputs.items():
        tensors.append(protocol.InferInput(name, array.shape, "FP32"))
        tensors[-1].set_data_from_numpy(array)
    with protocol.InferenceServerClient(f"127.0.0.1:{port}") as client:
        if protocol is triton_http:
            result = client.infer("drift", tensors, query_params={"partial": "true"})
            failed = result.get_response()["parameters"]["failed"]
        else:
            result = client.infer("drift", tensors, parameters={"partial": True})
            failed = result.get_response().parameters["failed"].string_param
        assert failed == "1"
        assert [np.isnan(result.as_numpy("moved")[sample]).all() for sample in range(3)] == [False, True, False]
