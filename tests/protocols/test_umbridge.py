"""UM-Bridge's clients, unmodified, evaluate, differentiate and sample compositions around the released `darcy`.

The blocks of docs/umbridge.md run here, too.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from numpy.typing import NDArray

from physics.posterior import composites
from physics.posterior.composites import BASIS, Composition, posterior
from tests.conftest import Gateway

PAGE = Path(__file__).parents[2] / "docs/umbridge.md"
CHECKS = """
import json
print(json.dumps([
    list(sampler.get_chain().shape), darcy.get_input_sizes({"grid": [30, 40]}), len(solution),
    list(permeability.grad.shape), len(at_sensors), sum(g * s for g, s in zip(gradient, x)),
]))
"""
SEED, TOGETHER = 3, 24
RNG = np.random.default_rng(SEED)
X, WEIGHTS, DIRECTION = RNG.standard_normal(32), RNG.standard_normal(64), RNG.standard_normal(32)


def post(gateway: Gateway, route: str, name: str, **members: Any) -> Any:
    response = httpx2.post(f"{gateway.url}/umbridge/{route}", json={"name": name, **members}, timeout=60)
    return response.raise_for_status().json()


def evaluate(gateway: Gateway, name: str, x: NDArray[Any], **config: Any) -> NDArray[Any]:
    return np.array(post(gateway, "Evaluate", name, input=[x.tolist()], config=config)["output"][0])


def directly(gateway: Gateway, made: Composition, x: NDArray[Any]) -> NDArray[Any]:
    """Return the composite by a prediction of /v1 between its two halves."""
    body = {"inputs": {"coefficient": made.inputs(x).tolist()}}
    found = httpx2.post(f"{gateway.url}/v1/models/darcy/predict", json=body).raise_for_status().json()
    return made.outputs(x, np.array(found["outputs"]["solution"]))


def test_compositions_are_listed_beside_field_models(released: Gateway) -> None:
    found = httpx2.get(f"{released.url}/umbridge/Info").raise_for_status().json()
    assert found == {"protocolVersion": 1.0, "models": ["darcy", "darcy_kl", "darcy_posterior"]}
    assert post(released, "InputSizes", "darcy_kl") == {"inputSizes": [32]}
    assert post(released, "OutputSizes", "darcy_kl", config={"grid": [20, 30]}) == {"outputSizes": [64]}
    assert post(released, "OutputSizes", "darcy_posterior") == {"outputSizes": [1]}


@pytest.mark.parametrize("name", ["darcy", "darcy_kl", "darcy_posterior"])
def test_every_input_may_be_set_to_one_number(released: Gateway, name: str) -> None:
    """As the project's conformity suite does, with the sizes that a model has without a configuration."""
    [size], outputs = (
        post(released, "InputSizes", name)["inputSizes"],
        post(released, "OutputSizes", name)["outputSizes"],
    )
    message = {"input": [[3.0] * size], "config": {}}
    assert [len(vector) for vector in post(released, "Evaluate", name, **message)["output"]] == outputs
    message |= {"outWrt": 0, "inWrt": 0}
    assert len(post(released, "Gradient", name, **message, sens=[0] * outputs[0])["output"]) == size
    assert len(post(released, "ApplyJacobian", name, **message, vec=[3.0] * size)["output"]) == outputs[0]


def test_values_are_those_of_the_served_model(released: Gateway) -> None:
    pressures = evaluate(released, "darcy_kl", X, grid=[20, 30])
    np.testing.assert_allclose(pressures, directly(released, composites.pressures((20, 30)), X), rtol=1e-5)
    data = (1.1 * pressures).tolist()
    density = evaluate(released, "darcy_posterior", X, grid=16, data=data, noise=1e-3)
    np.testing.assert_allclose(density, directly(released, posterior((16, 16), data, 1e-3), X), rtol=1e-4)
    assert evaluate(released, "darcy_posterior", X, grid=16) < evaluate(released, "darcy_posterior", 0 * X, grid=16)


@pytest.mark.parametrize(("name", "sensitivity"), [("darcy_kl", WEIGHTS), ("darcy_posterior", np.array([0.5]))])
def test_derivatives_are_the_slopes_of_the_values(released: Gateway, name: str, sensitivity: NDArray[Any]) -> None:
    step, config, at = 0.02, {"grid": 24}, 0.1 * X
    product = {"input": [at.tolist()], "outWrt": 0, "inWrt": 0, "config": config}
    gradient = np.array(post(released, "Gradient", name, **product, sens=sensitivity.tolist())["output"])
    along = np.array(post(released, "ApplyJacobian", name, **product, vec=DIRECTION.tolist())["output"])
    ends = [evaluate(released, name, at + sign * step * DIRECTION, **config) for sign in (1, -1)]
    slope = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(along, slope, rtol=0.02, atol=0.01 * np.abs(slope).max())
    assert gradient @ DIRECTION == pytest.approx(sensitivity @ along, rel=1e-3)


def test_an_exact_gradient_of_the_posterior_vanishes_in_its_prior_part(released: Gateway) -> None:
    """With measurements equal to the values, only the prior is left: the gradient of -|x|^2 / 2."""
    data = evaluate(released, "darcy_kl", X, grid=16).tolist()
    config = {"grid": 16, "data": data, "noise": 1.0}
    product = {"input": [X.tolist()], "outWrt": 0, "inWrt": 0, "config": config}
    np.testing.assert_allclose(post(released, "Gradient", "darcy_posterior", **product, sens=[2.0])["output"], -2 * X)
    along = post(released, "ApplyJacobian", "darcy_posterior", **product, vec=DIRECTION.tolist())["output"]
    assert along == pytest.approx([-X @ DIRECTION])


REFUSED = [
    ({"grid": 4}, "grid"),
    ({"grid": 16, "data": [1.0]}, "data"),
    ({"grid": 16, "noise": -1.0}, "noise"),
    ({"grid": 16, "noise": [1.0, 2.0]}, "noise"),
    ({"grid": 16, "data": 1.0}, "data"),
    ({"grid": 16, "data": ["a"]}, "data"),
    ({"mesh": 16}, "mesh"),
    ({"inputs": ["source"]}, "inputs"),
]


@pytest.mark.parametrize(("config", "word"), REFUSED)
def test_options_that_are_none(released: Gateway, config: dict[str, Any], word: str) -> None:
    body = {"name": "darcy_posterior", "input": [X.tolist()], "config": config}
    response = httpx2.post(f"{released.url}/umbridge/Evaluate", json=body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "InvalidInput"
    assert word in error["message"]


def test_calls_on_connections_of_their_own_run_in_batches(released: Gateway) -> None:
    async def gradient(client: httpx2.AsyncClient, x: NDArray[Any]) -> Any:
        body = {"name": "darcy_kl", "input": [x.tolist()], "outWrt": 0, "inWrt": 0, "sens": WEIGHTS.tolist()}
        headers = {"Connection": "close"}
        response = await client.post(f"{released.url}/umbridge/Gradient", json=body, headers=headers)
        return response.raise_for_status().json()["output"]

    async def together(fields: NDArray[Any]) -> Any:
        async with httpx2.AsyncClient(timeout=60) as client:
            return await asyncio.gather(*(gradient(client, x) for x in fields))

    fields = BASIS.sample(TOGETHER, RNG)
    for _ in range(5):  # on busy processors each call may have ended before the next one arrives
        before = batches(released)
        found = asyncio.run(together(fields))
        samples, runs = (after - earlier for after, earlier in zip(batches(released), before, strict=True))
        assert samples == TOGETHER
        if runs < TOGETHER:
            break
    assert runs < TOGETHER
    [alone] = asyncio.run(together(fields[5:6]))
    np.testing.assert_allclose(found[5], alone, rtol=1e-3, atol=1e-4 * np.abs(alone).max())


def batches(gateway: Gateway) -> tuple[float, float]:
    """Return how many samples and how many batches of the vector-Jacobian product have run."""
    lines = httpx2.get(f"http://127.0.0.1:{gateway.settings.triton_metrics_port}/metrics").text.splitlines()

    def total(name: str) -> float:
        return sum(float(each.rsplit(" ", 1)[1]) for each in lines if each.startswith(f'{name}{{model="darcy_vjp"'))

    return total("nv_inference_count"), total("nv_inference_exec_count")


@pytest.mark.deep
def test_umbridge_emcee_and_tinyda(released: Gateway, run_client: Callable[..., Any]) -> None:
    found = run_client("uncertainty_clients.py", f"{released.url}/umbridge", str(SEED))
    assert found["models"] == ["darcy", "darcy_kl", "darcy_posterior"]
    assert found["sizes"] == [[32], [64]]
    assert found["supports"] == [True, True, False]
    np.testing.assert_allclose(found["pressures"][0], evaluate(released, "darcy_kl", X, grid=32), rtol=1e-4)
    assert np.dot(found["gradient"], DIRECTION) == pytest.approx(np.dot(WEIGHTS, found["jacobian"]), rel=1e-3)
    assert "InvalidInput: input[0] has 5 numbers; expected 32" in found["refusal"]
    visited = np.array(found["emcee"]["at"])
    density = evaluate(released, "darcy_posterior", visited, grid=16)[0]
    assert found["emcee"]["density"] == pytest.approx(density, rel=1e-3)
    for proposal in ("CrankNicolson", "MALA"):
        likelihoods = np.array(found[proposal])
        assert likelihoods.shape == (6,)
        assert likelihoods[0] == pytest.approx(0, abs=1e-3)  # the measurements are those of the first sample
        assert (likelihoods <= 1e-6).all()


@pytest.mark.deep
@pytest.mark.skipif(shutil.which("cc") is None, reason="QMCPy is compiled when it is installed")
def test_qmcpy(released: Gateway, run_client: Callable[..., Any]) -> None:
    found = run_client("quasi_monte_carlo.py", f"{released.url}/umbridge", "8", requirements="compiled.txt")
    points, values = np.array(found["points"]), np.array(found["values"])
    assert values.shape == (64, 8)
    np.testing.assert_allclose(values[:, 3], evaluate(released, "darcy_kl", points[3], grid=16), rtol=1e-4)


@pytest.mark.deep
def test_pymc(released: Gateway, run_client: Callable[..., Any], tmp_path: Path) -> None:
    url = f"{released.url}/umbridge"
    assert run_client("pymc_client.py", url, str(tmp_path), requirements="pymc.txt") == [1, 2, 32]


@pytest.mark.deep
def test_the_blocks_of_the_page_run(released: Gateway, run_client: Callable[..., Any], tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 4
    program = tmp_path / "page.py"
    program.write_text("\n".join([*blocks, CHECKS]).replace("http://127.0.0.1:8080", released.url))
    chain, sizes, points, shape, sensors, slope = run_client(str(program))
    assert (chain, sizes, points, shape, sensors) == ([2, 64, 32], [1200], 1200, [85, 85], 64)
    assert slope != 0
