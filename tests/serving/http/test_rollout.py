"""Rollouts that are sent frame by frame: framing, errors after the first frame, clients that leave or read slowly."""

from __future__ import annotations

import email.parser
import email.policy
import io
import json
import socket
from contextlib import closing
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
import pytest

from serving.codecs import binary
from serving.frames import PIECE
from tests import toy_rollouts
from tests.conftest import wait_until

if TYPE_CHECKING:
    from tests.conftest import Gateway

URL = "/v1/models/growth/rollout"
NPY = {"Content-Type": binary.NPY}
LONG = 50_000  # points: a frame takes 200 kB, more than a socket holds of several


def parts(response: httpx2.Response) -> list[tuple[dict[str, str], bytes]]:
    """Return headers and bytes of the parts, as the standard library reads them."""
    head = f"Content-Type: {response.headers['content-type']}\r\n\r\n".encode()
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + response.content)
    assert message.is_multipart()
    assert not message.defects
    return [
        ({name.lower(): str(value) for name, value in part.items()}, part.get_payload(decode=True))
        for part in message.iter_parts()
    ]


def broken(http: httpx2.Client, url: str, body: dict[str, Any]) -> tuple[httpx2.Response, bytes]:
    """Return a response whose connection is closed before its end, and what arrived of it."""
    content = bytearray()

    def read(response: httpx2.Response) -> None:
        for chunk in response.iter_raw():
            content.extend(chunk)

    with http.stream("POST", url, json=body) as response, pytest.raises(httpx2.RemoteProtocolError, match="incomplete"):
        read(response)
    return response, bytes(content)


def frame(content: bytes) -> Any:
    return np.load(io.BytesIO(content), allow_pickle=False)


def calls(gateway: Gateway) -> int:
    """Return how often Triton has run the model, by its own statistics."""
    address = gateway.settings.triton_address
    [found] = httpx2.get(f"http://{address}/v2/models/growth/stats").json()["model_stats"]
    return int(found["execution_count"])


def test_a_long_trajectory_holds_up_no_other_request(http: httpx2.Client, held_up: list[str]) -> None:
    u = np.ones((4, LONG), np.float32)
    url = f"/v1/models/growth/predict?frames={2 * PIECE}"
    found = frame(http.post(url, content=binary.write_npy(u), headers=NPY).content)
    np.testing.assert_array_equal(found, np.ones((4, 2 * PIECE, LONG)))
    assert not held_up


def test_every_frame_is_a_part_that_any_reader_of_multipart_finds(http: httpx2.Client) -> None:
    u = np.linspace(1, 2, 16, dtype=np.float32)[None].repeat(2, 0)
    frames = 2 * PIECE + 3
    found = parts(http.post(f"{URL}?frames={frames}", json={"inputs": {"u": u.tolist(), "rate": 1.1}}))
    documents = [json.loads(content) for _, content in found]
    states = np.stack([document["outputs"]["state"] for document in documents], axis=1)
    np.testing.assert_allclose(states, toy_rollouts.compute(u, 1.1, frames), rtol=1e-5)
    assert [int(headers["petrov-frame"]) for headers, _ in found] == list(range(1, frames + 1))


def test_a_frame_has_its_own_estimate_and_the_novelty_of_the_state_that_it_follows_from(http: httpx2.Client) -> None:
    u = np.full(16, 2.0, np.float32)
    found = parts(http.post(f"{URL}?frames=20", content=binary.write_npy(u), headers=NPY))
    np.testing.assert_array_equal([frame(content) for _, content in found], [u] * 20)
    known = toy_rollouts.ESTIMATES
    assert [headers.get("petrov-error-estimate") for headers, _ in found] == [f"{each:g}" for each in known] + [
        None
    ] * 8
    assert {headers["petrov-novelty"] for headers, _ in found} == {"0.9"}
    later = parts(http.post(f"{URL}?frames=2&after=4", content=binary.write_npy(u), headers=NPY))
    assert [(headers["petrov-frame"], headers["petrov-error-estimate"]) for headers, _ in later] == [
        ("5", f"{known[4]:g}"),
        ("6", f"{known[5]:g}"),
    ]
    body = {"inputs": {"u": [2.0] * 16, "rate": 1.4}}  # 2 * 1.4^8 is above the largest state
    drifting = [headers for headers, _ in parts(http.post(f"{URL}?frames=20", json=body))]
    assert [headers["petrov-outside"] for headers in drifting] == ["false"] * PIECE + ["true"] * (20 - PIECE)


def test_a_prediction_of_frames_says_the_same_of_each(http: httpx2.Client) -> None:
    body = {"inputs": {"u": [[2.0] * 16, [1.0] * 16], "rate": [1.4, 1.0]}}
    response = http.post("/v1/models/growth/predict?frames=14", json=body)
    quality = response.json()["quality"]
    assert quality["error_estimate"] == [[*toy_rollouts.ESTIMATES, None, None]] * 2
    assert quality["outside"] == [[False] * PIECE + [True] * (14 - PIECE), [False] * 14]
    assert "petrov-error-estimate" not in response.headers
    later = http.post("/v1/models/growth/predict?frames=2&after=4", json=body).json()["quality"]["error_estimate"]
    assert later == [[*toy_rollouts.ESTIMATES[4:6]]] * 2


def test_an_error_after_the_first_frames_cannot_be_taken_for_the_end(
    gateway: Gateway, http: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"inputs": {"u": [1e30] * 16, "rate": 9.0}}  # beyond float32 in frame 9
    response, content = broken(http, f"{URL}?frames=40", body)
    assert response.status_code == 200
    boundary = response.headers["content-type"].partition("boundary=")[2].encode()
    assert b"--" + boundary + b"--" not in content
    *before, last = content.split(b"--" + boundary + b"\r\n")[1:]
    assert len(before) == 8
    head, _, document = last.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert json.loads(document)["type"] == "urn:petrov:problem:non-finite-output"
    assert "petrov_frames_total" in httpx2.get(f"{gateway.url}/metrics").text
    wait_until(lambda: gateway.service.admission.requests == 0)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("frames=0", "invalid-parameter"),
        ("frames=1001", "invalid-parameter"),
        ("frames=2&after=-1", "invalid-parameter"),
        ("frames=2&tolerance=1", "invalid-parameter"),
        ("frames=2&outside=solve", "invalid-parameter"),
        ("frames=2&outside=refuse", "outside-training"),
    ],
)
def test_what_is_wrong_before_the_first_frame_is_a_problem(http: httpx2.Client, query: str, kind: str) -> None:
    response = http.post(f"{URL}?{query}", json={"inputs": {"u": [30.0] * 16}})
    assert (response.status_code, response.json()["type"]) == (422, f"urn:petrov:problem:{kind}")


def test_a_rollout_ends_where_the_state_leaves_if_the_caller_wants_that(http: httpx2.Client) -> None:
    body = {"inputs": {"u": [2.0] * 16, "rate": 1.4}}
    _, content = broken(http, f"{URL}?frames=40&outside=refuse", body)
    assert (content.count(b"Petrov-Frame"), content.count(b"outside-training")) == (PIECE + 1, 1)


def test_models_without_trajectories_have_no_rollouts(http: httpx2.Client) -> None:
    response = http.post("/v1/models/blur/rollout", json={"inputs": {"coefficient": [[1.0] * 8] * 8}})
    assert (response.status_code, response.json()["detail"]) == (422, '"blur" computes no trajectories: use predict')


def test_a_slow_reader_holds_the_model_back_and_one_that_leaves_stops_it(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the reader does, no more is computed than sockets and two calls of the model hold."""
    before, wanted = calls(gateway), 1000
    content = binary.write_npy(np.ones(LONG, np.float32))
    with closing(socket.create_connection(("127.0.0.1", gateway.settings.port))) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        head = f"POST {URL}?frames={wanted} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {binary.NPY}\r\n"
        client.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        assert client.recv(12) == b"HTTP/1.1 200"
        wait_until(lambda: calls(gateway) > before + 1)
        settled = -1
        while settled != (settled := calls(gateway)):
            wait_until(lambda: idle(gateway))
        assert settled - before < 20
        read = 0
        while read < 20 * 4 * LONG:
            read += len(client.recv(2**20))
        wait_until(lambda: calls(gateway) > settled)
    wait_until(lambda: gateway.service.admission.requests == 0)  # the response has ended
    wait_until(lambda: idle(gateway))
    ended = calls(gateway)
    with httpx2.Client(base_url=gateway.url, timeout=60) as other:
        other.post("/v1/models/growth/predict?frames=1", content=binary.write_npy(np.ones(16, np.float32)), headers=NPY)
    assert calls(gateway) == ended + 1
    assert ended - before < wanted / PIECE / 2
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def idle(gateway: Gateway) -> bool:
    """Return whether Triton has run everything that it has received."""
    address = gateway.settings.triton_address
    text = httpx2.get(f"http://{address.rpartition(':')[0]}:{gateway.settings.triton_metrics_port}/metrics").text
    pending = [
        line for line in text.splitlines() if line.startswith('nv_inference_pending_request_count{model="growth"')
    ]
    return all(float(line.rpartition(" ")[2]) == 0 for line in pending)
