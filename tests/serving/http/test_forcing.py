"""Rollouts whose inputs change in time: the frames that a request sends, streams in pieces, further requests."""

from __future__ import annotations

import io
import json
from typing import Any

import httpx2
import numpy as np
import pytest

from serving.frames import PIECE
from tests import toy_rollouts
from tests.serving.http.test_rollout import parts

MODEL = f"/v1/models/{toy_rollouts.PUSHED}"
FRAMES, POINTS = 2 * PIECE + 3, 16
RNG = np.random.default_rng(0)
U = RNG.standard_normal((2, POINTS)).astype(np.float32)
F = RNG.standard_normal((2, FRAMES, POINTS)).astype(np.float32)
POWER = RNG.uniform(1, 2, (2, FRAMES)).astype(np.float32)
EXPECTED = toy_rollouts.push(U, F, POWER)


def body(**inputs: Any) -> dict[str, Any]:
    return {"inputs": {name: np.asarray(array).tolist() for name, array in ({"u": U, "f": F} | inputs).items()}}


def predicted(response: httpx2.Response) -> Any:
    assert response.status_code == 200, response.text
    return np.array(response.json()["outputs"]["state"])


def test_as_many_frames_follow_as_the_forcing_has(http: httpx2.Client) -> None:
    found = predicted(http.post(f"{MODEL}/predict", json=body(power=POWER)))
    np.testing.assert_allclose(found, EXPECTED, rtol=1e-4, atol=1e-5)
    single = predicted(http.post(f"{MODEL}/predict?frames={FRAMES}", json=body(u=U[0], f=F[0], power=POWER[0])))
    np.testing.assert_allclose(single, EXPECTED[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("power", [None, 1.0, np.ones(FRAMES)], ids=["left out", "one number", "a number per frame"])
def test_a_number_is_for_all_frames_or_one_of_each(http: httpx2.Client, power: Any) -> None:
    inputs = {} if power is None else {"power": power}
    found = predicted(http.post(f"{MODEL}/predict", json=body(**inputs)))
    np.testing.assert_allclose(found, toy_rollouts.push(U, F), rtol=1e-4, atol=1e-5)


REFUSED = {
    "frames=5": ({}, f"f has {FRAMES} frames; expected 5, as frames says"),
    "": ({"power": POWER[:, :4]}, f"power has 4 frames and f {FRAMES}"),
    "partial=false": ({"power": POWER[0, :4]}, f"power has 4 frames and f {FRAMES}"),
    "frames=1001": ({}, "frames: expected at most 1000"),
    "outside=answer": (
        {"f": F[:, 0]},
        "f has shape (2, 16) and u (2, 16); expected the same samples and grid, (batch, frame, x) of f",
    ),
}


@pytest.mark.parametrize("query", REFUSED)
def test_another_number_of_frames_is_refused_by_name(http: httpx2.Client, query: str) -> None:
    inputs, sentence = REFUSED[query]
    response = http.post(f"{MODEL}/predict?{query}", json=body(**inputs))
    assert response.status_code in {400, 422}
    assert sentence in response.json()["detail"]


def test_frames_of_query_and_body_are_the_same(http: httpx2.Client) -> None:
    def post(frames: int) -> httpx2.Response:
        return http.post(f"{MODEL}/predict?frames={FRAMES}", json=body() | {"frames": frames})

    assert predicted(post(FRAMES)).shape == EXPECTED.shape
    refused = post(FRAMES - 1)
    assert (refused.status_code, refused.json()["detail"]) == (422, "frames: expected one value but got several")


def test_a_member_that_is_unknown_is_named(http: httpx2.Client) -> None:
    response = http.post(f"{MODEL}/predict", json=body() | {"tolerance": 1e-3})
    expected = 'the JSON body has no member "tolerance"; there are cells, frames, grid, inputs'
    assert (response.status_code, response.json()["detail"]) == (400, expected)


def test_a_stream_takes_the_forcing_of_each_call_and_goes_on_with_further_forcing(http: httpx2.Client) -> None:
    found = parts(http.post(f"{MODEL}/rollout", json=body(power=POWER)))
    documents = [json.loads(content) for _, content in found]
    states = np.stack([document["outputs"]["state"] for document in documents], axis=1)
    np.testing.assert_allclose(states, EXPECTED, rtol=1e-4, atol=1e-5)
    state = states[:, 4]
    more = body(u=state, f=F[:, 5:7], power=POWER[:, 5:7])
    further = parts(http.post(f"{MODEL}/rollout?after=5", json=more))
    assert [int(headers["petrov-frame"]) for headers, _ in further] == [6, 7]
    last = np.array(json.loads(further[-1][1])["outputs"]["state"])
    np.testing.assert_allclose(last, EXPECTED[:, 6], rtol=1e-4, atol=1e-5)


def test_an_unusual_forcing_makes_its_own_frame_and_what_follows_foreign(http: httpx2.Client) -> None:
    loud = F[0].copy()
    loud[PIECE + 2] *= 1000
    response = http.post(f"{MODEL}/predict", json=body(u=U[0], f=loud))
    quality = response.json()["quality"]
    novelty, outside = np.array(quality["novelty"]).ravel(), np.array(quality["outside"]).ravel()
    assert (novelty == 0).nonzero()[0].tolist() == [PIECE + 2]
    assert outside.tolist() == [index >= PIECE + 2 for index in range(FRAMES)]


def test_the_gradient_by_the_forcing_has_its_frames(http: httpx2.Client) -> None:
    count = 5
    cotangent = RNG.standard_normal((2, count, POINTS)).astype(np.float32)
    document = body(f=F[:, :count], power=POWER[:, :count]) | {"cotangents": {"state": cotangent.tolist()}}
    response = http.post(f"{MODEL}/vjp", json=document)
    assert response.status_code == 200, response.text
    gradients = {name: np.array(each) for name, each in response.json()["gradients"].items()}
    after = np.cumsum(cotangent[:, ::-1], axis=1)[:, ::-1]
    np.testing.assert_allclose(gradients["f"], after * POWER[:, :count, None], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradients["power"], (after * F[:, :count]).sum(axis=2), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(gradients["u"], after[:, 0], rtol=1e-4, atol=1e-5)
    document["cotangents"]["state"] = cotangent[:, :3].tolist()
    response = http.post(f"{MODEL}/vjp", json=document)
    assert response.status_code in {400, 422}
    assert "frames" in response.json()["detail"]
    response = http.post(f"{MODEL}/vjp?after=3", json=document)
    assert (response.status_code, response.json()["detail"]) == (
        422,
        "after: derivatives have no error estimates, whose frames it counts",
    )


def test_npy_is_refused_with_the_name_of_what_is_missing(http: httpx2.Client) -> None:
    content = io.BytesIO()
    np.save(content, U)
    response = http.post(f"{MODEL}/predict", content=content.getvalue(), headers={"Content-Type": "application/x-npy"})
    assert response.status_code in {400, 415, 422}
    assert "f" in response.json()["detail"]
