"""A model that begins to report on its errors: its config changes with its version, and no request is lost."""

from __future__ import annotations

import json
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import numpy as np
import onnx
import onnx.utils
import pytest

from tests.conftest import RunService, wait_until

DOCUMENT = {"inputs": {"coefficient": np.ones((8, 8)).tolist()}}


@pytest.fixture
def repository(toy_repository: Path, tmp_path: Path) -> Path:
    """Return a repository with version 1 of `gauge` without quality outputs."""
    folder = tmp_path / "repository"
    shutil.copytree(toy_repository / "gauge", folder / "gauge")
    plain(folder / "gauge")
    return folder


def plain(model: Path) -> None:
    """Take the quality outputs out of config, graph and card."""
    config = model / "config.pbtxt"
    config.write_text(re.sub(r'output \{ name: "(?!solution).*\n', "", config.read_text()))
    graph = str(model / "1" / "model.onnx")
    onnx.utils.extract_model(graph, graph, ["coefficient"], ["solution"])
    card = json.loads((model / "1" / "card.json").read_text())
    (model / "1" / "card.json").write_text(json.dumps(card | {"quality": []}))


def publish(model: Path, toy: Path, aside: Path) -> None:
    """Publish version 2 with quality outputs as export does: its config, the version, then the old version goes."""
    shutil.copytree(toy, aside)
    card = json.loads((aside / "1" / "card.json").read_text())
    (aside / "1" / "card.json").write_text(json.dumps(card | {"version": 2}))
    (aside / "config.pbtxt").replace(model / "config.pbtxt")
    (aside / "1").rename(model / "2")
    (model / "1").rename(aside / "1.old")


def test_no_request_is_lost_when_a_model_begins_to_report_on_its_errors(
    repository: Path,
    toy_repository: Path,
    run_service: RunService,
) -> None:
    found = list[tuple[int, str]]()
    with run_service(repository) as gateway, ThreadPoolExecutor(2) as pool:
        stop = threading.Event()

        def load() -> None:
            with httpx2.Client(base_url=gateway.url, timeout=30) as client:
                while not stop.is_set():
                    response = client.post("/v1/models/gauge/predict", json=DOCUMENT)
                    found.append((response.status_code, response.headers.get("petrov-version", response.text)))

        loading = [pool.submit(load) for _ in range(2)]
        try:
            wait_until(lambda: found.count((200, "1")) > 20)
            publish(repository / "gauge", toy_repository / "gauge", repository.parent / "aside")
            wait_until(lambda: found.count((200, "2")) > 20, 90)
        finally:
            stop.set()
        for each in loading:
            each.result()
    assert {status for status, _ in found} == {200}, {each for each in found if each[0] != 200}
