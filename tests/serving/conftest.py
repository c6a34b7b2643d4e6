"""The toy models that the gateway serves, and what speaks to it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from numpy.typing import NDArray

from serving.local_triton.server import TritonServer
from serving.settings import Settings
from tests.conftest import Gateway

RunGateway = Callable[..., AbstractContextManager[Gateway]]  # with settings by name


@dataclass(frozen=True)
class Toy:
    """A served model: its documents, and its output in NumPy for a field or a batch."""

    name: str
    folder: Path
    compute: Callable[[NDArray[Any]], NDArray[Any]]

    @property
    def card(self) -> dict[str, Any]:
        return self._document("card.json")

    @property
    def certificate(self) -> dict[str, Any]:
        return self._document("certificate.json")

    def output(self, array: NDArray[Any]) -> NDArray[Any]:
        batch = np.asarray(array, np.float32)
        return self.compute(batch) if batch.ndim == 3 else self.compute(batch[None])[0]

    def _document(self, file: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "1" / file).read_text())
        return document


@pytest.fixture(scope="session", params=["blur", "blur_torchscript"])
def toy(request: pytest.FixtureRequest, toy_repository: Path, blur: Callable[[NDArray[Any]], NDArray[Any]]) -> Toy:
    return Toy(request.param, toy_repository / request.param, blur)


@pytest.fixture(scope="session")
def run_before_triton(
    triton: TritonServer,
    make_settings: Callable[..., Settings],
    run_gateway: Callable[[Settings], AbstractContextManager[Gateway]],
) -> RunGateway:
    """Return a context in which a gateway with settings of its own listens before the shared Triton."""

    def running(**changes: object) -> AbstractContextManager[Gateway]:
        address = triton.settings.triton_address
        return run_gateway(make_settings(triton.settings.repository, triton=address, **changes))

    return running


@pytest.fixture(scope="module")
def http(gateway: Gateway) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=gateway.url, timeout=60) as client:
        yield client


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what NumPy does on an event loop with many numbers, which others wait for, as it is called."""
    found: list[str] = []

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            with suppress(RuntimeError):  # no loop runs in this thread
                asyncio.get_running_loop()
                if np.size(result) > 2**16:
                    found.append(function.__name__)
            return result

        return call

    for function in (np.concatenate, np.isfinite, np.pad):
        monkeypatch.setattr(np, function.__name__, watched(function))
    return found


def npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
