"""A share of live predictions is solved classically, and the true errors are metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import httpx2
import numpy as np
import pytest

from petrov_client import Client
from physics import darcy
from serving.local_triton.server import TritonServer
from serving.settings import Settings
from tests import toy_gauges
from tests.conftest import Gateway, wait_until


@pytest.fixture(scope="module")
def verifying(
    triton: TritonServer,
    make_settings: Callable[..., Settings],
    run_gateway: Callable[[Settings], AbstractContextManager[Gateway]],
) -> Iterator[Gateway]:
    """Yield a gateway that verifies every prediction that it has time for."""
    address = f"127.0.0.1:{triton.settings.triton_http_port}"
    settings = make_settings(triton.settings.repository, triton=address, shadow_share=1.0)
    with run_gateway(settings) as gateway:
        yield gateway


def errors(gateway: Gateway, model: str) -> tuple[float, float]:
    """Return sum and number of the true errors of a model."""
    text = httpx2.get(f"{gateway.url}/metrics").text
    found = dict(re.findall(rf'^petrov_true_error_(sum|count){{model="{model}"}} (\S+)$', text, re.MULTILINE))
    return float(found.get("sum", 0)), float(found.get("count", 0))


def test_the_true_error_of_a_prediction_is_measured(verifying: Gateway) -> None:
    field = np.random.default_rng(0).uniform(3, 12, (12, 14)).astype(np.float32)
    with Client(verifying.url) as client:
        output = client.predict("gauge", field)
    np.testing.assert_allclose(output, toy_gauges.compute(field), rtol=1e-6)
    wait_until(lambda: errors(verifying, "gauge")[1] == 1)
    truth = darcy.solve(field)
    expected = np.linalg.norm(output - truth) / np.linalg.norm(truth)
    assert errors(verifying, "gauge")[0] == pytest.approx(expected, rel=1e-4)


def test_only_networks_of_problems_with_a_solver_are_verified(verifying: Gateway) -> None:
    field = np.full((12, 14), 5, np.float32)
    before = errors(verifying, "gauge")
    with Client(verifying.url) as client:
        client.predict("gauge", field, tolerance=1e-4)  # solved classically
        client.predict("unsolved", field)
        client.predict("blur", field)  # the last one, and the only one that is verified
        wait_until(lambda: errors(verifying, "blur")[1] == 1)
    assert errors(verifying, "gauge") == before
    assert errors(verifying, "unsolved") == (0, 0)
