"""The gateway before the shared Triton, and what a test has to know of the toys it serves."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
import pytest
import uvicorn

from serving.app import create_app
from serving.inference import TritonInference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from numpy.typing import NDArray

    from serving.service import Service
    from serving.settings import Settings
    from serving.triton_server import TritonServer


@dataclass(frozen=True)
class Gateway:
    """A gateway that listens."""

    url: str
    settings: Settings
    service: Service


@dataclass(frozen=True)
class Toy:
    """A served model: its documents, and its answer in NumPy to a field or a batch."""

    name: str
    folder: Path
    compute: Callable[[NDArray[Any]], NDArray[Any]]

    @property
    def card(self) -> dict[str, Any]:
        return self._document("card.json")

    @property
    def certificate(self) -> dict[str, Any]:
        return self._document("certificate.json")

    def answer(self, array: NDArray[Any]) -> NDArray[Any]:
        batch = np.asarray(array, np.float32)
        return self.compute(batch) if batch.ndim == 3 else self.compute(batch[None])[0]

    def _document(self, file: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "1" / file).read_text())
        return document


@pytest.fixture(scope="session", params=["blur", "blur_torchscript"])
def toy(request: pytest.FixtureRequest, toy_repository: Path, blur: Callable[[NDArray[Any]], NDArray[Any]]) -> Toy:
    return Toy(request.param, toy_repository / request.param, blur)


@pytest.fixture(scope="session")
def run_gateway() -> Callable[[Settings], AbstractContextManager[Gateway]]:
    """Gives a context in which a gateway listens, from a thread of its own, before the Triton of the settings."""

    @contextmanager
    def running(settings: Settings) -> Iterator[Gateway]:
        app = create_app(settings, TritonInference(settings.triton_addresses[0], settings.max_body_bytes))
        config = uvicorn.Config(
            app, host=settings.host, port=settings.port, log_config=None, timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        url = f"http://{settings.host}:{settings.port}"
        try:
            wait_until(lambda: ready(url))
            yield Gateway(url, settings, app.state.service)
        finally:
            server.should_exit = True
            thread.join()

    return running


@pytest.fixture(scope="session")
def gateway(
    triton: TritonServer, run_gateway: Callable[[Settings], AbstractContextManager[Gateway]]
) -> Iterator[Gateway]:
    """The gateway before the shared Triton."""
    with run_gateway(triton.settings) as running:
        yield running


def ready(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/health/ready").status_code == 200
    except httpx2.TransportError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Poll until the condition holds.

    Raises:
        TimeoutError: It did not in time.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.05)
