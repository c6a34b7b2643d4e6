"""Three real Tritons behind one gateway: one is killed, one frozen, all are updated, and no response is lost."""

from __future__ import annotations

import io
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
import pytest

from tests.conftest import wait_until
from tests.serving.http.test_gateway import sample
from tests.serving.triton.test_faults import publish, stopped, tritons

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from numpy.typing import NDArray

    from serving.settings import Settings
    from serving.triton.server import TritonServer
    from tests.conftest import Gateway

MODEL = "blur"
SHAPES = ((8, 8), (16, 16), (21, 23))


@dataclass(frozen=True)
class Fleet:
    """A gateway and its Tritons, each with a repository of its own."""

    gateway: Gateway
    tritons: list[TritonServer]

    def metric(self, name: str, triton: TritonServer) -> float:
        text = httpx2.get(f"{self.gateway.url}/metrics").text
        return sample(text, name, endpoint=triton.settings.triton_address)

    def up(self) -> list[bool]:
        return [self.metric("petrov_endpoint_up", triton) == 1 for triton in self.tritons]


@dataclass
class Responses:
    """The responses that the clients of a load received, with a message for every wrong one."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    versions: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
def fleet(
    toy_repository: Path,
    tmp_path_factory: pytest.TempPathFactory,
    make_settings: Callable[..., Settings],
    run_triton: Callable[[Settings], AbstractContextManager[TritonServer]],
    run_gateway: Callable[[Settings], AbstractContextManager[Gateway]],
) -> Iterator[Fleet]:
    """Three Tritons with version 1, and a gateway whose own repository has the card of version 2 already."""
    repositories = [
        tmp_path_factory.mktemp(name) / "model_repository" for name in ("first", "second", "third", "cards")
    ]
    for repository in repositories:
        shutil.copytree(toy_repository / MODEL, repository / MODEL)
    publish(repositories[3], MODEL, 2, hidden=repositories[3].parent)
    with ExitStack() as running:
        servers = [running.enter_context(run_triton(make_settings(each))) for each in repositories[:3]]
        addresses = tuple(address for server in servers for address in server.settings.triton_address)
        gateway = running.enter_context(run_gateway(make_settings(repositories[3], triton=addresses)))
        yield Fleet(gateway, servers)


@pytest.fixture
def healthy(fleet: Fleet) -> Iterator[Fleet]:
    wait_until(lambda: all(fleet.up()))
    yield fleet
    wait_until(lambda: all(fleet.up()))  # whatever a test did, all come back


@contextmanager
def load(fleet: Fleet, blur: Callable[[NDArray[Any]], NDArray[Any]], clients: int = 6) -> Iterator[Responses]:
    """Run clients that request fields of several shapes without pause and compare every response."""
    responses, stop = Responses(), threading.Event()

    def request(seed: int) -> None:
        random = np.random.default_rng(seed)
        with httpx2.Client(base_url=fleet.gateway.url, timeout=60) as client:
            while not stop.is_set():
                field = random.uniform(0.5, 2, (2, *SHAPES[random.integers(len(SHAPES))])).astype(np.float32)
                response = client.post(f"/v1/models/{MODEL}/predict", content=npy(field), headers=NPY)
                responses.versions.add(response.headers.get("petrov-version", ""))
                if response.status_code != 200:
                    responses.wrong.append(f"{response.status_code} {response.text}")
                elif np.allclose(np.load(io.BytesIO(response.content)), blur(field), rtol=1e-5):
                    responses.right += 1
                else:
                    responses.wrong.append(f"the output of another field, of shape {field.shape}")

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(request, seed) for seed in range(clients)]
        try:
            yield responses
        finally:
            stop.set()
        for each in running:
            each.result()


NPY = {"Content-Type": "application/x-npy"}


def npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def await_more(responses: Responses, count: int = 60) -> None:
    """Wait for that many further responses."""
    before = responses.right
    wait_until(lambda: responses.right >= before + count or bool(responses.wrong))


def test_all_share_the_work(healthy: Fleet, blur: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    with load(healthy, blur) as responses:
        await_more(responses)
    assert not responses.wrong
    for triton in healthy.tritons:
        text = httpx2.get(f"http://127.0.0.1:{triton.settings.triton_metrics_port}/metrics").text
        assert sample(text, "nv_inference_count", model=MODEL, version="1") > 1  # warming counts one


def test_a_killed_server_costs_no_response(healthy: Fleet, blur: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    victim = healthy.tritons[0]
    with load(healthy, blur) as responses:
        await_more(responses)
        for process in tritons(victim.settings):
            process.send_signal(signal.SIGKILL)
        wait_until(lambda: not healthy.up()[0])
        await_more(responses)
        wait_until(lambda: all(healthy.up()))  # it is restarted
        await_more(responses)
    assert not responses.wrong


def test_a_frozen_server_costs_seconds_and_no_response(
    healthy: Fleet, blur: Callable[[NDArray[Any]], NDArray[Any]]
) -> None:
    """Its calls are abandoned when it misses a probe, and repeated: their clients wait that long."""
    victim = healthy.tritons[1]
    before = healthy.metric("petrov_retries_total", victim)
    with load(healthy, blur) as responses:
        await_more(responses)
        with stopped(victim.settings):
            wait_until(lambda: not healthy.up()[1])
            await_more(responses)
    assert not responses.wrong
    assert healthy.metric("petrov_retries_total", victim) > before


def test_an_update_server_by_server_costs_no_response(
    healthy: Fleet, blur: Callable[[NDArray[Any]], NDArray[Any]]
) -> None:
    catalogue = healthy.gateway.service.catalogue
    with load(healthy, blur) as responses:
        await_more(responses)
        for triton in healthy.tritons:
            repository = triton.settings.repository
            publish(repository, MODEL, 2, hidden=repository.parent)
            wait_until(lambda: catalogue.model(MODEL).versions == (1, 2))
            await_more(responses)
        for triton in healthy.tritons:
            shutil.rmtree(triton.settings.repository / MODEL / "1")
            await_more(responses)
        wait_until(lambda: catalogue.model(MODEL).versions == (2,))
        await_more(responses)
    assert not responses.wrong
    assert responses.versions == {"1", "2"}
