"""From samples to answers: every road gives the same field, and the service survives what happens to services."""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
import psutil
import pytest
import torch
import tritonclient.grpc
import tritonclient.http
from numpy.typing import NDArray

import physics.darcy
from petrov_client import Client, GrpcClient, PetrovError, Unavailable
from tests.conftest import wait_until
from training import checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipeline.conftest import Service, Story

MODEL = "darcy_tiny"
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def field() -> NDArray[np.float32]:
    return physics.darcy.example(43, seed=7).astype(np.float32)


@pytest.fixture(scope="module")
def eager(story: Story, field: NDArray[np.float32]) -> NDArray[np.float32]:
    with torch.inference_mode():
        answer: NDArray[np.float32] = checkpoint.load(story.run).operator(torch.from_numpy(field[None]))[0].numpy()
    return answer


def npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def by_npy(service: Service, field: NDArray[np.float32]) -> NDArray[Any]:
    answer = httpx2.post(
        f"{service.url}/v1/models/{MODEL}/predict",
        content=npy(field),
        headers={"Content-Type": "application/x-npy", "Accept": "application/x-npy"},
    ).raise_for_status()
    assert (answer.headers["Petrov-Model"], answer.headers["Petrov-Version"]) == (MODEL, "1")
    found: NDArray[Any] = np.load(io.BytesIO(answer.content))
    return found


def by_json(service: Service, field: NDArray[np.float32]) -> NDArray[Any]:
    question = {"inputs": {"coefficient": field.tolist()}}
    answer = httpx2.post(f"{service.url}/v1/models/{MODEL}/predict", json=question).raise_for_status()
    return np.array(answer.json()["outputs"]["solution"])


def by_triton_grpc(service: Service, field: NDArray[np.float32]) -> NDArray[Any]:
    client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{service.settings.triton_grpc_port}")
    question = tritonclient.grpc.InferInput("coefficient", [1, *field.shape], "FP32")
    question.set_data_from_numpy(field[None])
    found: NDArray[Any] = client.infer(MODEL, [question]).as_numpy("solution")[0]
    return found


def by_triton_http(service: Service, field: NDArray[np.float32]) -> NDArray[Any]:
    client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{service.settings.triton_http_port}")
    question = tritonclient.http.InferInput("coefficient", [1, *field.shape], "FP32")
    question.set_data_from_numpy(field[None])
    found: NDArray[Any] = client.infer(MODEL, [question]).as_numpy("solution")[0]
    return found


def by_client(service: Service, field: NDArray[np.float32]) -> NDArray[Any]:
    with Client(service.url) as petrov:
        return petrov.predict(MODEL, field)


def by_torchscript(service: Service, field: NDArray[np.float32]) -> NDArray[Any]:
    with Client(service.url) as petrov:
        return petrov.predict(f"{MODEL}_torchscript", field)


def by_grpc_client(service: Service, field: NDArray[np.float32]) -> NDArray[Any]:
    with GrpcClient(f"127.0.0.1:{service.settings.triton_grpc_port}") as petrov:
        return petrov.predict(MODEL, field)


ROADS = [by_npy, by_json, by_triton_grpc, by_triton_http, by_client, by_torchscript, by_grpc_client]


@pytest.mark.parametrize("road", ROADS)
def test_every_road_gives_the_networks_answer(
    road: Any, service: Service, field: NDArray[np.float32], eager: NDArray[np.float32]
) -> None:
    answer = road(service, field)
    assert np.linalg.norm(answer - eager) / np.linalg.norm(eager) < TOLERANCE


def test_the_card_tells_what_was_measured(service: Service, story: Story) -> None:
    card = httpx2.get(f"{service.url}/v1/models/{MODEL}").json()
    assert card["card"]["errors"] == checkpoint.load(story.run).card["errors"]
    assert card["certificate"]["worst"]["float32"] < TOLERANCE


def test_prometheus_sees_the_latency(service: Service, field: NDArray[np.float32]) -> None:
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
def test_bad_input_is_named_and_harms_nothing(case: str, service: Service, field: NDArray[np.float32]) -> None:
    body, status, place = BAD[case]
    url, headers = f"{service.url}/v1/models/{MODEL}/predict", {"Content-Type": "application/x-npy"}
    answer = httpx2.post(url, content=body, headers=headers)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
    assert place in answer.text
    assert by_client(service, field).shape == field.shape


def test_a_release_answers_without_a_restart_and_the_version_before_stays(
    story: Story, service: Service, field: NDArray[np.float32], tmp_path: Path
) -> None:
    before = by_client(service, field)
    story.train(tmp_path / "again", "fit.epochs=1")
    story.export(tmp_path / "again", "--name", MODEL)
    with Client(service.url) as petrov:
        wait_until(lambda: 2 in petrov.model(MODEL).versions)
        wait_until(lambda: not np.array_equal(petrov.predict(MODEL, field), before))
        np.testing.assert_allclose(petrov.predict(MODEL, field, version=1), before, rtol=1e-5)


def test_killing_triton_under_load_is_told_as_unavailable_and_passes(
    story: Story, serve: Any, field: NDArray[np.float32]
) -> None:
    with serve(story.repository) as service, Client(service.url) as petrov:
        stop, faults = threading.Event(), []

        def ask() -> None:
            while not stop.is_set():
                try:
                    petrov.predict(MODEL, field)
                except PetrovError as fault:
                    faults.append(fault)
                    stop.wait(0.2)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        children = psutil.Process(service.process.pid).children(recursive=True)
        [triton] = [child for child in children if child.name() == "tritonserver"]
        triton.kill()
        wait_until(lambda: not service.ready())
        wait_until(service.ready, 120)
        stop.set()
        for thread in threads:
            thread.join()
        assert all(isinstance(fault, Unavailable) for fault in faults), faults
        assert petrov.predict(MODEL, field).shape == field.shape
