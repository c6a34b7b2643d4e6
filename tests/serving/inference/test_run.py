"""Batches are cut into calls that a model takes, and what exceeds Triton's queue is refused."""

from __future__ import annotations

import asyncio
import io
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from numpy.typing import NDArray

from schema.card import FRAME
from serving.errors import Problem
from serving.limits import Caller
from serving.local_triton.server import TritonServer
from serving.service import Service
from serving.triton import Run, Triton
from tests import toy_rollouts
from tests.conftest import Gateway, RunService
from tests.refusals import refused
from tests.serving.conftest import npy

PATH = "/v1/models/blur/predict"
NPY = {"Content-Type": "application/x-npy", "Accept": "application/x-npy"}


def test_a_large_batch_comes_back_in_order(gateway: Gateway, blur: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    fields = np.random.default_rng(0).random((50, 9, 9)).astype(np.float32) + 1  # the model takes 8
    response = httpx2.post(gateway.url + PATH, content=npy(fields), headers=NPY, timeout=60)
    assert response.status_code == 200, response.text
    np.testing.assert_allclose(np.load(io.BytesIO(response.content)), blur(fields), rtol=1e-5)


@pytest.mark.parametrize(("model", "route"), [("blur", "predict"), ("growth", "rollout")])
def test_a_request_whose_version_goes_meanwhile_is_paid_once(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, model: str, route: str
) -> None:
    predictor, spent = gateway.service.predictor, list[int]()
    infer, answers = predictor.infer, iter([False])

    async def gone_once(*args: Any) -> Any:
        if next(answers, True):
            return await infer(*args)
        raise Problem("model-not-ready", "it has just gone")

    monkeypatch.setattr(predictor, "infer", gone_once)
    monkeypatch.setattr(Caller, "spend", lambda _, samples, each: spent.append(samples * each))
    fields = {"blur": (9, 9), "growth": (16,)}[model]
    url = f"{gateway.url}/v1/models/{model}/{route}"
    headers = NPY if route == "predict" else {"Content-Type": "application/x-npy"}
    response = httpx2.post(url, content=npy(np.ones(fields, np.float32)), headers=headers)
    assert response.status_code == 200, response.text
    assert next(answers, None) is None
    assert len(spent) == 1


async def test_a_call_has_as_many_samples_as_the_reply_holds(triton: TritonServer) -> None:
    """As of a product of trajectories, which computes all frames in one call."""
    settings = triton.settings
    service = Service(settings, Triton(settings.triton_address, 2**20), "0")
    async with service.run():
        while not service.readiness().ready:  # noqa: ASYNC110 - readiness has no event
            await asyncio.sleep(0.05)
        card = service.catalogue.find(toy_rollouts.NAME)

        async def computed(samples: int, points: int, frames: int) -> Any:
            inputs = {"u": np.ones((samples, points), np.float32), "rate": np.full(samples, 1.001, np.float32)}
            frame = np.broadcast_to(np.int32(0), (samples, frames))
            return await service.predictor.infer(card, {**inputs, FRAME: frame}, Run.within(60))

        found = (await computed(card.limits.batch, 1000, 1000))["state"]  # 4 MB each, of a reply of 9 MiB
        np.testing.assert_allclose(found[:, 2], 1.001**3, rtol=1e-5)
        assert found.shape == (card.limits.batch, 1000, 1000)
        with refused("body-too-large", match="the limit is .* send fewer points or frames"):
            await computed(1, 100_000, 30)


def test_calls_beyond_the_queue_of_a_model_are_refused(
    toy_repository: Path,
    tmp_path: Path,
    run_service: RunService,
) -> None:
    shutil.copytree(toy_repository / "blur", tmp_path / "blur")
    config = tmp_path / "blur" / "config.pbtxt"
    waiting = (
        "dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 1000000 "
        "default_queue_policy { max_queue_size: 2 } }"
    )
    config.write_text(config.read_text().replace("dynamic_batching { }", waiting))
    with run_service(tmp_path) as gateway, ThreadPoolExecutor(6) as pool:
        body = npy(np.ones((9, 9), np.float32))
        pending = [pool.submit(httpx2.post, gateway.url + PATH, content=body, headers=NPY) for _ in range(6)]
        found = [each.result() for each in pending]
    refused = [each for each in found if each.status_code != 200]
    assert 200 in {each.status_code for each in found}
    assert {(each.status_code, each.json()["type"]) for each in refused} == {(503, "urn:petrov:problem:overloaded")}
    assert all(int(each.headers["retry-after"]) >= 1 for each in refused)
