"""Models of trajectories: from a problem file with a time axis to rollouts over every route of the service."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import httpx2
import jax
import numpy as np
import pytest
import torch
import tritonclient.grpc as triton_grpc
import zarr
from numpy.typing import NDArray
from playwright.sync_api import expect

from export.__main__ import app as exporting
from petrov_client import AsyncClient, Client, GrpcClient, InvalidInput
from petrov_client._commands.cli import app as petrov
from petrov_client.jax import operator
from petrov_client.torch import Operator
from serving.frames import PIECE
from tests.conftest import Gateway, RunService
from tests.pipeline.conftest import PATIENCE, command, open_page
from training import checkpoint
from training.commands import app as training

LINE = """
name = "line"
[data]
files = ["line.npz"]
validation = 9
[inputs.initial]
key = "u"
[outputs.u]
[axes.x]
boundary = "periodic"
points = "left"
[symmetries]
exact = ["shift_x", "reflect_x"]
[time]
step = 0.5
conserved = ["u"]
"""
pytestmark = pytest.mark.timeout(600)  # a training, an export and a start of Triton, on a busy machine
#: Changes of the preset "tiny".
SETS = ("fit.epochs=1", "operator.step.channels=16", "operator.step.detail=8", "operator.step.spectral=1")
FRAMES = 9


def lines(samples: int, frames: int = FRAMES, points: int = 32, seed: int = 0) -> NDArray[np.float32]:
    """Draw sums of three waves that travel at their own speeds: `[sample, frame, point]`."""
    size, phase = np.random.default_rng(seed).standard_normal((2, samples, 3, 1, 1))
    x, t, k = np.arange(points) / points, np.arange(frames)[:, None] / 20, np.arange(1, 4)[:, None, None]
    return np.asarray((size * np.cos(2 * np.pi * k * (x - k * t + phase))).sum(axis=1), np.float32)


@dataclass(frozen=True)
class Service:
    """A gateway, the Triton behind it, and the folder of the runs."""

    gateway: Gateway
    triton: str
    folder: Path

    @property
    def url(self) -> str:
        return self.gateway.url

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.gateway.settings.grpc_port}"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, run_service: RunService) -> Iterator[Service]:
    """Serve `line`, of one state."""
    folder = tmp_path_factory.mktemp("line")
    np.savez(folder / "line.npz", u=lines(24))
    yield from served("line", LINE, (*SETS, 'formats=["onnx"]', "operator.step.layers=0"), folder, run_service)


def served(name: str, text: str, changes: tuple[str, ...], folder: Path, run_service: RunService) -> Iterator[Service]:
    """Train a problem with the commands that a person types, export it and serve it."""
    (folder / f"{name}.toml").write_text(text)
    sets = [part for change in changes for part in ("--set", change)]
    options = ["--no-amounts", "--preset", "tiny", "--out", folder / name, "--data", folder / "data", *sets]
    command(training, "fit", folder / f"{name}.toml", *options)
    command(exporting, folder / name, "--repository", folder / "model_repository")
    with run_service(folder / "model_repository") as gateway:
        yield Service(gateway, f"127.0.0.1:{gateway.settings.triton_grpc_port}", folder)


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=service.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Client]:
    with Client(service.url) as client:
        yield client


def close(output: Any, expected: Any) -> None:
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)


def test_the_service_computes_what_the_trained_network_computes(service: Service, client: Client) -> None:
    start = lines(3, seed=3)[:, 0]
    with torch.inference_mode():
        line = checkpoint.load(service.folder / "line").operator
        close(client.rollout("line", start, 5), line(torch.from_numpy(start), torch.zeros(3, 5, dtype=torch.int32)))


@pytest.mark.parametrize("frames", [1, PIECE, 2 * PIECE + 3])
def test_a_rollout_is_its_single_steps(client: Client, frames: int) -> None:
    state, found = lines(2, seed=4)[:, 0], client.rollout("line", lines(2, seed=4)[:, 0], frames)
    assert found.shape == (2, frames, 32)
    for frame in range(frames):
        state = client.rollout("line", state, 1)[:, 0]
        close(found[:, frame], state)


def test_umbridge_evaluates_frames(http: httpx2.Client) -> None:
    state = lines(1, seed=5)[0, 0].tolist()
    asked: dict[str, Any] = {"name": "line", "config": {"grid": len(state), "frames": 3}}
    assert http.post("/umbridge/OutputSizes", json=asked).json() == {"outputSizes": [3 * len(state)]}
    body = asked | {"input": [state]}
    [found] = http.post("/umbridge/Evaluate", json=body).json()["output"]
    whole = http.post("/v1/models/line/predict?frames=3", json={"inputs": {"initial": state}}).json()["outputs"]
    close(found, np.ravel(next(iter(whole.values()))))
    sense = {"outWrt": 0, "inWrt": 0, "sens": [1.0] * (3 * len(state))}
    gradient = http.post("/umbridge/Gradient", json=body | sense).json()["output"]
    close(gradient, http_gradient(http, state, frames=3))


def http_gradient(http: httpx2.Client, state: list[float], frames: int) -> list[float]:
    """Return the gradient of the sum of some frames of `line`, over plain HTTP."""
    body = {"inputs": {"initial": state}, "cotangents": {"u": np.ones((frames, len(state))).tolist()}}
    found: list[float] = http.post("/v1/models/line/vjp", json=body).raise_for_status().json()["gradients"]["initial"]
    return found


def differentiated(
    service: Service, model: str, inputs: list[NDArray[np.float32]], cotangents: list[NDArray[np.float32]]
) -> list[torch.Tensor]:
    """Return the gradients of a model by automatic differentiation in double precision."""
    network = checkpoint.load(service.folder / model).operator.double()
    given = [torch.from_numpy(np.ascontiguousarray(each)).double().requires_grad_() for each in inputs]
    outputs = network(*given, torch.zeros(cotangents[0].shape[:2], dtype=torch.int32))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    pairs = zip(outputs, cotangents, strict=True)
    return [*torch.autograd.grad(sum((out * torch.from_numpy(each)).sum() for out, each in pairs), given)]


def test_gradients_of_a_rollout(service: Service, client: Client) -> None:
    start, rng = lines(2, points=45, seed=9)[:, 0], np.random.default_rng(0)
    cotangents = rng.standard_normal((2, 16, 45)).astype(np.float32)
    outputs, gradient = client.vjp("line", start, cotangents)
    close(outputs, client.rollout("line", start, 16))
    [expected] = differentiated(service, "line", [start], [cotangents])
    np.testing.assert_allclose(gradient, expected, atol=1e-4 * float(expected.abs().max()))
    with GrpcClient(service.grpc) as grpc:
        close(grpc.vjp("line", start, cotangents)[1], gradient)
        direction = rng.standard_normal(start.shape).astype(np.float32)
        outputs, tangents = grpc.jvp("line", start, direction, frames=16)
    assert (tangents * cotangents).sum() == pytest.approx((direction * gradient).sum(), rel=1e-3)


def test_torch_and_jax_differentiate_rollouts(client: Client) -> None:
    start, seed = lines(2, seed=7)[:, 0], np.random.default_rng(3).standard_normal((2, 3, 32)).astype(np.float32)
    _, expected = client.vjp("line", start, seed)
    field = torch.from_numpy(start).requires_grad_()
    (Operator(client, "line", frames=3)(field) * torch.from_numpy(seed)).sum().backward()
    assert field.grad is not None
    close(field.grad, expected)
    model = operator(client, "line", frames=3)
    close(jax.vmap(jax.grad(lambda x, c: (model(x) * c).sum()))(start, seed), expected)
    assert Operator(client, "line")(torch.from_numpy(start)).shape == (2, 16, 32)


def test_gradients_of_impossible_frames_are_refused(http: httpx2.Client) -> None:
    start = lines(1)[:, 0].tolist()
    for path, frames in (("vjp", 17), ("vjp?frames=3", 4)):
        body = {"inputs": {"initial": start}, "cotangents": {"u": np.ones((1, frames, 32)).tolist()}}
        response = http.post(f"/v1/models/line/{path}", json=body)
        assert response.status_code == 422
        assert "frames" in response.json()["detail"]
    body = {"inputs": {"initial": start}, "cotangents": {"u": np.ones((1, 0, 32)).tolist()}}
    assert http.post("/v1/models/line/vjp", json=body).status_code in {400, 422}


def test_a_foreign_state_is_more_unusual_than_all_states_of_the_data(service: Service, client: Client) -> None:
    start = lines(8, seed=8)[:, 0]
    foreign = 20 * np.random.default_rng(0).standard_normal((2, 32)).astype(np.float32)
    _, known = client.rollout("line", np.concatenate([start, foreign]), 10, quality=True)
    assert known.novelty.shape == (10, 10)
    states = checkpoint.load(service.folder / "line").card.calibration["inputs"]
    np.testing.assert_allclose(known.novelty[8:, 0], 1 / (states + 1), rtol=1e-5)
    assert np.median(known.novelty[:8, 0]) > 0.1


def test_every_route_takes_frames(http: httpx2.Client, service: Service, client: Client) -> None:
    start = lines(2, seed=6)[:, 0]
    expected, body = client.rollout("line", start, 6), {"inputs": {"initial": start.tolist()}}
    url = "/v1/models/line/predict"
    close(http.post(url, json=body | {"frames": 6}).json()["outputs"]["u"], expected)
    close(http.post(f"{url}?frames=6", json=body).json()["outputs"]["u"], expected)
    file = io.BytesIO()
    np.save(file, start)
    packed = http.post(f"{url}?frames=6", content=file.getvalue(), headers={"Content-Type": "application/x-npy"})
    close(np.load(io.BytesIO(packed.content)), expected)
    tensor = {"name": "initial", "shape": [2, 32], "datatype": "FP32", "data": start.ravel().tolist()}
    output, *known = http.post("/v2/models/line/infer?frames=6", json={"inputs": [tensor]}).json()["outputs"]
    assert output["shape"] == [2, 6, 32]
    assert {each["name"]: each["shape"] for each in known} == {"error_estimate": [2, 6], "novelty": [2, 6]}
    close(np.reshape(output["data"], (2, 6, 32)), expected)
    with GrpcClient(service.grpc) as grpc:
        close(grpc.rollout("line", start, 6), expected)


def test_a_plain_client_of_triton_counts_frames_by_a_shape(service: Service, client: Client) -> None:
    start = lines(2, seed=6)[:, 0]
    tensors = [
        triton_grpc.InferInput("initial", [2, 32], "FP32").set_data_from_numpy(np.ascontiguousarray(start)),
        triton_grpc.InferInput("frame", [2, 6], "INT32").set_data_from_numpy(np.zeros((2, 6), np.int32)),
    ]
    direct = triton_grpc.InferenceServerClient(service.triton)
    close(direct.infer("line", tensors).as_numpy("u"), client.rollout("line", start, 6))
    direct.close()


def test_frames_arrive_one_by_one(service: Service, client: Client) -> None:
    start, done = lines(1, seed=7)[0, 0], []
    whole = client.rollout("line", start, 150, progress=lambda count, total: done.append((count, total)))
    assert whole.shape == (150, 32)
    assert done == [(count, 150) for count in range(1, 151)]
    close(list(client.rollout_stream("line", start, 150)), whole)

    async def streamed() -> list[Any]:
        async with AsyncClient(service.url) as other:
            close(await other.rollout("line", start, 20), whole[:20])
            return [frame async for frame in other.rollout_stream("line", start, 150)]

    close(asyncio.run(streamed()), whole)


def test_what_is_conserved_stays(client: Client) -> None:
    start = lines(2, seed=8)[:, 0] + np.float32([[0.3], [-0.2]])
    means = client.rollout("line", start, 20).astype(np.float64).mean(axis=-1)
    np.testing.assert_allclose(means, np.broadcast_to(start.mean(axis=-1, keepdims=True), means.shape), atol=1e-5)


def test_other_grids_are_accepted(client: Client) -> None:
    assert client.rollout("line", lines(1, points=50, seed=2)[:, 0], 3).shape == (1, 3, 50)


def test_without_a_number_of_frames_a_training_trajectory_follows(client: Client, http: httpx2.Client) -> None:
    start = lines(1, seed=2)[:, 0]
    assert client.rollout("line", start).shape == (1, FRAMES - 1, 32)
    document = http.get("/v1/models/line/example?index=0").json()
    response = http.post("/v1/models/line/predict?frames=2", json={"inputs": document["inputs"]})
    assert np.shape(response.json()["outputs"]["u"]) == (1, 2, 32)[3 - np.ndim(document["outputs"]["u"]) :]
    card = http.get("/v1/models/line").json()["card"]
    assert card["frames"] == {"step": 0.5, "history": 1, "states": ["initial"], "trained": 8, "maximum": 1000}
    assert [row["frame"] for row in card["rollout"]] == list(range(1, 9))


def test_a_response_has_the_error_estimate_of_every_frame(http: httpx2.Client) -> None:
    rows, body = http.get("/v1/models/line").json()["card"]["rollout"], {"inputs": {"initial": lines(2)[:, 0].tolist()}}
    for frames in (1, 8):
        quality = http.post(f"/v1/models/line/predict?frames={frames}", json=body).json()["quality"]
        known = [row["error_estimate"] for row in rows[:frames]]
        assert quality["error_estimate"] == [pytest.approx(known)] * 2


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "1001", "9" * 30])
def test_impossible_numbers_of_frames_are_refused(http: httpx2.Client, text: str) -> None:
    start = lines(1)[:, 0].tolist()
    response = http.post(f"/v1/models/line/predict?frames={text}", json={"inputs": {"initial": start}})
    assert response.status_code == 422
    assert response.json()["type"] == "urn:petrov:problem:invalid-parameter"
    assert "frames" in response.json()["detail"]


def test_frames_of_large_batches_are_bounded(http: httpx2.Client, service: Service) -> None:
    batch = np.zeros((400, 128), np.float32)
    limit = service.gateway.settings.max_body_bytes // batch.nbytes
    assert limit < 1000
    file = io.BytesIO()
    np.save(file, batch)
    headers = {"Content-Type": "application/x-npy"}
    response = http.post("/v1/models/line/predict?frames=1000", content=file.getvalue(), headers=headers)
    assert response.status_code == 422
    assert f"expected at most {limit}" in response.json()["detail"]


@pytest.mark.parametrize("frames", [0, "3", 2.0, -1])
def test_a_body_with_impossible_frames_is_refused(http: httpx2.Client, frames: Any) -> None:
    body = {"inputs": {"initial": lines(1)[:, 0].tolist()}, "frames": frames}
    assert http.post("/v1/models/line/predict", json=body).status_code in {400, 422}


def test_the_client_refuses_what_cannot_be_rolled_out(client: Client) -> None:
    with pytest.raises(InvalidInput, match="at least one frame"):
        client.rollout("line", lines(1)[:, 0], 0)


def test_the_page_shows_frame_by_frame(service: Service) -> None:
    with open_page() as page:
        page.goto(f"{service.url}/#line")
        page.click("#sample")
        expect(page.locator("#sentence")).to_contain_text("from the truth", timeout=PATIENCE)
        expect(page.locator("#frame-shown")).to_have_text("1 of 8, time 0.5")
        first = page.locator("#error").inner_text()
        drawn = "node => node.width + ',' + node.height"
        sizes = [picture.evaluate(drawn) for picture in page.locator("#times figure canvas:not(.ramp)").all()]
        assert sizes == ["32,8"] * 3
        page.locator("#frame").fill("2")
        expect(page.locator("#frame-shown")).to_have_text("2 of 8, time 1")
        expect(page.locator("#error")).not_to_have_text(first)
        page.locator("#frame").fill("8")
        page.click("#play")
        expect(page.locator("#frame-shown")).to_have_text("8 of 8, time 4", timeout=PATIENCE)
        expect(page.locator("#play")).to_have_text("Play")
        with page.expect_download() as waiting:
            page.click("#download-output")
        assert np.load(waiting.value.path()).shape[-2:] == (8, 32)
        folder = Path("test-artefacts/playground")
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / "trajectory.png", full_page=True)


def test_the_command_writes_a_trajectory(service: Service, tmp_path: Path, client: Client) -> None:
    start = lines(2, seed=9)[:, 0]
    np.save(tmp_path / "start.npy", start)
    options = ["--url", service.url, "--frames", "12"]
    command(petrov, "rollout", "line", tmp_path / "start.npy", tmp_path / "out.h5", *options)
    with h5py.File(tmp_path / "out.h5") as file:
        close(file["u"][:], client.rollout("line", start, 12))
    command(petrov, "rollout", "line", tmp_path / "start.npy", tmp_path / "out.zarr", *options)
    close(zarr.open_group(str(tmp_path / "out.zarr"), mode="r")["u"][:], client.rollout("line", start, 12))
