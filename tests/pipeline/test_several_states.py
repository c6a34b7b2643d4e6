"""A model of trajectories of several states, with a history, a mask and a parameter, over the routes of the service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py
import httpx2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from playwright.sync_api import expect

from petrov_client import Client
from serving.frames import PIECE
from tests.conftest import RunService
from tests.pipeline.conftest import DRAWN, PATIENCE, open_page
from tests.pipeline.test_trajectories import (
    FRAMES,
    SETS,
    Service,
    close,
    differentiated,
    lines,
    served,
)
from training import checkpoint

PLANE = """
name = "plane"
[data]
files = ["plane.h5"]
[inputs.start]
key = "velocity"
components = ["x", "y"]
[inputs.depth]
positive = true
[inputs.height]
key = "h"
[parameters.drag]
default = 0.1
[outputs.velocity]
components = ["x", "y"]
[outputs.level]
key = "h"
[axes.row]
boundary = "wall"
[axes.column]
boundary = "periodic"
[time]
step = 0.1
history = 2
horizon = 3
[mask]
key = "inside"
"""
#: A training, an export and a start of Triton, on a busy machine; test_trajectories has the same routes for one state.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(600)]


def planes(samples: int, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Draw the arrays of `plane.h5` on 8 x 12 cells, of which some are no part of the domain."""
    rng = np.random.default_rng(seed)
    height = lines(8 * samples, points=12, seed=seed).reshape(samples, 8, FRAMES, 12).swapaxes(1, 2)
    inside = np.ones((samples, 8, 12), np.float32)
    inside[:, 2:4, 3:6] = 0
    inside[::2, 5, 8:11] = 0
    return {
        "inside": inside,
        "velocity": np.stack([height, -height[:, ::-1]], axis=2),
        "h": height,
        "depth": np.exp(rng.standard_normal((samples, 8, 12))).astype(np.float32),
        "drag": rng.random(samples, np.float32),
    }


def states(samples: int, seed: int = 5) -> dict[str, NDArray[np.float32]]:
    """Draw inputs of `plane`."""
    drawn = planes(samples, seed)
    starts = {"start": drawn["velocity"][:, :2], "depth": drawn["depth"], "height": drawn["h"][:, :2]}
    return starts | {"inside": drawn["inside"], "drag": drawn["drag"]}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, run_service: RunService) -> Iterator[Service]:
    """Serve `plane`, of several states, a history, a mask and a parameter."""
    folder = tmp_path_factory.mktemp("plane")
    with h5py.File(folder / "plane.h5", "w") as file:
        for name, array in planes(20).items():
            file[name] = array
    changes = (*SETS, 'formats=["onnx", "torchscript"]', "operator.step.layers=1")
    yield from served("plane", PLANE, changes, folder, run_service)


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=service.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Client]:
    with Client(service.url) as client:
        yield client


def test_the_service_computes_what_the_trained_network_computes(service: Service, client: Client) -> None:
    inputs = states(2)
    with torch.inference_mode():
        plane = checkpoint.load(service.folder / "plane").operator
        arguments = [torch.from_numpy(np.ascontiguousarray(each)) for each in inputs.values()]
        expected = plane(*arguments, torch.zeros(2, 4, dtype=torch.int32))
    found = client.rollout("plane", inputs, 4)
    assert {name: array.shape for name, array in found.items()} == {
        "velocity": (2, 4, 2, 8, 12),
        "level": (2, 4, 8, 12),
    }
    for output, truth in zip(found.values(), expected, strict=True):
        close(output, truth)


def test_umbridge_has_all_inputs(http: httpx2.Client) -> None:
    assert http.post("/umbridge/InputSizes", json={"name": "plane"}).json()["inputSizes"]


def test_gradients_of_a_rollout_of_several_states(service: Service, client: Client) -> None:
    inputs, rng = states(2), np.random.default_rng(0)
    outputs = client.rollout("plane", inputs, 5)
    seeds = {name: rng.standard_normal(each.shape).astype(np.float32) for name, each in outputs.items()}
    _, gradients = client.vjp("plane", inputs, seeds)
    expected = differentiated(service, "plane", [*inputs.values()], [*seeds.values()])
    for name, truth in zip(inputs, expected, strict=True):
        np.testing.assert_allclose(gradients[name], truth, atol=1e-3 * float(truth.abs().max()))
    level = {"level": seeds["level"]}  # the other cotangent is 0
    velocity = {"velocity": seeds["velocity"]}
    parts = [client.vjp("plane", inputs, each)[1]["depth"] for each in (level, velocity)]
    np.testing.assert_allclose(sum(parts), gradients["depth"], atol=1e-3 * float(np.abs(gradients["depth"]).max()))


def test_a_history_moves_on_between_requests(http: httpx2.Client, client: Client) -> None:
    inputs = {name: array.tolist() for name, array in states(1).items()}
    frames = 70  # more than one request of the client, and several calls of the model
    whole = http.post(f"/v1/models/plane/predict?frames={frames}", json={"inputs": inputs}).json()["outputs"]
    for name, output in client.rollout("plane", states(1), frames).items():
        close(output, whole[name])


def test_a_part_of_the_grid_rolls_out_alone(client: Client, http: httpx2.Client) -> None:
    """What a request holds outside the domain is not read, in streams and in pieces either, and frames are 0 there."""
    inputs, frames = states(2), PIECE + 3
    outside = inputs["inside"] == 0
    expected = client.rollout("plane", inputs, frames)
    for name in ("start", "depth", "height"):
        mask = outside.reshape(2, *(1,) * (inputs[name].ndim - 3), 8, 12)
        inputs[name] = np.where(mask, np.float32(np.nan), inputs[name])
    streamed = [*client.rollout_stream("plane", inputs, frames)]
    for name, found in client.rollout("plane", inputs, frames).items():
        np.testing.assert_array_equal(found, expected[name])
        close(np.stack([frame[name] for frame in streamed], axis=1), expected[name])
        mask = outside.reshape(2, *(1,) * (found.ndim - 3), 8, 12)
        assert not found[np.broadcast_to(mask, found.shape)].any()
        assert found[np.broadcast_to(~mask, found.shape)].all()
    assert client.model("plane").mask == "inside"
    card = http.get("/v1/models/plane").json()["card"]
    assert "spectrum" not in card
    assert len(card["rollout"]) == FRAMES - 2
    inputs.pop("inside")
    lists = {name: np.nan_to_num(array).tolist() for name, array in inputs.items()}
    refused = http.post("/v1/models/plane/predict?frames=2", json={"inputs": lists})
    assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (422, "wrong-input")


@pytest.mark.parametrize("frames", [1, 7])
def test_torchscript_computes_the_same_frames(client: Client, frames: int) -> None:
    inputs = states(2)
    expected, found = (client.rollout(model, inputs, frames) for model in ("plane", "plane_torchscript"))
    for name, array in expected.items():
        assert array.shape[1] == frames
        close(found[name], array)


def test_the_page_shows_what_is_inside(service: Service) -> None:
    with open_page() as page:
        page.goto(f"{service.url}/#plane")
        page.click("#sample")
        expect(page.locator("#sentence")).to_contain_text("from the truth", timeout=PATIENCE)
        expect(page.locator("#frame-shown")).to_have_text("1 of 7, time 0.1")
        pictures = page.locator("figure[data-role=prediction] canvas:not(.ramp)").all()
        assert pictures
        for picture in pictures:
            assert 0.7 < picture.evaluate(DRAWN) < 0.95  # six or nine of 96 cells are outside, and lines are between
        folder = Path("test-artefacts/playground")
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / "masked-trajectory.png", full_page=True)
