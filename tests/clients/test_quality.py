"""What the four clients return about the errors of predictions, and when they warn."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from petrov_client import Client, GrpcClient, InvalidInput, OutsideTrainingWarning, Quality
from petrov_client._quality import Options
from physics import darcy
from tests import toy_gauges

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from serving.local_triton.server import TritonServer
    from tests.conftest import Gateway


@pytest.fixture
def call(any_client: Any, gateway: Gateway) -> Callable[..., Any]:
    """Return a function that calls one of the four clients."""
    http, grpc = gateway.url.removeprefix("http://"), f"127.0.0.1:{gateway.settings.grpc_port}"
    return lambda *args, **named: any_client.call(http if any_client.http else grpc, *args, **named)


def test_the_quality_has_one_number_per_field(call: Any, gauged: NDArray[Any]) -> None:
    output, quality = call("predict", "gauge", gauged, quality=True)
    np.testing.assert_allclose(output, toy_gauges.compute(gauged), rtol=1e-6)
    for name, values in toy_gauges.quality(gauged).items():
        np.testing.assert_allclose(getattr(quality, name), values, rtol=1e-5, atol=1e-7)
    assert np.flatnonzero(quality.outside).tolist() == [17]
    assert quality.solved_by == "network"


def test_a_plain_triton_has_quality_outputs_too(triton: TritonServer, gauged: NDArray[Any]) -> None:
    with GrpcClient(f"127.0.0.1:{triton.settings.triton_grpc_port}") as client:
        for model in ("gauge", "gauge_torchscript"):
            assert [tensor.name for tensor in client.model(model).outputs] == ["solution"]
            output, quality = client.predict(model, gauged, quality=True)
            np.testing.assert_allclose(output, toy_gauges.compute(gauged), rtol=1e-6)
            assert np.flatnonzero(quality.outside).tolist() == [17]


def test_the_quality_of_a_single_field_is_single_numbers(call: Any, gauged: NDArray[Any]) -> None:
    output, quality = call("predict", "gauge", gauged[17], quality=True)
    assert output.shape == (8, 9)
    assert quality.error_bound == pytest.approx(gauged[17].mean() / 1000, rel=1e-5)
    assert (quality.novelty, quality.outside) == (0.0, True)


def test_a_model_that_reports_nothing_has_an_empty_quality(call: Any, gauged: NDArray[Any]) -> None:
    assert call("predict", "blur", gauged, quality=True)[1] == Quality()


def test_an_input_outside_is_a_warning_unless_it_is_treated(call: Any, gauged: NDArray[Any]) -> None:
    with pytest.warns(OutsideTrainingWarning, match='unlike the training data of "gauge"'):
        call("predict", "gauge", gauged)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call("predict", "gauge", gauged[:17])
        call("predict", "gauge", gauged, quality=True)
        call("predict", "gauge", gauged, outside="solve")


def test_a_stream_warns_once(gateway: Gateway, gauged: NDArray[Any]) -> None:
    gauged[3, 0, 0] = 30
    with Client(gateway.url) as client, pytest.warns(OutsideTrainingWarning) as caught:
        for _ in client.stream("gauge", gauged):
            pass
    assert len(caught) == 1


def test_inputs_outside_are_solved_or_refused(call: Any, gauged: NDArray[Any]) -> None:
    output, quality = call("predict", "gauge", gauged, quality=True, outside="solve")
    np.testing.assert_allclose(output[17], darcy.solve(gauged[17]), rtol=1e-5)
    np.testing.assert_allclose(output[:17], toy_gauges.compute(gauged[:17]), rtol=1e-6)
    assert quality.solved_by == "mixed"
    assert np.flatnonzero(np.isnan(quality.error_estimate)).tolist() == [17]
    with pytest.raises(InvalidInput, match="it is unlike the training data"):
        call("predict", "gauge", gauged, outside="refuse")


def test_a_tolerance_is_met(call: Any, gauged: NDArray[Any]) -> None:
    output, quality = call("predict", "gauge", gauged[:2], quality=True, tolerance=1e-4)
    np.testing.assert_allclose(output, [darcy.solve(field) for field in gauged[:2]], rtol=1e-5)
    assert quality.solved_by == "solver"
    with pytest.raises(InvalidInput, match=r"has an error_bound of 0\.00\d+; expected at most 0\.0001"):
        call("predict", "unsolved", gauged, tolerance=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0.0}, "tolerance: expected a positive number but got 0.0"),
        ({"tolerance": float("nan")}, "expected a positive number but got nan"),
        ({"outside": "ignore"}, 'outside: expected answer or solve or refuse but got "ignore"'),
    ],
)
def test_wrong_choices_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Options(**options)
