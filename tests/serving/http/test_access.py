"""The access log: one entry per request, with nothing of its body."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

import petrov_client
from serving.observe import JsonLines
from tests.conftest import Gateway, wait_until
from tests.serving.http.test_gateway import NPY, loaded, npy

ROOT = Path(__file__).parents[3]
SECRET = "petrov_very-secret"  # noqa: S105 - no key of any gateway
FIELD = np.full((16, 16), 4.25, np.float32)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[str], dict[str, Any]]:
    """Return the line of a request, as JSON, once it is written."""
    caplog.set_level(logging.INFO, "petrov.access")

    def line(request_id: str, status: str | None = None) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            records = [record for record in caplog.records if record.name == "petrov.access"]
            written = [json.loads(JsonLines().format(record)) for record in records]
            return [each for each in written if each["request_id"] == request_id and status in {None, each["status"]}]

        wait_until(lambda: len(found()) > 0)
        [only] = found()
        return only

    return line


def test_a_prediction_is_a_line(gateway: Gateway, lines: Callable[[str], dict[str, Any]]) -> None:
    body = npy(FIELD)
    headers = {**NPY, "X-Request-Id": "one", "Authorization": f"Bearer {SECRET}"}
    path = f"{gateway.url}/v1/models/blur/predict"
    refused = httpx2.post(f"{path}?key={SECRET}", content=body, headers=headers | {"X-Request-Id": "none"})
    assert (refused.status_code, SECRET in refused.text) == (400, False)
    response = httpx2.post(path, content=body, headers=headers)
    assert loaded(response).shape == FIELD.shape
    line = lines("one")
    assert 0 < line.pop("seconds") < 60
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "petrov.access",
        "request_id": "one",
        "method": "POST",
        "route": "/v1/models/{model}/predict",
        "model": "blur",
        "version": "1",
        "status": "200",
        "problem": "",
        "bytes_in": len(body),
        "bytes_out": len(response.content),
        "client": "127.0.0.1",
        "key": "",
    }


def test_a_call_over_grpc_is_such_a_line(gateway: Gateway, lines: Callable[[str], dict[str, Any]]) -> None:
    stub = petrov_client.GrpcClient(f"127.0.0.1:{gateway.settings.grpc_port}", api_key=SECRET)
    with stub, pytest.MonkeyPatch.context() as patch:
        stub.model("blur")
        patch.setattr(stub, "_key", {**stub._key, "x-request-id": "two"})
        stub.predict("blur", FIELD)
        patch.setattr(stub, "_key", {"x-request-id": "three"})
        with pytest.raises(petrov_client.UnknownModel):
            stub.model("missing")
    line = lines("two")
    assert (line["method"], line["route"]) == ("GRPC", "/inference.GRPCInferenceService/ModelInfer")
    assert (line["model"], line["version"], line["status"], line["client"]) == ("blur", "1", "OK", "127.0.0.1")
    assert line["bytes_in"] > FIELD.nbytes
    assert line["bytes_out"] > FIELD.nbytes
    line = lines("three", "NOT_FOUND")  # a list of the models follows, for the message
    assert (line["model"], line["version"], line["bytes_out"]) == ("unknown", "", 0)
    assert line["problem"] == "unknown-model"


def test_the_protocol_of_triton_is_such_a_line(gateway: Gateway, lines: Callable[[str], dict[str, Any]]) -> None:
    tensor = {"name": "coefficient", "datatype": "FP32", "shape": [1, 4, 4], "data": [1.0] * 16}
    url = f"{gateway.url}/v2/models/blur/infer"
    assert httpx2.post(url, json={"inputs": [tensor]}, headers={"X-Request-Id": "four"}).status_code == 200
    line = lines("four")
    assert (line["route"], line["model"], line["version"]) == ("/v2/models/{model}/infer", "blur", "1")


@pytest.mark.parametrize(
    ("path", "status", "problem", "route", "model"),
    [
        ("/v1/models/blur/predict", "400", "unreadable-body", "/v1/models/{model}/predict", "blur"),
        ("/v1/models/missing/predict", "404", "unknown-model", "/v1/models/{model}/predict", "unknown"),
        (f"/{SECRET}", "404", "unknown-route", "unknown", "unknown"),
    ],
)
def test_a_refusal_is_a_line(
    gateway: Gateway,
    lines: Callable[[str], dict[str, Any]],
    caplog: pytest.LogCaptureFixture,
    path: str,
    status: str,
    problem: str,
    route: str,
    model: str,
) -> None:
    httpx2.post(gateway.url + path, content=b"4.25", headers={**NPY, "X-Request-Id": problem})
    line = lines(problem)
    assert (line["status"], line["problem"], line["route"], line["model"]) == (status, problem, route, model)
    assert f" {status} {problem} " in caplog.text  # of the sentence for people
    assert "4.25" not in str(line)
    assert SECRET not in str(line)


def test_people_read_a_sentence(
    gateway: Gateway, lines: Callable[[str], dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    httpx2.post(f"{gateway.url}/v1/models/blur/predict", content=npy(FIELD), headers={**NPY, "X-Request-Id": "five"})
    lines("five")
    [sentence] = [record.getMessage() for record in caplog.records if "id=five" in record.getMessage()]
    assert sentence.startswith("POST /v1/models/blur/predict 200 ")
    assert sentence.endswith(" ms from 127.0.0.1 id=five")


def test_an_exception_stays_within_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.observe.trace_id", lambda: "abc")
    error = ValueError('quote " and\nbreak')
    record = logging.LogRecord("a", logging.ERROR, "", 0, "failed: %s", ("x",), (ValueError, error, None))
    text = JsonLines().format(record)
    assert "\n" not in text
    line = json.loads(text)
    assert (line["level"], line["message"], line["trace_id"]) == ("error", "failed: x", "abc")
    assert 'ValueError: quote " and' in line["exception"]


def test_all_that_the_service_says_is_json_where_machines_read_it(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    [port] = free_ports(1)
    chosen = {"LOG_FORMAT": "json", "PORT": str(port), "GRPC_PORT": "0", "REPOSITORY": str(tmp_path)}
    environment = os.environ | {f"PETROV_{name}": value for name, value in chosen.items()}
    command = [sys.executable, "-m", "serving"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    *_, last = [json.loads(line) for line in done.stderr.splitlines()]
    assert (last["level"], "holds no model: make export" in last["message"]) == ("critical", True)
