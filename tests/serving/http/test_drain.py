"""The gateway on SIGTERM while it is busy: it finishes what it has begun, and later connections are refused."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from serving.codecs import binary
from serving.local_triton.server import TritonServer
from serving.service import Service
from serving.settings import Settings
from serving.triton import Triton
from tests.serving.test_commands import command, status, wait_for

CLIENTS = 4
DRAIN = 12.0
BODY = binary.write_npy(np.ones((40, 64, 64), np.float32))
HEADERS = {"Content-Type": binary.NPY, "Connection": "close"}


async def test_a_second_signal_postpones_no_end(tmp_path: Path) -> None:
    """Of rollouts, nor of inversions."""
    service, drained = Service(Settings(repository=tmp_path), Triton("127.0.0.1:1", 1), "0"), list[float]()
    service.on_drain.append(lambda: drained.append(service.predictor.until))
    for _ in range(2):
        service.drain()
        await asyncio.sleep(0.01)
    assert drained == [service.predictor.until]


def test_sigterm_under_load_loses_no_response(
    triton: TritonServer, toy_repository: Path, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    """Every client gets a whole response or a refused connection; the log and the clients agree on how many."""
    shutil.copytree(toy_repository / "blur", tmp_path / "repository" / "blur")
    settings = make_settings(tmp_path / "repository", log_format="json")
    elsewhere = triton.settings.triton_address
    responses, stop = list[int](), threading.Event()

    def send() -> None:
        while not stop.is_set():
            with closing(http.client.HTTPConnection("127.0.0.1", settings.port, timeout=60)) as connection:
                try:
                    connection.request("POST", "/v1/models/blur/predict", BODY, HEADERS)
                    reply = connection.getresponse()
                except OSError:  # the gateway has stopped listening
                    stop.set()
                    return
                assert len(reply.read()) == len(BODY)  # a truncated response raises
                responses.append(reply.status)

    with command(settings, "gateway", "--triton", elsewhere) as (service, said):
        wait_for(lambda: status(settings, "/health/ready") == 200)
        with ThreadPoolExecutor(CLIENTS) as pool:
            running = [pool.submit(send) for _ in range(CLIENTS)]
            wait_for(lambda: len(responses) > 10)
            service.terminate()
            assert service.wait(60) == 0
            for each in running:
                each.result()
    logged = [json.loads(line) for line in said.read_text().splitlines()]
    statuses = [line["status"] for line in logged if line.get("route", "").endswith("/predict")]
    assert set(responses) == {200}
    assert statuses == ["200"] * len(responses)


@contextmanager
def rollouts(
    triton: TritonServer, repository: Path, settings: Settings, frames: int
) -> Iterator[tuple[http.client.HTTPResponse, Any]]:
    """Begin a rollout over HTTP and one over gRPC, stop the gateway, and yield what both go on with.

    The readers wait, so neither rollout is complete then: sockets hold few of its frames.
    """
    shutil.copytree(repository / "growth", settings.repository / "growth")
    u = np.ones(50_000, np.float32)
    message = service_pb2.ModelInferRequest(
        model_name="growth",
        inputs=[{"name": "u", "datatype": "FP32", "shape": [1, len(u)]}],
        raw_input_contents=[u.tobytes()],
        parameters={"frames": {"int64_param": frames}},
    )
    with (
        command(settings, "gateway", "--triton", triton.settings.triton_address) as (service, _),
        closing(http.client.HTTPConnection("127.0.0.1", settings.port, timeout=60)) as connection,
        grpc.insecure_channel(f"127.0.0.1:{settings.grpc_port}") as channel,
    ):
        wait_for(lambda: status(settings, "/health/ready") == 200)
        connection.request("POST", f"/v1/models/growth/rollout?frames={frames}", binary.write_npy(u), HEADERS)
        response = connection.getresponse()
        assert b"Petrov-Frame: 1\r\n" in response.read(u.nbytes)
        call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([message]))
        assert next(call).infer_response.parameters["frame"].int64_param == 1
        service.terminate()
        wait_for(lambda: status(settings, "/health/ready") != 200)
        yield response, call
        assert service.wait(60) == 0


@pytest.mark.deep
def test_a_rollout_that_has_begun_is_completed_after_sigterm(
    triton: TritonServer, toy_repository: Path, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    settings = make_settings(tmp_path / "repository", drain_seconds=300.0, receive_seconds=120.0)
    with rollouts(triton, toy_repository, settings, frames=100) as (response, call):
        content = response.read()  # a truncated response raises
        assert content.endswith(b"--\r\n")
        assert content.count(b"Petrov-Frame: ") == 100 - 1
        assert [each.infer_response.parameters["frame"].int64_param for each in call] == list(range(2, 101))


def test_after_half_of_the_drain_a_rollout_ends_with_an_error_as_its_last_part(
    triton: TritonServer, toy_repository: Path, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    settings = make_settings(tmp_path / "repository", drain_seconds=DRAIN, receive_seconds=120.0)
    with rollouts(triton, toy_repository, settings, frames=1000) as (response, call):
        time.sleep(DRAIN / 2)
        with pytest.raises(http.client.IncompleteRead) as broken:
            response.read()
        with pytest.raises(grpc.RpcError, match="the service is shutting down") as refused:
            list(call)
    head, _, document = broken.value.partial.rpartition(b"\r\n--")[2].partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    problem = json.loads(document)
    assert (problem["status"], problem["type"]) == (503, "urn:petrov:problem:unavailable")
    assert "the service is shutting down" in problem["detail"]
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.deep
def test_a_body_that_is_unfinished_at_the_end_gets_a_problem(
    triton: TritonServer, toy_repository: Path, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    shutil.copytree(toy_repository / "blur", tmp_path / "repository" / "blur")
    settings = make_settings(tmp_path / "repository", drain_seconds=1.0, notice_seconds=0.2)
    with (
        command(settings, "gateway", "--triton", triton.settings.triton_address) as (service, _),
        closing(http.client.HTTPConnection("127.0.0.1", settings.port, timeout=60)) as connection,
    ):
        wait_for(lambda: status(settings, "/health/ready") == 200)
        connection.putrequest("POST", "/v1/models/blur/predict")
        for name, value in {"Content-Type": binary.NPY, "Content-Length": str(len(BODY))}.items():
            connection.putheader(name, value)
        connection.endheaders(BODY[:1000])
        wait_for(lambda: status(settings, "/health/live") == 200)
        service.terminate()
        reply = connection.getresponse()
        document = json.loads(reply.read())
        assert (reply.status, reply.headers["Content-Type"]) == (503, "application/problem+json")
        assert (document["type"], reply.headers["Retry-After"]) == ("urn:petrov:problem:unavailable", "1")
        assert service.wait(60) == 0
