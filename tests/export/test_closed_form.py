"""The closed form is served as any other model: by Triton, with numbers per sample, derivatives and a reference."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx2
import numpy as np
import pytest

from export import released
from export.triton_config import CONFIG
from petrov_client import Client
from physics import burgers, cole_hopf
from physics.numerics.grid import relative_l2
from tests.conftest import RunService

ROOT = Path(__file__).parents[2]
MODEL = "burgers_exact"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository that holds the closed form and its derivatives alone."""
    for name in (MODEL, f"{MODEL}_vjp", f"{MODEL}_jvp"):
        (tmp_path / "model_repository" / name).mkdir(parents=True)
        source = ROOT / "model_repository" / name / CONFIG
        shutil.copyfile(source, tmp_path / "model_repository" / name / CONFIG)
    released.install(ROOT / "checkpoints" / MODEL, tmp_path / "model_repository")
    return tmp_path / "model_repository"


@pytest.mark.deep
@pytest.mark.timeout(600)  # a start of Triton, on a busy machine
def test_the_closed_form_is_served(
    repository: Path,
    run_service: RunService,
) -> None:
    viscosity, time = np.float32([0.003, 0.01, 0.03]), np.float32([2, 0.5, 0.1])
    with run_service(repository) as gateway, Client(gateway.url, timeout=120) as client:
        [info] = client.models()
        assert info.name == MODEL
        for points in (64, 101, 1000, 8192):
            initial = np.stack([burgers.example(points, seed) for seed in range(3)]).astype(np.float32)
            found = client.predict(MODEL, initial, viscosity=viscosity, time=time)
            truth = [
                cole_hopf.solve(field, float(t), float(nu), resolution=1024)
                for field, nu, t in zip(initial, viscosity, time, strict=True)
            ]
            assert relative_l2(found, np.stack(truth)).max() < 1e-6
        plain = client.predict(MODEL, initial[0])
        assert relative_l2(plain[None], client.reference(MODEL, initial[0])[None])[0] < 1e-6
        check_derivatives(gateway.url)
        refused = httpx2.post(
            f"{gateway.url}/v1/models/{MODEL}/predict", json={"inputs": {"initial": [0.0] * 64, "viscosity": 0.1}}
        )
        assert refused.status_code == 422
        assert "viscosity" in refused.text


def check_derivatives(url: str) -> None:
    """Compare the gradient by the viscosity with central differences of the closed form in double precision."""
    initial = burgers.example(64, 1).astype(np.float32)
    cotangent = np.linspace(-1, 1, 64, dtype=np.float32)
    body = {
        "inputs": {"initial": initial.tolist(), "viscosity": 0.01, "time": 0.5},
        "cotangents": {"final": cotangent.tolist()},
    }
    response = httpx2.post(f"{url}/v1/models/{MODEL}/vjp", json=body, timeout=120).raise_for_status().json()
    step, nu, t = 1e-6, float(np.float32(0.01)), 0.5
    ahead, behind = (cole_hopf.solve(initial, t, nu + sign * step, resolution=1024) for sign in (1, -1))
    slope = float((ahead - behind) @ cotangent / (2 * step))
    assert np.ravel(response["gradients"]["viscosity"])[0] == pytest.approx(slope, rel=1e-4)
