"""A model of numbers alone, with a field and numbers as outputs: from data to every protocol of the service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import httpx2
import numpy as np
import pytest
from safetensors.numpy import load, save

from export.repository import is_current, publish
from petrov_client import Client, GrpcClient, InvalidInput
from tests.clients.conftest import Done, petrov  # noqa: F401  a fixture
from tests.conftest import Gateway, RunService
from tests.training.fit.test_scalars import short, waves
from training import checkpoint
from training.fit.run import train

# A training, an export and a start of Triton, on a busy machine.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(600)]
SAFETENSORS = {"Content-Type": "application/vnd.safetensors"}
INPUTS = {"size": [0.5, -0.25], "k": [[1.0, 2.0], [0.5, 0.0]]}
PREDICT = "/v1/models/waves/predict"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("scalars")
    return train(short(waves(folder), folder), folder / "run", folder / "data")


@pytest.fixture(scope="module")
def gateway(run: Path, run_service: RunService) -> Iterator[Gateway]:
    [made] = publish(run, run.parent / "model_repository", "waves")
    assert made.companions == {"vjp": True, "jvp": True}
    assert is_current(run, run.parent / "model_repository", "waves")
    with run_service(run.parent / "model_repository") as found:
        yield found


@pytest.fixture(scope="module")
def http(gateway: Gateway) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=gateway.url, timeout=60) as client:
        yield client


def posted(http: httpx2.Client, path: str, document: Any) -> dict[str, Any]:
    response = http.post(path, json=document)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_a_request_says_the_grid_or_has_the_one_of_the_training(http: httpx2.Client) -> None:
    found = posted(http, PREDICT, {"inputs": INPUTS})["outputs"]
    assert np.shape(found["u"]) == (2, 12, 16)
    assert np.shape(found["energy"]) == (2,)
    assert np.shape(found["ends"]) == (2, 2)
    for answer in (
        posted(http, PREDICT, {"inputs": INPUTS, "grid": [10, 20]}),
        posted(http, f"{PREDICT}?grid=10,20", {"inputs": INPUTS}),
    ):
        assert np.shape(answer["outputs"]["u"]) == (2, 10, 20)
        assert answer["outputs"]["energy"] == pytest.approx(found["energy"], rel=1e-4)  # numbers have no grid
        # But an integral is that of the field that comes with it.
        total = 2 * np.mean(answer["outputs"]["u"], axis=(1, 2))
        assert answer["outputs"]["total"] == pytest.approx(total, rel=1e-4, abs=1e-6)
    assert np.shape(posted(http, PREDICT, {"inputs": INPUTS, "grid": 9})["outputs"]["u"]) == (2, 9, 9)


def test_a_single_sample_and_numbers_for_all_need_no_batch_axis(http: httpx2.Client) -> None:
    every = posted(http, PREDICT, {"inputs": INPUTS})["outputs"]
    one = posted(http, PREDICT, {"inputs": {"size": 0.5, "k": [1.0, 2.0]}})["outputs"]
    assert np.shape(one["u"]) == (12, 16)
    assert one["energy"] == pytest.approx(every["energy"][0], rel=1e-5)
    assert one["ends"] == pytest.approx(every["ends"][0], rel=1e-5)
    both = posted(http, PREDICT, {"inputs": {"size": INPUTS["size"], "k": [1.0, 2.0]}})["outputs"]
    assert both["energy"][0] == pytest.approx(every["energy"][0], rel=1e-5)


def test_numbers_come_with_half_widths_in_their_units(http: httpx2.Client, run: Path) -> None:
    quality = posted(http, PREDICT, {"inputs": INPUTS})["quality"]
    assert np.shape(quality["error_estimate.energy"]) == (2,)
    assert np.shape(quality["error_estimate.ends"]) == (2, 2)
    assert np.min(quality["error_estimate.ends"]) > 0
    assert np.min(quality["error_estimate.total"]) > 0
    rows = checkpoint.load(run).card.calibration["test"][0]["intervals"]
    assert rows["energy"][0]["mean_half_width"] == pytest.approx(np.mean(quality["error_estimate.energy"]), rel=2)
    arrays = {name: np.array(value, np.float32) for name, value in INPUTS.items()}
    response = http.post(PREDICT, content=save(arrays), headers=SAFETENSORS)
    assert load(response.content)["error_estimate.ends"] == pytest.approx(np.array(quality["error_estimate.ends"]))
    assert float(response.headers["Petrov-Error-Estimate-Energy"]) == pytest.approx(
        max(quality["error_estimate.energy"]), rel=1e-4
    )


def test_gradients_of_a_number_are_those_of_differences(http: httpx2.Client) -> None:
    step = 1e-2
    document = {"inputs": INPUTS, "cotangents": {"energy": [1.0, 1.0]}}
    found = posted(http, "/v1/models/waves/vjp", document)
    assert np.shape(found["gradients"]["k"]) == (2, 2)
    moved = [
        posted(http, PREDICT, {"inputs": INPUTS | {"size": [each + h for each in INPUTS["size"]]}})["outputs"]["energy"]
        for h in (step, -step)
    ]
    expected = (np.array(moved[0]) - np.array(moved[1])) / (2 * step)
    assert found["gradients"]["size"] == pytest.approx(expected, rel=2e-2, abs=1e-3)
    along = posted(http, "/v1/models/waves/jvp", {"inputs": INPUTS, "tangents": {"size": [1.0, 1.0]}, "grid": [8, 8]})
    assert along["tangents"]["energy"] == pytest.approx(found["gradients"]["size"], rel=1e-3)
    assert np.shape(along["tangents"]["u"]) == (2, 8, 8)
    of_total, of_field = (
        posted(http, "/v1/models/waves/vjp", {"inputs": INPUTS, "cotangents": cotangents})["gradients"]
        for cotangents in ({"total": [1.0, 1.0]}, {"u": np.full((2, 12, 16), 2 / (12 * 16)).tolist()})
    )
    assert of_total["k"] == pytest.approx(np.array(of_field["k"]), rel=1e-3, abs=1e-5)
    whole = {"inputs": INPUTS, "cotangents": {"u": np.ones((2, 9, 10)).tolist()}}
    assert np.shape(posted(http, "/v1/models/waves/vjp", whole)["outputs"]["u"]) == (2, 9, 10)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"inputs": INPUTS, "grid": [8, 8, 8]}, "grid: expected points along row, column"),
        ({"inputs": INPUTS, "grid": [8, 1]}, 'grid has 1 points along "column"'),
        ({"inputs": INPUTS, "grid": "8"}, "grid: expected a positive whole number"),
        ({"inputs": INPUTS | {"k": [1.0, 2.0, 3.0]}}, "k has shape"),
        ({"inputs": INPUTS | {"size": [1.0, 2.0, 3.0]}}, "expected"),
        ({"inputs": {"size": 1.0}}, 'input "k" is missing'),
    ],
)
def test_what_does_not_fit_is_named(http: httpx2.Client, document: Any, expected: str) -> None:
    response = http.post(PREDICT, json=document)
    assert 400 <= response.status_code < 500
    assert expected in response.json()["detail"]


def test_um_bridge_and_tesseract_take_vectors_and_return_numbers(http: httpx2.Client) -> None:
    every = posted(http, PREDICT, {"inputs": INPUTS})["outputs"]
    evaluated = posted(http, "/umbridge/Evaluate", {"name": "waves", "config": {}, "input": [[0.5], [1.0, 2.0]]})
    field, energy, ends, total = evaluated["output"]
    assert total == pytest.approx(every["total"][:1], rel=1e-4)
    assert len(field) == 12 * 16
    assert energy == pytest.approx(every["energy"][:1], rel=1e-4)
    assert ends == pytest.approx(every["ends"][0], rel=1e-4)
    gradient = posted(
        http,
        "/umbridge/Gradient",
        {"name": "waves", "outWrt": 1, "inWrt": 1, "input": [[0.5], [1.0, 2.0]], "sens": [1.0], "config": {}},
    )
    assert len(gradient["output"]) == 2
    applied = posted(http, "/tesseract/waves/apply", {"inputs": {"size": 0.5, "k": [1.0, 2.0]}})
    assert applied["ends"]["shape"] == [2]
    assert applied["error_estimate.ends"]["shape"] == [2]
    shapes = posted(
        http,
        "/tesseract/waves/abstract_eval",
        {"inputs": {"size": {"shape": [], "dtype": "float32"}, "k": {"shape": [2], "dtype": "float32"}}},
    )
    assert shapes["u"]["shape"] == [12, 16]
    assert shapes["error_estimate.ends"]["shape"] == [2]


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_the_command_line_takes_numbers_and_the_grid(
    http: httpx2.Client,
    gateway: Gateway,
    kind: str,
    tmp_path: Path,
    petrov: Callable[..., Done],  # noqa: F811  as above
) -> None:
    url = gateway.url if kind == "http" else f"grpc://127.0.0.1:{gateway.settings.grpc_port}"
    every = posted(http, PREDICT, {"inputs": INPUTS, "grid": [8, 9]})

    def said(*arguments: object) -> str:
        done = petrov(*arguments, "--url", url)
        return done.stdout + done.stderr

    np.savez(tmp_path / "in.npz", **{name: np.array(value, np.float32) for name, value in INPUTS.items()})
    text = said("predict", "waves", tmp_path / "in.npz", tmp_path / "out.npz", "--grid", "8,9")
    assert "waves version 1" in text, text
    with np.load(tmp_path / "out.npz") as found:
        for name, output in every["outputs"].items():
            assert found[name] == pytest.approx(np.array(output), rel=1e-4, abs=1e-5), name
        for name in ("error_estimate.energy", "error_estimate.ends"):
            assert found[name] == pytest.approx(np.array(every["quality"][name]), rel=1e-3)
    np.savez(tmp_path / "k.npz", k=np.array(INPUTS["k"], np.float32))
    text = said("predict", "waves", tmp_path / "k.npz", tmp_path / "one.h5", "-p", "size=0.5", "--grid", "6")
    assert "waves version 1" in text, text
    with h5py.File(tmp_path / "one.h5") as file:
        assert file["u"].shape == (2, 6, 6)
        assert file["energy"][0] == pytest.approx(every["outputs"]["energy"][0], rel=1e-4)
    assert "--grid" in said("predict", "waves", tmp_path / "in.npz", tmp_path / "out.npz", "--grid", "8x9")
    described = said("model", "waves")
    for part in ("energy", "error_estimate.ends", "k: x, y"):
        assert part in described
    assert ("VRMSE" in described) == (kind == "http")  # gRPC has no card


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_the_clients_take_numbers_and_the_grid(http: httpx2.Client, gateway: Gateway, kind: str) -> None:
    every = posted(http, PREDICT, {"inputs": INPUTS, "grid": [8, 9]})
    address = gateway.url if kind == "http" else f"127.0.0.1:{gateway.settings.grpc_port}"
    with (Client if kind == "http" else GrpcClient)(address) as client:
        found, quality = client.predict("waves", size=INPUTS["size"], k=INPUTS["k"], grid=(8, 9), quality=True)
        for name, output in every["outputs"].items():
            assert found[name] == pytest.approx(np.array(output), rel=1e-4, abs=1e-5), name
        for name in ("energy", "ends"):
            expected = np.array(every["quality"][f"error_estimate.{name}"])
            assert quality.intervals[name] == pytest.approx(expected, rel=1e-3)
        one, about = client.predict("waves", size=0.5, k=[1.0, 2.0], quality=True)
        assert np.shape(one["u"]) == (12, 16)
        assert np.shape(one["energy"]) == ()
        assert np.shape(about.intervals["ends"]) == (2,)
        _, gradients = client.vjp("waves", INPUTS, {"energy": np.ones(2)})
        assert np.shape(gradients["k"]) == (2, 2)
        assert np.shape(gradients["size"]) == (2,)
        with pytest.raises(InvalidInput, match=r"expected 2 numbers \(x, y\)"):
            client.predict("waves", size=0.5, k=[1.0, 2.0, 3.0])
