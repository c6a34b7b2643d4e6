"""Domains of any shape become a served model: a folder of VTU files of unequal size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import meshio
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from numpy.typing import NDArray
from playwright.sync_api import Browser
from safetensors.numpy import load, save
from typer.testing import CliRunner

from export.__main__ import app as exporting
from petrov_client import Client, GrpcClient
from petrov_client._commands.cli import app as petrov
from tests.conftest import Gateway, RunService
from tests.pipeline.conftest import DRAWN, command
from tests.pipeline.test_playground import Visit, browser  # noqa: F401  a fixture
from tests.toy_meshes import write_stars
from training.commands import app
from training.data.readers import open_file

pytestmark = [
    pytest.mark.deep,
    pytest.mark.timeout(600),
]  # a training, an export and a start of Triton, on a busy machine
SAFETENSORS = {"Content-Type": "application/vnd.safetensors"}
FIELDS = ("boundary", "distance", "source")
Sample = dict[str, "NDArray[np.float32]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("own")
    write_stars(made / "stars", 60)
    drawn = (
        CliRunner()
        .invoke(app, ["describe", str(made / "stars"), "--outputs", "solution"], catch_exceptions=False)
        .stdout
    )
    text = drawn[drawn.index("# ") :].replace("validation = 0.1", "validation = 0.2")
    (made / "stars.toml").write_text(text)
    return made


@pytest.fixture(scope="module")
def gateway(
    folder: Path,
    run_service: RunService,
) -> Iterator[Gateway]:
    """Train, export and serve the meshes with the commands that a person types."""
    options = ["--no-amounts", "--preset", "tiny", "--out", folder / "stars_tiny", "--data", folder / "data"]
    command(app, "fit", folder / "stars.toml", *options)
    command(exporting, folder / "stars_tiny", "--repository", folder / "model_repository")
    with run_service(folder / "model_repository") as found:
        yield found


@pytest.fixture(scope="module")
def samples(folder: Path) -> list[Sample]:
    """Read two of the meshes, of unequal size, as a request has them."""
    found = []
    for number in (0, 1):
        with open_file(folder / "stars" / f"{number:04}.vtu") as file:
            found.append({name: file.array(name).read()[0] for name in ("coordinates", *FIELDS)})
    assert len({len(one["source"]) for one in found}) == 2
    return found


@pytest.fixture(scope="module")
def http(gateway: Gateway) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=gateway.url, timeout=60) as client:
        yield client


def padded(samples: list[Sample]) -> dict[str, NDArray[np.float32]]:
    """Return samples as batches, padded with NaN, with their counts."""
    counts = np.asarray([len(one["source"]) for one in samples], np.float32)
    most = int(counts.max())

    def longer(values: NDArray[np.float32]) -> NDArray[np.float32]:
        ends = [(0, most - len(values)), *[(0, 0)] * (values.ndim - 1)]
        return np.pad(values, ends, constant_values=np.nan)

    names = ("coordinates", *FIELDS)
    batches = {name: np.stack([longer(one[name]) for one in samples]) for name in names}
    return {name: np.ascontiguousarray(batch) for name, batch in batches.items()} | {"counts": counts}


def alone(http: httpx2.Client, one: Sample) -> NDArray[np.float64]:
    """Return the prediction of one sample."""
    response = http.post(
        "/v1/models/stars_tiny/predict", json={"inputs": {name: value.tolist() for name, value in one.items()}}
    )
    assert response.status_code == 200, response.text
    return np.asarray(response.json()["outputs"]["solution"])


def test_the_card_says_what_the_points_are(http: httpx2.Client, folder: Path) -> None:
    card = http.get("/v1/models/stars_tiny").json()["card"]
    assert card["inputs"][0]["axes"] == ["batch", "point", "component"]
    assert card["parameters"][0]["name"] == "counts"
    assert "those of the training samples have x from" in card["grid"]["points"]
    assert set(card["quality"]) == {"error_estimate", "novelty"}
    assert card["errors"][0]["relative_l2"] < 0.6
    certificate = json.loads((folder / "model_repository/stars_tiny/1/certificate.json").read_text())
    assert [2, 7] not in [one["shape"] for one in certificate["comparisons"]]  # which was traced
    assert certificate["worst"]["float32"] < 1e-5


def test_cells_stand_for_what_follows_from_them(http: httpx2.Client, samples: list[Sample], folder: Path) -> None:
    """The same request with triangles, of samples of unequal size, in place of the boundary and the distance to it."""
    triangles = [meshio.read(folder / "stars" / f"{number:04}.vtu").cells_dict["triangle"] for number in (0, 1)]
    inputs = {name: [one[name].tolist() for one in samples] for name in ("coordinates", "source")}
    request = {"inputs": inputs, "cells": [each.tolist() for each in triangles]}
    response = http.post("/v1/models/stars_tiny/predict", json=request)
    assert response.status_code == 200, response.text
    for values, one in zip(response.json()["outputs"]["solution"], samples, strict=True):
        np.testing.assert_allclose(values, alone(http, one), rtol=0, atol=1e-4)
    request["cells"][1][2][0] = 10**6
    refused = http.post("/v1/models/stars_tiny/predict", json=request)
    assert (refused.status_code, refused.json()["where"]["pointer"]) == (422, "/cells/1/2/0")


def test_lists_of_unequal_samples(http: httpx2.Client, samples: list[Sample]) -> None:
    inputs = {name: [one[name].tolist() for one in samples] for name in samples[0]}
    response = http.post("/v1/models/stars_tiny/predict", json={"inputs": inputs})
    assert response.status_code == 200, response.text
    found = response.json()["outputs"]["solution"]
    assert [*map(len, found)] == [len(one["source"]) for one in samples]
    for values, one in zip(found, samples, strict=True):
        np.testing.assert_allclose(values, alone(http, one), rtol=0, atol=1e-5)
    inputs["source"][1] = inputs["source"][1][:-1]
    refused = http.post("/v1/models/stars_tiny/predict", json={"inputs": inputs}).json()
    count = len(samples[1]["source"])
    assert refused["detail"] == f"source[1] has {count - 1} points; coordinates[1] has {count}"


def test_padded_arrays_with_counts(http: httpx2.Client, samples: list[Sample]) -> None:
    arrays = padded(samples)
    response = http.post("/v1/models/stars_tiny/predict", content=save(arrays), headers=SAFETENSORS)
    assert response.status_code == 200, response.text
    found = load(response.content)
    for values, one in zip(found["solution"], samples, strict=True):
        count = len(one["source"])
        np.testing.assert_allclose(values[:count], alone(http, one), rtol=0, atol=1e-5)
        assert not values[count:].any()
    assert found["novelty"].shape == (2,)


@pytest.mark.parametrize(("counts", "sentence"), [(2.5, "is 2.5"), (3, "is 3"), (1000, "is 1000")])
def test_counts_outside_the_limits_are_refused(
    counts: float, sentence: str, http: httpx2.Client, samples: list[Sample]
) -> None:
    arrays = padded(samples)
    arrays["counts"][1] = counts
    response = http.post("/v1/models/stars_tiny/predict", content=save(arrays), headers=SAFETENSORS)
    assert response.status_code == 422
    assert response.json()["detail"].startswith(f"counts[1] {sentence}; expected a whole number from 4 to")


def test_the_python_client(gateway: Gateway, http: httpx2.Client, samples: list[Sample]) -> None:
    arrays = padded(samples)
    for name in ("coordinates", *FIELDS):
        arrays[name] = np.nan_to_num(arrays[name])
    with Client(gateway.url) as client:
        found = client.predict("stars_tiny", arrays)
    np.testing.assert_allclose(found[0][: len(samples[0]["source"])], alone(http, samples[0]), rtol=0, atol=1e-5)


def test_grpc(gateway: Gateway, http: httpx2.Client, samples: list[Sample]) -> None:
    arrays, settings = padded(samples), gateway.settings
    expected = [alone(http, one) for one in samples]

    def close(found: NDArray[np.float32]) -> None:
        for values, one in zip(found, expected, strict=True):
            np.testing.assert_allclose(values[: len(one)], one, rtol=0, atol=1e-5)
            assert not values[len(one) :].any()

    for port in (settings.grpc_port, settings.triton_grpc_port):
        with triton_grpc.InferenceServerClient(f"127.0.0.1:{port}") as client:
            shape = [len(arrays["counts"]), 1] if port == settings.triton_grpc_port else [len(arrays["counts"])]
            sent = arrays | {"counts": arrays["counts"].reshape(shape)}
            tensors = [triton_grpc.InferInput(name, value.shape, "FP32") for name, value in sent.items()]
            for tensor, value in zip(tensors, sent.values(), strict=True):
                tensor.set_data_from_numpy(value)
            close(client.infer("stars_tiny", tensors).as_numpy("solution"))
        with GrpcClient(f"127.0.0.1:{port}") as client:
            close(client.predict("stars_tiny", {name: np.nan_to_num(value) for name, value in arrays.items()}))


def test_a_mesh_file_becomes_a_mesh_file(
    gateway: Gateway, folder: Path, http: httpx2.Client, samples: list[Sample], tmp_path: Path
) -> None:
    source, target, expected = folder / "stars/0001.vtu", tmp_path / "out.vtu", alone(http, samples[1])
    arguments = ["predict", "stars_tiny", str(source), str(target), "--url", gateway.url]
    done = CliRunner().invoke(petrov, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found, known = meshio.read(target), meshio.read(source)
    np.testing.assert_allclose(found.point_data["solution"], expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(found.point_data["source"], known.point_data["source"])
    np.testing.assert_array_equal(found.cells_dict["triangle"], known.cells_dict["triangle"])
    with Client(gateway.url) as client:
        made, quality = client.predict("stars_tiny", known, quality=True)
    np.testing.assert_allclose(made.point_data["solution"], expected, rtol=0, atol=1e-5)
    assert np.shape(quality.novelty) == ()


def test_the_open_inference_protocol(http: httpx2.Client, samples: list[Sample]) -> None:
    one = samples[0]
    inputs = [
        {"name": name, "datatype": "FP32", "shape": [1, *value.shape], "data": value.ravel().tolist()}
        for name, value in one.items()
    ]
    response = http.post("/v2/models/stars_tiny/infer", json={"inputs": inputs})
    assert response.status_code == 200, response.text
    found = {each["name"]: each["data"] for each in response.json()["outputs"]}
    np.testing.assert_allclose(found["solution"], alone(http, one), rtol=0, atol=1e-5)


def test_derivatives_by_the_coordinates(http: httpx2.Client, samples: list[Sample]) -> None:
    one: dict[str, Any] = {name: value.tolist() for name, value in samples[0].items()}
    weights = np.random.default_rng(0).standard_normal(len(samples[0]["source"]))
    body = {"inputs": one, "cotangents": {"solution": weights.tolist()}}
    response = http.post("/v1/models/stars_tiny/vjp", json=body)
    assert response.status_code == 200, response.text
    gradient = np.asarray(response.json()["gradients"]["coordinates"])
    step = 3e-4 * gradient / np.abs(gradient).max()
    moved = ({**samples[0], "coordinates": samples[0]["coordinates"] + sign * step} for sign in (1, -1))
    ahead, behind = (float(weights @ alone(http, each)) for each in moved)
    assert ahead - behind == pytest.approx(2 * float((gradient * step).sum()), rel=0.1)


def test_a_domain_of_another_size_is_more_unusual_than_all_others(http: httpx2.Client, samples: list[Sample]) -> None:
    usual, far = samples[0], {**samples[0], "coordinates": 5 * samples[0]["coordinates"]}
    bodies = ({"inputs": {name: value.tolist() for name, value in one.items()}} for one in (usual, far))
    one, other = (http.post("/v1/models/stars_tiny/predict", json=body).json()["quality"]["novelty"] for body in bodies)
    assert other[0] < 0.05 < one[0]  # there are some thirty to compare it with


def test_the_playground_draws_meshes(gateway: Gateway, browser: Browser) -> None:  # noqa: F811  as above
    draws_domains(Visit(browser, gateway.url), "stars_tiny", 0.4, 0.9)


def draws_domains(visit: Visit, model: str, low: float, high: float) -> None:
    """Check the share of its pictures that a model's domain covers."""
    visit.choose(model)
    visit.page.click("#sample-after")
    assert "from the truth" in visit.settled("from the truth")
    visit.picture(model)
    for role in ("input", "prediction", "classical", "difference"):
        assert low < visit.surface(role).evaluate(DRAWN) < high, role
    assert not visit.page.locator("#left-out").is_visible()
    visit.context.close()
    assert (visit.errors, visit.foreign) == ([], [])
