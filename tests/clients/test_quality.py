"""What the four clients return about the errors of predictions, and when they warn."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from petrov_client import Client, GrpcClient, InvalidInput, OutsideTrainingWarning, Quality, score
from petrov_client._codecs import encode_npy, encode_safetensors
from petrov_client._quality import Options
from physics import darcy
from serving.local_triton.server import TritonServer
from tests import toy_gauges
from tests.conftest import Gateway


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


def test_a_number_that_is_known_of_some_requests_alone_is_nan_in_the_others(
    http_service: Any, description: Callable[..., Any], tmp_path: Path
) -> None:
    """As the bounds of the classical solver are, where a tolerance lets it solve some fields of a batch."""

    def reply(number: int, **numbers: float) -> tuple[int, dict[str, str], bytes]:
        arrays = {"solution": np.full((1, 3, 4), number), **{name: np.array([each]) for name, each in numbers.items()}}
        content = encode_safetensors({name: array.astype(np.float32) for name, array in arrays.items()})
        return 200, {"Content-Type": "application/vnd.safetensors"}, content

    replies = [reply(0), reply(1, error_bound=0.5), reply(2)]
    np.save(tmp_path / "in.npy", np.ones((3, 3, 4)))
    url, predict = f"http://{http_service.address}", "/v1/models/toy/predict"
    described = description(batch=1, quality=("error_bound",))
    http_service.replies = {"/v1/models/toy": [described], predict: replies[:]}
    with Client(url) as client:
        output, quality = client.predict("toy", np.ones((3, 3, 4)), quality=True)
    http_service.replies["/v1/models/toy/versions/2/predict"] = replies[:]
    done = score("toy", tmp_path / "in.npy", tmp_path / "out.h5", [url], in_flight=1)
    for found in (quality.error_bound, done.quality["error_bound"]):
        np.testing.assert_array_equal(found, [np.nan, 0.5, np.nan])
    assert output[:, 0, 0].tolist() == [0, 1, 2]


def test_a_coverage_is_that_of_the_version_that_has_computed(
    http_service: Any, description: Callable[..., Any], petrov: Callable[..., Any], tmp_path: Path
) -> None:
    """The service describes the newest version, and an older one may compute, or a newer one after a release."""
    status, headers, body = description(quality=("error_estimate",))
    document = json.loads(body)
    document["card"]["calibration"] = {"test": [{"grid": [3, 4], "fields": 9, "coverage": 0.92}]}

    def described(version: int) -> tuple[int, dict[str, str], bytes]:
        return status, headers, json.dumps(document | {"version": version}).encode()

    def reply(version: int) -> tuple[int, dict[str, str], bytes]:
        arrays = {"solution": np.ones((1, 3, 4), np.float32), "error_estimate": np.array([0.01], np.float32)}
        named = {"Content-Type": "application/vnd.safetensors", "Petrov-Version": str(version)}
        return 200, named, encode_safetensors(arrays)

    url, predict = f"http://{http_service.address}", "/v1/models/toy/predict"
    http_service.replies = {
        "/v1/models/toy": [described(2), described(3)],
        predict: [reply(2), reply(3)],
        "/v1/models/toy/versions/1/predict": [reply(1)],
    }
    with Client(url) as client:
        found = [client.predict("toy", np.ones((3, 4)), quality=True)[1].coverage for _ in range(3)]
        assert found == [0.92, None, 0.92]  # after the release the model is described anew
        assert client.predict("toy", np.ones((3, 4)), version=1, quality=True)[1].coverage is None
    np.save(tmp_path / "in.npy", np.ones((3, 4)))
    for options, text in (((), "0.01 (held for 92% of test fields)"), (("--version", 1), "error_estimate 0.01\n")):
        done = petrov("predict", "toy", tmp_path / "in.npy", tmp_path / "out.npz", "--url", url, *options)
        assert text in done.stdout


def test_an_estimate_of_a_file_stands_beside_its_coverage(
    http_service: Any, description: Callable[..., Any], petrov: Callable[..., Any], tmp_path: Path
) -> None:
    """Where the version has computed that the card is of."""
    status, headers, body = description(quality=("error_estimate",))
    document = json.loads(body)
    document["card"]["calibration"] = {"test": [{"grid": [3, 4], "fields": 9, "coverage": 0.11}]}
    arrays = {"solution": np.ones((2, 3, 4), np.float32), "error_estimate": np.array([0.0123, np.nan], np.float32)}
    reply = 200, {"Content-Type": "application/vnd.safetensors"}, encode_safetensors(arrays)
    http_service.replies = {"/v1/models/toy": [(status, headers, json.dumps(document).encode())]}
    http_service.replies |= {f"/v1/models/toy/versions/{version}/predict": [reply] for version in (1, 2)}
    np.save(tmp_path / "in.npy", np.ones((2, 3, 4)))
    for name, options, text in (
        ("new.h5", (), "error_estimate (not reliable here: held for 11% of test fields)\n"),
        ("new.h5", (), "error_estimate (not reliable here: held for 11% of test fields)\n"),  # computed earlier
        ("old.h5", ("--version", 1), "error_estimate 0.0123 (unknown for 1)\n"),
    ):
        command = ("score", "toy", tmp_path / "in.npy", tmp_path / name, "--url", f"http://{http_service.address}")
        assert petrov(*command, *options).stdout.endswith(text)


def test_published_errors_are_those_of_the_newest_version_alone(
    http_service: Any, description: Callable[..., Any], petrov: Callable[..., Any], tmp_path: Path
) -> None:
    field = np.ones((85, 85), np.float32)
    npy = 200, {"Content-Type": "application/x-npy"}, encode_npy(field[None])
    predict = {f"/v1/models/toy{path}/predict": [npy] for path in ("", "/versions/1", "/versions/2")}
    http_service.replies = {"/v1/models/toy": [description()], **predict}
    np.save(tmp_path / "in.npy", field)
    command = ("predict", "toy", tmp_path / "in.npy", tmp_path / "out.npy", "--url", f"http://{http_service.address}")
    for options, said in (((), True), (("--version", 2), True), (("--version", 1), False)):
        assert ("mean relative error of test samples 0.0123" in petrov(*command, *options).stdout) is said


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
