"""Released models behind the service: tolerances, data misfit, and verification that finds corrupted weights."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import numpy as np
import onnx
import pytest
import yaml
from numpy.typing import NDArray
from onnx import numpy_helper

import physics.darcy
from export.graphs import to_onnx
from export.released import FOLDER
from export.triton_config import CARD, CERTIFICATE, CONFIG
from petrov_client import Client, GrpcClient, InvalidInput
from physics import burgers, cole_hopf, navier_stokes
from physics.families import FAMILIES
from physics.numerics.grid import axis
from tests.conftest import Gateway, RunService, wait_until
from training.files import write_json

pytestmark = [pytest.mark.deep, pytest.mark.timeout(900)]  # a start of Triton, on a busy machine
ROOT = Path(__file__).parents[2]
POINTS = 43
SEEDS = range(10, 14)  # of the fields whose predictions are verified


@dataclass(frozen=True)
class Wrong:
    """The alert for wrong predictions: the mean true error above which it fires, in units of the mean estimate."""

    factor: float

    @classmethod
    def read(cls) -> Wrong:
        """Return the alert of deploy/prometheus/alerts.yml."""
        groups = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"]
        [rule] = [rule for group in groups for rule in group["rules"] if rule.get("alert") == "PetrovWrong"]
        pattern = r"model:petrov_true_error:mean1h > (\d+) \* model:petrov_error_estimate:mean1h"
        found = re.fullmatch(pattern, rule["expr"])
        assert found is not None
        return cls(float(found[1]))

    def fires(self, text: str, model: str) -> bool:
        """Return whether its condition holds for the means of all predictions so far."""
        return mean(text, "petrov_true_error", model) > self.factor * mean(text, "petrov_error_estimate", model)


def number(text: str, name: str, model: str) -> float:
    """Return the value of a metric; 0 where there is none yet."""
    found = re.search(rf'^{name}{{model="{model}"}} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def mean(text: str, name: str, model: str) -> float:
    return number(text, f"{name}_sum", model) / number(text, f"{name}_count", model)


def publish(repository: Path, *models: str) -> None:
    """Copy the released versions of models, and their configs, into a repository."""
    for model in models:
        name = model.removesuffix("_refined")
        shutil.copytree(ROOT / "checkpoints" / name / FOLDER / model, repository / model / "1")
        shutil.copyfile(ROOT / "model_repository" / model / CONFIG, repository / model / CONFIG)


def corrupt(repository: Path, name: str, to: str) -> None:
    """Copy a model of `darcy` under another name, with noise on the weights of its last layer."""
    folder = repository / to
    shutil.copytree(repository / name, folder)
    model = onnx.load(folder / "1" / to_onnx.FILE)
    [head] = [weights for weights in model.graph.initializer if weights.name.endswith("correction.head.weight")]
    noise = np.random.default_rng(0).standard_normal(head.dims).astype(np.float32)
    head.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(head) + noise, head.name))
    onnx.save(model, folder / "1" / to_onnx.FILE)
    (folder / "1" / CERTIFICATE).unlink()  # with which it would not be loaded
    described = json.loads((folder / "1" / CARD).read_text())
    write_json(folder / "1" / CARD, described | {"model": to})
    config = (folder / CONFIG).read_text()
    (folder / CONFIG).write_text(config.replace(f'name: "{name}"', f'name: "{to}"', 1))


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory,
    run_service: RunService,
) -> Iterator[Gateway]:
    """Yield a service of models with a solver, of `darcy` with corrupted weights, and of `darcy_inverse`."""
    repository = tmp_path_factory.mktemp("trust")
    publish(repository, "darcy", "darcy_refined", "darcy_inverse", "burgers", "navier_stokes")
    corrupt(repository, "darcy", "corrupted")
    with run_service(repository, shadow_share=1.0) as gateway:
        yield gateway


@pytest.fixture
def client(service: Gateway) -> Iterator[Client]:
    with Client(service.url, timeout=60) as made:
        yield made


def permeability(seed: int) -> NDArray[np.float32]:
    return physics.darcy.example(POINTS, seed).astype(np.float32)


@pytest.mark.parametrize(
    ("tolerance", "by", "refined"),
    [(0.2, "network", False), (1e-2, "refined", True), (1e-5, "refined", True), (2e-6, "solver", True)],
)
def test_the_bound_of_a_response_is_within_the_tolerance(
    service: Gateway, client: Client, tolerance: float, by: str, refined: bool
) -> None:
    field, before = permeability(1), refinements(service)
    output, quality = client.predict("darcy", field, tolerance=tolerance, quality=True)
    with GrpcClient(f"127.0.0.1:{service.settings.grpc_port}") as grpc:
        other, known = grpc.predict("darcy", field, tolerance=tolerance, quality=True)
    np.testing.assert_allclose(other, output, rtol=1e-4)
    for each in (quality, known):
        assert each.error_bound <= tolerance
        assert each.solved_by == by
    assert refinements(service) - before == 2 * refined
    assert physics.darcy.bound(field, output) <= 2 * tolerance  # this bound is twice the distance at worst
    if by == "solver":
        assert physics.darcy.bound(field, output) <= tolerance


@pytest.mark.parametrize(
    ("family", "by"),
    [
        ("3 / 12, as trained", "network"),
        ("smooth log-normal", "refined"),
        ("thin inclusions", "refined"),
        ("contrast 10", "refined"),
        ("contrast 100", "solver"),
        ("contrast 10000", "solver"),
    ],
)
def test_hard_and_foreign_inputs_are_converged_without_a_demand(client: Client, family: str, by: str) -> None:
    field = FAMILIES[family](np.random.default_rng(3), axis(POINTS)).astype(np.float32)
    output, quality = client.predict("darcy", field, quality=True)
    assert quality.solved_by == by
    assert quality.solve_bound <= (1e-2 if by == "network" else 1e-4)
    if by != "network":
        plain = physics.darcy.solve(field)
        assert np.linalg.norm(output - plain) < 1e-4 * np.linalg.norm(plain)
        assert quality.outside
        assert np.isnan(quality.error_estimate)


def test_a_constant_at_the_end_of_single_precision_is_solved(client: Client) -> None:
    output = client.predict("darcy", np.full((POINTS, POINTS), 3e38, np.float32), outside="answer", quality=True)[0]
    exact = physics.darcy.solve(np.ones((POINTS, POINTS)))
    np.testing.assert_allclose(output.astype(float) * 3e38, exact, rtol=1e-3, atol=1e-6)


def test_foreign_inputs_of_burgers_are_solved(client: Client) -> None:
    front = 3 * np.sign(np.sin(2 * np.pi * np.arange(512) / 512)).astype(np.float32)
    assert client.predict("burgers", burgers.example(512, 7), quality=True)[1].solved_by == "network"
    output, quality = client.predict("burgers", front, outside="answer", quality=True)
    np.testing.assert_allclose(output, cole_hopf.converged(front), atol=1e-5)
    assert (quality.solved_by, quality.outside) == ("solver", True)
    assert np.isnan(quality.error_estimate)


@pytest.mark.deep
def test_foreign_flows_take_smaller_steps(service: Gateway, client: Client) -> None:
    usual = navier_stokes.initial_vorticity(np.random.default_rng(7), 1)[0].astype(np.float32)
    x = np.arange(64) / 64
    fast = (6 * np.sin(8 * np.pi * x)[:, None] + 30 * np.cos(2 * np.pi * x)).astype(np.float32)
    # Nine frames take two calls of the model.
    frames, quality = client.rollout("navier_stokes", np.stack([usual, fast]), 9, quality=True)
    assert quality.solved_by == "mixed"
    expected = navier_stokes.trajectory(fast, 9, 1.0)
    np.testing.assert_allclose(frames[1], expected, atol=1e-3 * np.abs(expected).max())
    whole = httpx2.post(
        f"{service.url}/v1/models/navier_stokes/predict?frames=3",
        json={"inputs": {"initial": fast.tolist()}},
        timeout=60,
    ).json()
    np.testing.assert_allclose(whole["outputs"]["vorticity"], expected[:3], atol=1e-3 * np.abs(expected).max())
    assert whole["quality"]["solved_by"] == "solver"
    # What the solver does not accept keeps the network's answer, marked.
    _, quality = client.rollout("navier_stokes", 1e4 * fast, 1, quality=True)
    assert (quality.solved_by, bool(np.all(quality.outside))) == ("network", True)


def refinements(service: Gateway) -> float:
    """Return how many fields the refinement of `darcy` has computed."""
    found = re.search(r'^petrov_fields_total{grid="\w+",model="darcy_refined"} (\S+)$', metrics(service), re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_a_tolerance_is_refused_where_no_solver_meets_it(client: Client) -> None:
    with pytest.raises(InvalidInput, match='"darcy_inverse" reports no error_bound, and no classical solver'):
        client.predict("darcy_inverse", pressure(2), tolerance=1e-2)
    with pytest.raises(InvalidInput, match=r"has an error_bound of .*; expected at most 1e-12"):
        client.predict("darcy", permeability(2), tolerance=1e-12)


def pressure(seed: int) -> NDArray[np.float32]:
    return physics.darcy.example_pressure(85, seed).astype(np.float32)


def test_every_route_reports_the_misfit(service: Gateway, client: Client) -> None:
    low_and_high = physics.darcy.permeability(np.subtract.outer(axis(85), axis(85)), 1.0, 60.0)
    foreign = physics.darcy.solve(low_and_high).astype(np.float32)  # of no two materials with a ratio of 4
    fields = np.stack([pressure(3), 2 * pressure(3), foreign])
    found, quality = client.predict("darcy_inverse", fields, quality=True)
    assert quality.misfit[0] < 0.02
    assert quality.misfit[1] == pytest.approx(quality.misfit[0], rel=1e-3)
    np.testing.assert_allclose(2 * found[1], found[0], rtol=1e-4)
    assert quality.misfit[2] > 10 * quality.misfit[0]
    unknown, known = (client.predict("darcy_inverse", fields, noise=each, quality=True)[0] for each in (-1.0, 1e-4))
    np.testing.assert_allclose(unknown, found, rtol=1e-5)
    assert np.abs(known - found).max() > 1e-3
    with GrpcClient(f"127.0.0.1:{service.settings.grpc_port}") as grpc:
        _, other = grpc.predict("darcy_inverse", fields, quality=True)
    np.testing.assert_allclose(other.misfit, quality.misfit, rtol=1e-3)
    response = httpx2.post(
        f"{service.url}/v1/models/darcy_inverse/predict", timeout=60, json={"inputs": {"solution": fields.tolist()}}
    )
    np.testing.assert_allclose(response.json()["quality"]["misfit"], quality.misfit, rtol=1e-3)
    tensor = {"name": "solution", "datatype": "FP32", "shape": fields.shape, "data": fields.ravel().tolist()}
    url = f"{service.url}/v2/models/darcy_inverse/infer"
    outputs = httpx2.post(url, timeout=60, json={"inputs": [tensor]}).json()["outputs"]
    [misfit] = [output["data"] for output in outputs if output["name"] == "misfit"]
    np.testing.assert_allclose(misfit, quality.misfit, rtol=1e-3)
    assert number(metrics(service), "petrov_misfit_count", "darcy_inverse") >= len(fields)


def metrics(service: Gateway) -> str:
    return httpx2.get(f"{service.url}/metrics").text


def test_corrupted_weights_fire_the_alert(service: Gateway, client: Client) -> None:
    bounds = {model: [verified(service, client, model, seed) for seed in SEEDS] for model in ("darcy", "corrupted")}
    found, alert = metrics(service), Wrong.read()
    assert alert.fires(found, "corrupted")
    assert not alert.fires(found, "darcy")
    # The response itself says how far the corrections moved it.
    assert min(bounds["corrupted"]) > 3 * max(bounds["darcy"])


def verified(service: Gateway, client: Client, model: str, seed: int) -> float:
    """Predict, wait for the verification in the background, and return the response's `error_bound`."""

    def count() -> float:
        return number(metrics(service), "petrov_true_error_count", model)

    before, bounds = count(), list[float]()

    def is_verified() -> bool:  # not at once where another verification runs, such as of the test before
        bounds.append(float(client.predict(model, permeability(seed), quality=True)[1].error_bound))
        return count() > before

    wait_until(is_verified)
    return bounds[-1]
