"""`GET …/example`: stored test samples with their truth, and new samples where the problem has a sampler."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from safetensors.numpy import load, save_file

from serving.local_triton.server import TritonServer
from serving.settings import Settings
from tests.conftest import Gateway

FIELDS = np.random.default_rng(3).uniform(3, 12, (4, 16, 16)).astype(np.float32)
TRUTH = np.sqrt(FIELDS)
TOKENS = np.array([[1, 2, 0], [3, 1, 2]], np.int32)
LABELS = np.array([0, 1], np.int32)


@pytest.fixture(scope="module")
def http(
    triton: TritonServer,
    make_settings: Callable[..., Settings],
    run_gateway: Callable[[Settings], AbstractContextManager[Gateway]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[httpx2.Client]:
    """Connect to a gateway whose `blur` and `tally` have stored examples, and whose other models have none."""
    repository: Path = tmp_path_factory.mktemp("examples") / "repository"
    shutil.copytree(triton.settings.repository, repository)
    save_file({"coefficient": FIELDS, "solution": TRUTH}, repository / "blur" / "1" / "examples.safetensors")
    save_file({"tokens": TOKENS, "labels": LABELS}, repository / "tally" / "1" / "examples.safetensors")
    (repository / "blur_torchscript" / "1" / "examples.safetensors").write_bytes(b"damaged")
    os.mkfifo(repository / "kinds" / "1" / "examples.safetensors")
    settings = make_settings(repository, triton=triton.settings.triton_address)
    with run_gateway(settings) as gateway, httpx2.Client(base_url=gateway.url, timeout=30) as client:
        yield client


def document(http: httpx2.Client, path: str) -> Any:
    response = http.get(f"/v1/models/{path}")
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("index", [0, 3])
def test_a_stored_sample_has_its_truth_beside_it(http: httpx2.Client, index: int) -> None:
    found = document(http, f"blur/example?index={index}")
    np.testing.assert_array_equal(np.array(found["inputs"]["coefficient"], np.float32), FIELDS[index])
    np.testing.assert_array_equal(np.array(found["outputs"]["solution"], np.float32), TRUTH[index])


def test_a_header_counts_the_stored_samples(http: httpx2.Client) -> None:
    assert http.get("/v1/models/blur/example?index=1").headers["Petrov-Examples"] == str(len(FIELDS))
    assert "Petrov-Examples" not in http.get("/v1/models/blur/example?seed=1").headers


def test_safetensors_hold_the_truth_and_npy_the_input(http: httpx2.Client) -> None:
    path = "/v1/models/blur/example?index=2"
    npy = http.get(path, headers={"Accept": "application/x-npy"}).content
    np.testing.assert_array_equal(np.load(io.BytesIO(npy)), FIELDS[2])
    tensors = load(http.get(path, headers={"Accept": "application/vnd.safetensors"}).content)
    assert set(tensors) == {"coefficient", "outputs.solution"}
    np.testing.assert_array_equal(tensors["coefficient"], FIELDS[2])
    np.testing.assert_array_equal(tensors["outputs.solution"], TRUTH[2])
    stored = http.get(path, headers={"Accept": "application/vnd.safetensors"}).content
    sent_back = http.post(
        "/v1/models/blur/predict", content=stored, headers={"Content-Type": "application/vnd.safetensors"}
    )
    assert set(load(sent_back.raise_for_status().content)) >= {"solution"}
    labelled = load(
        http.get("/v1/models/tally/example?index=1", headers={"Accept": "application/vnd.safetensors"}).content
    )
    assert {name: array.tolist() for name, array in labelled.items()} == {"tokens": [3, 1, 2], "outputs.labels": 1}


def test_a_model_of_sequences_shows_its_labels(http: httpx2.Client) -> None:
    assert document(http, "tally/example") == {"inputs": {"tokens": [1, 2, 0]}, "outputs": {"labels": 0}}
    found = document(http, "tally/example?index=1")
    assert found == {"inputs": {"tokens": [3, 1, 2]}, "outputs": {"labels": 1}}
    sent = http.post("/v1/models/tally/predict", json={"inputs": found["inputs"]})
    assert sent.status_code == 200, sent.text


def test_a_sampled_input_has_no_truth(http: httpx2.Client) -> None:
    found = document(http, "blur/example?seed=1&grid=17")
    assert list(found) == ["inputs"]
    assert np.shape(found["inputs"]["coefficient"]) == (17, 17)
    assert document(http, "blur/example") == document(http, "blur/example?seed=0&grid=16")


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("blur/example?index=4", 422, "invalid-parameter"),
        ("blur/example?index=-1", 422, "invalid-parameter"),
        ("blur/example?index=0&seed=1", 422, "invalid-parameter"),
        ("blur_torchscript/example?index=0", 404, "no-example"),
        ("kinds/example", 404, "no-example"),
        ("kinds/example?index=0", 404, "no-example"),
        ("tally/example?seed=1", 404, "no-example"),
    ],
)
def test_what_does_not_exist_is_a_problem(http: httpx2.Client, path: str, status: int, kind: str) -> None:
    response = http.get(f"/v1/models/{path}")
    assert (response.status_code, response.json()["type"]) == (status, f"urn:petrov:problem:{kind}")
