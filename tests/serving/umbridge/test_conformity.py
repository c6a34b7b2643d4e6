"""What UM-Bridge 1.0 promises of every model: documents without further members, and errors in their order."""

from __future__ import annotations

import httpx2
import pytest

from tests.conftest import Gateway
from tests.serving.umbridge.suite import (
    Suite,
    check_evaluate,
    check_model_info,
    check_products,
    check_second_derivatives,
)

MODELS = [
    "blur",
    "drift",
    "gauge",
    "growth",
    "limited",
    "limited_unsolved",
    "pushed",
    "unsolved",
]  # others have no vectors


@pytest.fixture(params=MODELS)
def suite(gateway: Gateway, request: pytest.FixtureRequest) -> Suite:
    return Suite(gateway.url, request.param)


def test_the_base_url_connects(gateway: Gateway) -> None:
    assert httpx2.head(f"{gateway.url}/umbridge").status_code < 500


def test_info(gateway: Gateway) -> None:
    found = httpx2.get(f"{gateway.url}/umbridge/Info").raise_for_status().json()
    assert found.keys() == {"protocolVersion", "models"}
    assert found["protocolVersion"] == 1.0
    assert found["models"] == MODELS


def test_every_route(suite: Suite) -> None:
    check_model_info(suite)
    check_evaluate(suite)
    check_products(suite, "Gradient")
    check_products(suite, "ApplyJacobian")
    check_second_derivatives(suite)


@pytest.mark.parametrize(
    "route", ["ModelInfo", "InputSizes", "OutputSizes", "Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian"]
)
def test_an_unknown_model_comes_before_everything_else(gateway: Gateway, route: str) -> None:
    suite = Suite(gateway.url, MODELS[0])
    for name in ("wrong_model_name", "tally", "drift_vjp", "darcy_kl"):
        suite.name = name
        assert suite.error(route, input="nonsense", config=[]) == "ModelNotFound"
    response = httpx2.post(f"{gateway.url}/umbridge/{route}")
    assert (response.status_code, response.json()["error"]["type"]) == (400, "ModelNotFound")
