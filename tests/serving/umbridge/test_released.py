"""Every released model that UM-Bridge lists passes the checks of its suite over the wire, for some constant input.

Parameters with a default are no inputs, so that one number is valid for all that are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.conftest import Gateway, RunService
from tests.serving.umbridge.suite import (
    Suite,
    check_evaluate,
    check_model_info,
    check_products,
    check_second_derivatives,
)

pytestmark = [
    pytest.mark.timeout(900),  # every graph is loaded once, on a busy machine
    pytest.mark.deep,  # the toys pass the same checks in `test_conformity.py`
]
REPOSITORY = Path(__file__).parents[3] / "model_repository"
KEY = "released"
MODELS = [
    "burgers",
    "burgers_exact",
    "burgers_galerkin",
    "darcy",
    "darcy_galerkin",
    "darcy_inverse",
    "darcy_inverse_galerkin",
    "darcy_kl",
    "darcy_posterior",
    "kuramoto_sivashinsky",
    "navier_stokes",
]


@pytest.fixture(scope="module")
def released(
    run_service: RunService,
) -> Iterator[Gateway]:
    """Yield the service of all released models, which loads derivatives at their first use."""
    with run_service(REPOSITORY, KEY, empty=True, shadow_share=0.0) as gateway:
        yield gateway


def test_they_are_listed(released: Gateway) -> None:
    listed = httpx2.get(f"{released.url}/umbridge/Info").raise_for_status().json()["models"]
    assert set(MODELS) <= set(listed)


@pytest.mark.parametrize("name", MODELS)
def test_the_suite_passes(released: Gateway, name: str) -> None:
    suite = Suite(released.url, name)
    check_model_info(suite)
    check_evaluate(suite)
    check_products(suite, "Gradient")
    check_products(suite, "ApplyJacobian")
    check_second_derivatives(suite)
