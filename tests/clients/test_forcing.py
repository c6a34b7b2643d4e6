"""Inputs that change in time by all four clients: whole rollouts, streams in several requests, gradients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import httpx2
import numpy as np
import pytest

from petrov_client import Client, IncompleteRolloutWarning, InvalidInput
from petrov_client import _rollout as rollouts
from tests import toy_rollouts
from tests.clients.conftest import KINDS, address_for
from tests.conftest import Gateway

MODEL, FRAMES = toy_rollouts.PUSHED, 11
RNG = np.random.default_rng(0)
U = RNG.standard_normal((3, 16)).astype(np.float32)
F = RNG.standard_normal((3, FRAMES, 16)).astype(np.float32)
POWER = RNG.uniform(1, 2, (3, FRAMES)).astype(np.float32)


async def rolled(kind: str, gateway: Gateway, *args: Any, **named: Any) -> Any:
    if kind.startswith("Async"):
        async with KINDS[kind](address_for(kind, gateway)) as client:
            return await client.rollout(MODEL, *args, **named)
    with KINDS[kind](address_for(kind, gateway)) as client:
        return client.rollout(MODEL, *args, **named)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_rollout_has_as_many_frames_as_its_forcing(
    gateway: Gateway, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await rolled(kind, gateway, u=U, f=F, power=POWER)
    np.testing.assert_allclose(found, toy_rollouts.push(U, F, POWER), rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(rollouts, "REQUEST_BYTES", 4 * U.nbytes)  # four frames a request
    found = await rolled(kind, gateway, u=U, f=F, power=POWER[0])
    np.testing.assert_allclose(found, toy_rollouts.push(U, F, POWER[:1]), rtol=1e-4, atol=1e-5)


def test_a_forcing_is_sent_in_as_many_requests_as_its_bytes_need(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []

    class Seen(httpx2.HTTPTransport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            requests.append(request.url.query.decode())
            return super().handle_request(request)

    monkeypatch.setattr(rollouts, "FORCING_BYTES", 4 * (F[:, 0].nbytes + POWER[:, 0].nbytes))
    with Client(gateway.url, transport=Seen()) as client:
        found = client.rollout(MODEL, u=U, f=F, power=POWER)
    np.testing.assert_allclose(found, toy_rollouts.push(U, F, POWER), rtol=1e-4, atol=1e-5)
    assert requests == ["", "frames=4", "frames=4&after=4", "frames=3&after=8"]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_forcing_of_a_frame_may_arrive_after_the_frame_before(gateway: Gateway, kind: str) -> None:
    """Control: the forcing of each step follows from the state before it."""
    last, state = [U], [U]

    def forcing() -> Iterator[Any]:
        while True:
            yield -0.5 * last[0]

    async def later() -> AsyncIterator[Any]:
        for each in forcing():
            yield each

    if kind.startswith("Async"):
        async with (
            KINDS[kind](address_for(kind, gateway)) as client,
            aclosing(client.rollout_stream(MODEL, U, 4, f=later(), power=iter([1.0, 1.0, 2.0, 2.0]))) as frames,
        ):
            async for frame in frames:
                last[0] = frame
                state.append(frame)
    else:
        with KINDS[kind](address_for(kind, gateway)) as client:
            for frame in client.rollout_stream(MODEL, U, 4, f=forcing(), power=iter([1.0, 1.0, 2.0, 2.0])):
                last[0] = frame
                state.append(frame)
    assert len(state) == 5
    np.testing.assert_allclose(state[2], U / 4, rtol=1e-5)
    np.testing.assert_allclose(state[4], 0 * U, atol=1e-6)


def test_an_iterator_ends_the_rollout_and_is_for_what_changes_in_time(gateway: Gateway) -> None:
    with Client(gateway.url) as client:
        frames = [*client.rollout_stream(MODEL, u=U[0], f=iter(F[0]), quality=True)]
        np.testing.assert_allclose(
            np.stack([each for each, _ in frames]), toy_rollouts.push(U, F)[0], rtol=1e-4, atol=1e-5
        )
        with pytest.raises(InvalidInput, match="expected a value, which holds for all frames, of u"):
            next(client.rollout_stream(MODEL, u=iter(U), f=F))


@pytest.mark.filterwarnings("ignore::petrov_client.OutsideTrainingWarning")
def test_a_sample_that_has_failed_stays_so_while_its_forcing_arrives(gateway: Gateway) -> None:
    u, huge = np.stack([np.full(16, 3e38, np.float32), U[0]]), np.full(16, 3e38, np.float32)
    forcing = [np.stack([each, F[0, 0]]) for each in (0 * huge, huge, 0 * huge)]
    with Client(gateway.url) as client:
        found = np.stack([*client.rollout_stream(MODEL, u=u, f=iter(forcing), partial=True)])
        np.testing.assert_array_equal(found[0, 0], u[0])
        assert np.isnan(found[1:, 0]).all()
        np.testing.assert_allclose(found[2, 1], U[0] + 3 * F[0, 0], rtol=1e-5)
        with pytest.warns(IncompleteRolloutWarning, match="after frame 1 of 2"):
            frames = [*client.rollout_stream(MODEL, u=u[0], f=iter([each[0] for each in forcing]), partial=True)]
        assert len(frames) == 1


def test_one_number_is_for_all_frames_and_one_sample_needs_no_batch(gateway: Gateway) -> None:
    with Client(gateway.url) as client:
        found = client.rollout(MODEL, u=U[0], f=F[0], power=2.0)
        np.testing.assert_allclose(found, toy_rollouts.push(U, F, 2.0)[0], rtol=1e-4, atol=1e-5)
        [*frames] = client.rollout_stream(MODEL, u=U, f=F, frames=FRAMES)
        np.testing.assert_allclose(np.stack(frames, 1), toy_rollouts.push(U, F), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(client.predict(MODEL, u=U, f=F), np.stack(frames, 1), rtol=1e-5, atol=1e-6)


def test_one_sample_may_have_the_batch_axis_in_some_inputs_alone(gateway: Gateway) -> None:
    expected = toy_rollouts.push(U[:1], F[:1], POWER[:1])
    with Client(gateway.url) as client:
        for inputs, wanted in (
            ({"u": U[0], "f": F[:1], "power": POWER[:1]}, expected[0]),
            ({"u": U[:1], "f": F[0], "power": POWER[0]}, expected),
            ({"u": U[:1], "f": F[:1], "power": POWER[0]}, expected),
        ):
            found = client.rollout(MODEL, **inputs)
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        with pytest.raises(InvalidInput, match=r"u has shape \(3, 16\) and f \(11, 16\): expected \(batch, frame, x\)"):
            client.rollout(MODEL, u=U, f=F[0])
        with pytest.raises(InvalidInput, match=r"f \(3, 11, 16\): expected \(frame, x\) beside it"):
            client.rollout(MODEL, u=U[0], f=F)


def test_another_number_of_frames_is_refused_before_it_is_sent(gateway: Gateway) -> None:
    with Client(gateway.url) as client:
        with pytest.raises(InvalidInput, match=f"expected 5 frames in f but got {FRAMES}"):
            client.rollout(MODEL, u=U, f=F, frames=5)
        with pytest.raises(InvalidInput, match=f"as many frames in all but f has {FRAMES} and power 4"):
            client.rollout(MODEL, u=U, f=F, power=POWER[:, :4])


def test_the_gradient_by_a_forcing_has_its_frames(gateway: Gateway) -> None:
    cotangent = RNG.standard_normal((3, 5, 16)).astype(np.float32)
    with Client(gateway.url) as client:
        _, gradients = client.vjp(MODEL, {"u": U, "f": F[:, :5], "power": 1.0}, {"state": cotangent})
    after = np.cumsum(cotangent[:, ::-1], axis=1)[:, ::-1]
    np.testing.assert_allclose(gradients["f"], after, rtol=1e-4, atol=1e-5)
    assert gradients["power"].shape == (3, 5)
    np.testing.assert_allclose(gradients["power"], (after * F[:, :5]).sum(axis=2), rtol=1e-4, atol=1e-4)
