"""Tesseract's clients for torch and JAX, unmodified, differentiate a served model through its URL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import Gateway
from tests.toy_fields import NAME, compute, gradients, samples, tangents

GRID = (6, 9)
X = samples(3, GRID)
RNG = np.random.default_rng(1)
T = {name: RNG.standard_normal(array.shape).astype(np.float32) for name, array in X.items()}
Y = dict(compute(**X))
COTANGENTS = {"moved": np.cos(Y["moved"]), "flux": 2 * Y["flux"] / Y["flux"].size}
LOSS = float(np.sin(Y["moved"]).sum() + np.square(Y["flux"]).mean())


def close(found: Any, expected: NDArray[Any]) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-4)


@pytest.fixture
def arrays(tmp_path: Path) -> str:
    path = tmp_path / "arrays.npz"
    np.savez(path, **X, **{f"tangent_{name}": array for name, array in T.items()})
    return str(path)


@pytest.mark.deep
def test_torch(gateway: Gateway, run_client: Callable[..., Any], arrays: str) -> None:
    found = run_client("tesseract_torch_client.py", f"{gateway.url}/tesseract/{NAME}", arrays)
    assert found["health"] == {"status": "ok"}
    assert set(found["endpoints"]) == {
        "health",
        "apply",
        "abstract_eval",
        "vector_jacobian_product",
        "jacobian_vector_product",
    }
    assert found["loss"] == pytest.approx(LOSS, rel=1e-5)
    for name, gradient in gradients(X, COTANGENTS).items():
        close(found["gradients"][name], gradient)
    close(found["flux_tangent"], tangents(X, T)["flux"])
    close(found["one"], compute(X["density"][:1], X["velocity"][:1], np.array([0.5]))["moved"][0])
    kind, message = found["refusal"]
    assert kind == "ValidationError"
    assert "inputs.density" in message
    assert "must be positive" in message


@pytest.mark.deep
def test_jax(gateway: Gateway, run_client: Callable[..., Any], arrays: str) -> None:
    before = calls(gateway)
    found = run_client("tesseract_jax_client.py", f"{gateway.url}/tesseract/{NAME}", arrays)
    assert found["loss"] == pytest.approx(LOSS, rel=1e-5)
    for name, gradient in gradients(X, COTANGENTS).items():
        close(found["gradients"][name], gradient)
    close(found["flux_tangent"], tangents(X, T)["flux"])
    same = compute(X["density"], X["velocity"], np.full(3, X["time"][0]))["moved"]
    for mapped in found["mapped"].values():
        close(mapped, same)
    close(found["each"], np.full_like(X["velocity"], 0.5))
    # The value of the loss, that of the Jacobian-vector product, one per method of vmap, and the values of `each`.
    assert calls(gateway) - before == 1 + 1 + 3 + 3


@pytest.mark.parametrize("endpoint", ["apply", "abstract_eval", "vector_jacobian_product"])
def test_a_query_parameter_that_is_not_known_is_refused(gateway: Gateway, endpoint: str) -> None:
    url = f"{gateway.url}/tesseract/{NAME}/{endpoint}"
    refused = httpx2.post(url, params={"tolerance": "1e-3"}, json={"inputs": {}})
    assert (refused.status_code, refused.json()["type"]) == (400, "urn:petrov:problem:unknown-parameter")
    accepted = httpx2.post(url, params={"run_id": "1"}, json={"inputs": {}})  # which clients of Tesseracts send
    assert "parameter" not in accepted.text


def calls(gateway: Gateway) -> float:
    """Return how many requests to `apply` were answered."""
    line = f'petrov_request_duration_seconds_count{{code="200",model="{NAME}",route="/tesseract/{{model}}/apply"}}'
    counts = [each for each in httpx2.get(f"{gateway.url}/metrics").text.splitlines() if each.startswith(line)]
    return float(counts[0].rpartition(" ")[2]) if counts else 0.0
