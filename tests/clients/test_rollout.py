"""Rollouts by all four clients: frames as they arrive, their quality, and requests that break off."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from contextlib import aclosing, closing
from itertools import islice
from typing import Any

import httpx2
import numpy as np
import pytest

from petrov_client import (
    Client,
    ConnectionFailed,
    IncompleteRolloutWarning,
    InvalidInput,
    OutsideTrainingWarning,
    ServerFault,
)
from petrov_client import _arrays as arrays
from petrov_client._codecs import Parts
from petrov_client._flow import Deadline
from tests import toy_rollouts
from tests.clients.conftest import KINDS, address_for
from tests.conftest import Gateway, wait_until

U = np.linspace(1, 2, 3 * 16, dtype=np.float32).reshape(3, 16)


async def rolled(kind: str, gateway: Gateway, *args: Any, **named: Any) -> Any:
    if kind.startswith("Async"):
        async with KINDS[kind](address_for(kind, gateway)) as client:
            return await client.rollout("growth", *args, **named)
    with KINDS[kind](address_for(kind, gateway)) as client:
        return await asyncio.to_thread(client.rollout, "growth", *args, **named)


async def taken(kind: str, gateway: Gateway, count: int, *args: Any, **named: Any) -> list[Any]:
    """Take some frames of a longer rollout, and leave."""
    found: list[Any] = []
    if kind.startswith("Async"):
        async with (
            KINDS[kind](address_for(kind, gateway)) as client,
            aclosing(client.rollout_stream("growth", *args, **named)) as frames,
        ):
            async for frame in frames:
                found.append(frame)
                if len(found) == count:
                    break
    else:
        with (
            KINDS[kind](address_for(kind, gateway)) as client,
            closing(client.rollout_stream("growth", *args, **named)) as frames,
        ):
            found.extend(islice(frames, count))
    return found


def frames_sent(gateway: Gateway) -> float:
    [line] = [
        line
        for line in httpx2.get(f"{gateway.url}/metrics").text.splitlines()
        if line.startswith('petrov_frames_total{model="growth"}')
    ]
    return float(line.rpartition(" ")[2])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_rollout_has_all_frames_and_what_is_known_about_each(gateway: Gateway, kind: str) -> None:
    done: list[tuple[int, int]] = []
    found, known = await rolled(kind, gateway, U, 20, rate=1.4, quality=True, progress=lambda *each: done.append(each))
    np.testing.assert_allclose(found, toy_rollouts.compute(U, 1.4, 20), rtol=1e-5)
    assert known.error_estimate.shape == known.novelty.shape == known.outside.shape == (3, 20)
    np.testing.assert_allclose(known.error_estimate[:, :12], [toy_rollouts.ESTIMATES] * 3, rtol=1e-6)
    assert np.isnan(known.error_estimate[:, 12:]).all()
    assert known.outside.argmax(axis=1).tolist() == [16, 8, 8]  # the calls of the model that start above 20
    assert known.outside[:, 16:].all()
    assert done == [(frame, 20) for frame in range(1, 21)]
    with pytest.warns(OutsideTrainingWarning):
        single = await rolled(kind, gateway, U[1], 9, rate=1.4)
    np.testing.assert_allclose(single, found[1, :9], rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_first_frame_outside_issues_a_warning_as_it_arrives(gateway: Gateway, kind: str) -> None:
    with pytest.warns(OutsideTrainingWarning, match='unlike the training data of "growth"') as caught:
        await taken(kind, gateway, 12, U[1], 20, rate=1.4)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await taken(kind, gateway, 12, U[1], 20, rate=1.4, quality=True)
        await taken(kind, gateway, 8, U[1], 20, rate=1.4)  # the call that starts above 20 computes the next ones


@pytest.mark.parametrize("kind", KINDS)
async def test_the_service_stops_when_the_caller_has_enough(gateway: Gateway, kind: str) -> None:
    u = np.ones(20_000, np.float32)
    await taken(kind, gateway, 1, u, 1)
    before = frames_sent(gateway)
    found = await taken(kind, gateway, 3, u, 1000)
    np.testing.assert_array_equal(found, [u] * 3)
    wait_until(lambda: gateway.service.admission.requests == 0)
    assert frames_sent(gateway) - before < 300  # what sockets hold


@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_in_the_middle_is_the_service_s_own(gateway: Gateway, kind: str) -> None:
    with pytest.raises(ServerFault, match="is not finite"):
        await rolled(kind, gateway, np.full(16, 1e30, np.float32), 40, rate=9.0)


@pytest.mark.filterwarnings("ignore::petrov_client.OutsideTrainingWarning")
@pytest.mark.parametrize("kind", KINDS)
async def test_the_frames_before_an_error_are_kept_where_the_caller_wants_them(gateway: Gateway, kind: str) -> None:
    largest = np.full(16, 1e30, np.float32)  # times 9 it is beyond float32 in frame 9
    with pytest.warns(IncompleteRolloutWarning, match=r"after frame 8 of 40: .* is not finite"):
        found, known = await rolled(kind, gateway, largest, 40, rate=9.0, partial=True, quality=True)
    np.testing.assert_allclose(found, toy_rollouts.compute(largest[None], 9.0, 8)[0], rtol=1e-5)
    assert known.error_estimate.shape == (8,)
    with pytest.warns(IncompleteRolloutWarning, match="after frame 8 of 40"):
        assert len(await taken(kind, gateway, 40, largest, 40, rate=9.0, partial=True)) == 8
    with pytest.raises(ServerFault, match="is not finite"):
        await rolled(kind, gateway, largest * 1e8, 40, rate=9.0, partial=True)  # in the first frame


@pytest.mark.filterwarnings("ignore::petrov_client.OutsideTrainingWarning")
def test_a_batch_goes_on_without_the_samples_that_fail_also_in_further_requests(gateway: Gateway) -> None:
    u = np.stack([np.full(16, 1e30, np.float32), U[0]])
    with Client(gateway.url) as client:
        found = client.rollout("growth", u, 1005, rate=[9.0, 1.0], partial=True)
    np.testing.assert_allclose(found[0, :8], toy_rollouts.compute(u[:1], 9.0, 8)[0], rtol=1e-5)
    assert np.isnan(found[0, 8:]).all()
    np.testing.assert_array_equal(found[1], [U[0]] * 1005)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_whose_samples_all_fail_ends_no_other(
    gateway: Gateway, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    u, rate = np.full((5, 16), 1e30, np.float32), np.array([9.0, 9.0, 1.0, 9.0, 3.0])
    together, known = await rolled(kind, gateway, u, 20, rate=rate, partial=True, quality=True)
    monkeypatch.setattr(arrays, "PIECE_BYTES", 2 * u[0].nbytes)  # requests of two samples
    found, found_known = await rolled(kind, gateway, u, 20, rate=rate, partial=True, quality=True)
    np.testing.assert_array_equal(found, together)
    for name in ("error_estimate", "novelty", "outside"):
        np.testing.assert_array_equal(getattr(found_known, name), getattr(known, name))
    failed = np.isnan(found).all(axis=2).argmax(axis=1)
    assert failed.tolist() == [8, 8, 0, 8, 17]  # sample 2 never does; 3 to the power of 18 times 1e30 is too large
    with pytest.warns(IncompleteRolloutWarning, match=r"after frame 17 of 20: .* is not finite"):
        found = await rolled(kind, gateway, u[[0, 1, 4]], 20, rate=rate[[0, 1, 4]], partial=True, quality=True)
    np.testing.assert_array_equal(found[0], together[[0, 1, 4], :17])
    with pytest.raises(ServerFault, match="is not finite"):
        await rolled(kind, gateway, u, 20, rate=rate)


def test_more_frames_than_one_request_may_ask_for_go_on_from_the_last_one(gateway: Gateway) -> None:
    with Client(gateway.url) as client:
        found = client.rollout("growth", U[0], 1010, rate=0.999)
        np.testing.assert_allclose(found[-1], U[0] * 0.999**1010, rtol=1e-3)
        with pytest.raises(InvalidInput, match="at least one frame"):
            client.rollout("growth", U[0], 0)


class Interrupted(httpx2.BaseTransport):
    """A transport that breaks a response off after some bytes, a few times."""

    def __init__(self, times: int) -> None:
        self._under, self._times = httpx2.HTTPTransport(), times
        self.asked: list[str] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = self._under.handle_request(request)
        if not request.url.path.endswith("/rollout"):
            return response
        self.asked.append(request.url.query.decode())
        if self._times == 0:
            return response
        self._times -= 1
        return httpx2.Response(200, headers=response.headers, stream=Cut(response))

    def close(self) -> None:
        self._under.close()


class Cut(httpx2.SyncByteStream):
    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        content = b""
        for chunk in self._response.stream:  # type: ignore[union-attr]
            content += chunk
            if len(content) > 1500:
                yield content[:1500]
                raise httpx2.ReadError("reset")

    def close(self) -> None:
        self._response.close()


def test_a_response_that_breaks_off_is_continued_from_its_last_frame(gateway: Gateway) -> None:
    transport = Interrupted(times=2)
    with Client(gateway.url, transport=transport) as client:
        found, known = client.rollout("growth", U[0], 12, rate=1.1, quality=True)
    np.testing.assert_allclose(found, toy_rollouts.compute(U[:1], 1.1, 12)[0], rtol=1e-5)
    np.testing.assert_allclose(known.error_estimate, toy_rollouts.ESTIMATES, rtol=1e-6)
    assert len(transport.asked) == 3
    assert transport.asked[0] == "frames=12"
    assert all("after=" in each for each in transport.asked[1:])


class Limited(httpx2.BaseTransport):
    """A transport that refuses the first rollout for now, and notes the seconds in which it may read."""

    def __init__(self) -> None:
        self._under, self.seconds = httpx2.HTTPTransport(), list[float]()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if not request.url.path.endswith("/rollout"):
            return self._under.handle_request(request)
        self.seconds.append(request.extensions["timeout"]["read"])
        if len(self.seconds) == 1:
            return httpx2.Response(503, headers={"retry-after": "1"})
        response = self._under.handle_request(request)
        return httpx2.Response(200, headers=response.headers, stream=Noted(response, request, self.seconds))

    def close(self) -> None:
        self._under.close()


class Noted(httpx2.SyncByteStream):
    def __init__(self, response: httpx2.Response, request: httpx2.Request, seconds: list[float]) -> None:
        self._response, self._request, self._seconds = response, request, seconds

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._response.stream:  # type: ignore[union-attr]
            self._seconds.append(self._request.extensions["timeout"]["read"])
            yield chunk

    def close(self) -> None:
        self._response.close()


def test_the_time_that_pauses_have_taken_is_missing_for_the_first_frame_alone(gateway: Gateway) -> None:
    transport = Limited()
    with Client(gateway.url, transport=transport, timeout=20.0) as client:
        np.testing.assert_array_equal(client.rollout("growth", U[0], 12), [U[0]] * 12)
    first, again, *frames = transport.seconds
    assert first > again + 0.9
    assert set(frames) == {20.0}
    deadline = Deadline(2.0, 20.0)
    end = deadline.end
    deadline.renew()
    assert end + 17 < deadline.end


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_parts_are_found_however_their_bytes_arrive(step: int) -> None:
    bodies = [b"--b\r\n", b"", bytes(range(256))]
    content = b"".join(
        b"--b\r\nContent-Length: %d\r\nPetrov-Frame: %d\r\n\r\n%b\r\n" % (len(body), number, body)
        for number, body in enumerate(bodies)
    )
    parts, found = Parts("multipart/mixed; boundary=b", 256), []
    for start in range(0, len(content), step):
        found += list(parts.feed(content[start : start + step]))
    assert [part.body for part in found] == bodies
    assert [part.headers["petrov-frame"] for part in found] == ["0", "1", "2"]
    with pytest.raises(ConnectionFailed, match="before its last frame"):
        parts.end()
    assert list(parts.feed(b"--b--\r\n")) == []
    parts.end()
