"""Predict through every route, and keep serving after bad inputs, new versions and a killed Triton."""

from __future__ import annotations

import io
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import onnx
import pytest
import torch
import tritonclient.grpc
import tritonclient.http
from numpy.typing import NDArray
from onnx import numpy_helper

import physics.darcy
from export.graphs import to_onnx
from export.triton_config import CARD, CERTIFICATE
from petrov_client import Client, GrpcClient, PetrovError, Unavailable
from tests.conftest import wait_until
from tests.pipeline.conftest import Pipeline, Service
from tests.processes import below
from training import checkpoint
from training.files import write_json

pytestmark = pytest.mark.deep

MODEL = "darcy_tiny"
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def field() -> NDArray[np.float32]:
    return physics.darcy.example(43, seed=7).astype(np.float32)


@pytest.fixture(scope="module")
def eager(pipeline: Pipeline, field: NDArray[np.float32]) -> NDArray[np.float32]:
    with torch.inference_mode():
        output: NDArray[np.float32] = checkpoint.load(pipeline.run).operator(torch.from_numpy(field[None]))[0].numpy()
    return output


def npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def by_npy(service: Service, field: NDArray[np.float32]) -> NDArray[Any]:
    response = httpx2.post(
        f"{service.url}/v1/models/{MODEL}/predict",
        content=npy(field),
        headers={"Content-Type": "application/x-npy", "Accept": "application/x-npy"},
    ).raise_for_status()
    assert (response.headers["Petrov-Model"], response.headers["Petrov-Version"]) == (MODEL, "1")
    output: NDArray[Any] = np.load(io.BytesIO(response.content))
    return output


def by_json(service: Service, field: NDArray[np.float32]) -> NDArray[Any]:
    request = {"inputs": {"coefficient": field.tolist()}}
    response = httpx2.post(f"{service.url}/v1/models/{MODEL}/predict", json=request).raise_for_status()
    return np.array(response.json()["outputs"]["solution"])


def by_triton_grpc(service: Service, field: NDArray[np.float32]) -> NDArray[Any]:
    client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{service.settings.triton_grpc_port}")
    tensor = tritonclient.grpc.InferInput("coefficient", [1, *field.shape], "FP32")
    tensor.set_data_from_numpy(field[None])
    output: NDArray[Any] = client.infer(MODEL, [tensor]).as_numpy("solution")[0]
    return output


def by_triton_http(service: Service, field: NDArray[np.float32]) -> NDArray[Any]:
    client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{service.settings.triton_http_port}")
    tensor = tritonclient.http.InferInput("coefficient", [1, *field.shape], "FP32")
    tensor.set_data_from_numpy(field[None])
    output: NDArray[Any] = client.infer(MODEL, [tensor]).as_numpy("solution")[0]
    return output


def by_client(service: Service, field: NDArray[np.float32]) -> NDArray[Any]:
    with Client(service.url) as petrov:
        return petrov.predict(MODEL, field)


def by_torchscript(service: Service, field: NDArray[np.float32]) -> NDArray[Any]:
    with Client(service.url) as petrov:
        return petrov.predict(f"{MODEL}_torchscript", field)


def by_grpc_client(service: Service, field: NDArray[np.float32]) -> NDArray[Any]:
    with GrpcClient(f"127.0.0.1:{service.settings.triton_grpc_port}") as petrov:
        return petrov.predict(MODEL, field)


ROUTES = [by_npy, by_json, by_triton_grpc, by_triton_http, by_client, by_torchscript, by_grpc_client]


@pytest.mark.parametrize("predict", ROUTES)
def test_every_route_returns_the_output_of_the_network(
    predict: Any, service: Service, field: NDArray[np.float32], eager: NDArray[np.float32]
) -> None:
    output = predict(service, field)
    assert np.linalg.norm(output - eager) / np.linalg.norm(eager) < TOLERANCE


def test_the_card_has_the_measured_errors(service: Service, pipeline: Pipeline) -> None:
    card = httpx2.get(f"{service.url}/v1/models/{MODEL}").json()
    assert card["card"]["errors"] == [*checkpoint.load(pipeline.run).card.errors]
    assert card["certificate"]["worst"]["float32"] < TOLERANCE


def test_metrics_contain_the_latency(service: Service, field: NDArray[np.float32]) -> None:
    by_client(service, field)
    text = httpx2.get(f"{service.url}/metrics").text
    assert f'petrov_request_duration_seconds_count{{code="200",model="{MODEL}"' in text
    assert f'petrov_triton_duration_seconds_count{{model="{MODEL}"}}' in text


BAD = {
    "NaN": (npy(np.full((43, 43), np.nan, np.float32)), 422, "coefficient[0,0] is nan"),
    "negative": (
        npy(np.full((43, 43), -2, np.float32)),
        422,
        "coefficient[0,0] is -2.0; a permeability must be positive",
    ),
    "rank": (npy(np.ones(43, np.float32)), 422, "coefficient"),
    "small": (npy(np.ones((3, 3), np.float32)), 422, "grid"),
    "large": (npy(np.ones((500, 500), np.float32)), 422, "grid"),
    "huge": (npy(np.ones((5000, 5000), np.float32)), 413, "bytes"),
    "truncated": (npy(np.ones((43, 43), np.float32))[:-7], 400, "byte"),
    "pickled": (npy(np.array([{}], dtype=object)), 422, "pickle"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_located_and_the_service_continues(
    case: str, service: Service, field: NDArray[np.float32]
) -> None:
    body, status, location = BAD[case]
    url, headers = f"{service.url}/v1/models/{MODEL}/predict", {"Content-Type": "application/x-npy"}
    response = httpx2.post(url, content=body, headers=headers)
    assert (response.status_code, response.headers["Content-Type"]) == (status, "application/problem+json")
    assert location in response.text
    assert by_client(service, field).shape == field.shape


def test_a_new_version_is_served_without_a_restart_and_the_previous_one_stays(
    pipeline: Pipeline, service: Service, field: NDArray[np.float32], tmp_path: Path
) -> None:
    """The second version is the first one with other weights: exports number them in `tests/export/publication`."""
    before = by_client(service, field)
    shutil.copytree(pipeline.repository / MODEL / "1", tmp_path / "2")
    model = onnx.load(tmp_path / "2" / to_onnx.FILE)
    [head] = [weights for weights in model.graph.initializer if weights.name.endswith("head.2.weight")]
    head.CopyFrom(numpy_helper.from_array(1.1 * numpy_helper.to_array(head), head.name))
    onnx.save(model, tmp_path / "2" / to_onnx.FILE)
    (tmp_path / "2" / CERTIFICATE).unlink()  # is that of another graph
    document = json.loads((tmp_path / "2" / CARD).read_text())
    write_json(tmp_path / "2" / CARD, document | {"version": 2})
    (tmp_path / "2").rename(pipeline.repository / MODEL / "2")
    with Client(service.url) as petrov:
        wait_until(lambda: 2 in petrov.model(MODEL).versions)
        wait_until(lambda: not np.array_equal(petrov.predict(MODEL, field), before))
        np.testing.assert_allclose(petrov.predict(MODEL, field, version=1), before, rtol=1e-5)


def test_a_killed_triton_under_load_makes_the_service_unavailable_until_it_is_back(
    service: Service, field: NDArray[np.float32]
) -> None:
    with Client(service.url) as petrov:
        stop, errors = threading.Event(), []

        def predict() -> None:
            while not stop.is_set():
                try:
                    petrov.predict(MODEL, field)
                except PetrovError as error:
                    errors.append(error)
                    stop.wait(0.2)

        threads = [threading.Thread(target=predict) for _ in range(4)]
        for thread in threads:
            thread.start()
        [triton] = below(service.process.pid, "tritonserver")
        triton.kill()
        wait_until(lambda: not service.ready())
        wait_until(service.ready, 120)
        stop.set()
        for thread in threads:
            thread.join()
        assert all(isinstance(error, Unavailable) for error in errors), errors
        assert petrov.predict(MODEL, field).shape == field.shape
