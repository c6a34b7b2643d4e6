"""Several gateways before one Triton, as on a machine with a GPU: processes of their own that share what is loaded."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx2
import numpy as np
import pytest

from serving.settings import Settings
from tests.conftest import wait_until
from tests.serving.catalogue.test_loading import FIELD, KEY, loaded
from tests.serving.test_commands import command, status
from tests.serving.triton.test_faults import add


def predict(settings: Settings, model: str) -> httpx2.Response:
    return httpx2.post(f"{settings.url}/v1/models/{model}/predict", json=FIELD, timeout=60)


def loads(settings: Settings) -> float:
    lines = httpx2.get(f"{settings.url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("petrov_model_loads_total{"))


def state(settings: Settings, model: str) -> str:
    found = httpx2.get(f"{settings.url}/v1/models").json()["models"]
    return next(str(each["state"]) for each in found if each["name"] == model)


@pytest.mark.deep
def test_gateways_of_one_triton_share_what_is_loaded_and_its_memory(
    toy_repository: Path, tmp_path: Path, make_settings: Callable[..., Settings], run_triton: Callable[..., object]
) -> None:
    """A card's memory for one model makes them load for a GPU, which is a matter of the config alone."""
    repository = tmp_path / "repository"
    shutil.copytree(toy_repository / "blur", repository / "blur")
    add(repository, "other")
    server = make_settings(repository)
    address = f"127.0.0.1:{server.triton_http_port}"
    one, two = (
        make_settings(repository, triton=address, triton_grpc=by, triton_key=KEY, gpu_memory="1GB")
        for by in ("", f"127.0.0.1:{server.triton_grpc_port}")
    )
    with ExitStack() as stack:
        stack.enter_context(run_triton(server, KEY, empty=True))  # type: ignore[arg-type]
        for each in (one, two):
            stack.enter_context(command(each, "gateway"))
        wait_until(lambda: {status(each, "/health/ready") for each in (one, two)} == {200})
        assert {predict(each, "blur").status_code for each in (one, two)} == {200}
        assert loaded(server) == {"blur"}
        assert predict(one, "other").status_code == 200
        assert loaded(server) == {"other"}
        config = httpx2.get(f"http://{address}/v2/models/other/config").json()
        batching = config["dynamic_batching"]
        assert (batching["max_queue_delay_microseconds"], batching["preferred_batch_size"]) == (
            1000,
            [config["max_batch_size"]],
        )
        assert all(config["optimization"][f"{way}_pinned_memory"]["enable"] for way in ("input", "output"))
        wait_until(lambda: state(two, "other") == "loaded")
        before = loads(two)
        assert predict(two, "other").status_code == 200
        assert loads(two) == before
        assert predict(two, "blur").status_code == 200  # what the other one has loaded leaves
        assert loaded(server) == {"blur"}
        assert predict(one, "other").status_code == 200
        assert loaded(server) == {"other"}  # also where one gateway has not noticed yet what the other one has loaded
        earlier = loads(one), loads(two)
        with ThreadPoolExecutor(8) as pool:
            found = [*pool.map(predict, [one, two] * 8, ["blur", "other", "other", "blur"] * 4)]
        assert {each.status_code for each in found} == {200}, {each.text for each in found}
        first = [np.array(each.json()["outputs"]["solution"]) for each in found]
        assert all(np.array_equal(each, first[0]) for each in first)
        assert loads(one) + loads(two) > sum(earlier)
