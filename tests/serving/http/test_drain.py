"""The gateway on SIGTERM while it is busy: it finishes what it has begun, and later connections are refused."""

from __future__ import annotations

import http.client
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from serving.codecs import npy
from tests.serving.test_commands import command, status, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from serving.settings import Settings
    from serving.triton.server import TritonServer

CLIENTS = 4
BODY = npy.write(np.ones((40, 64, 64), np.float32))
HEADERS = {"Content-Type": npy.MEDIA_TYPE, "Connection": "close"}


def test_sigterm_under_load_loses_no_response(
    triton: TritonServer, toy_repository: Path, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    """Every client gets a whole response or a refused connection; the log and the clients agree on how many."""
    shutil.copytree(toy_repository / "blur", tmp_path / "repository" / "blur")
    settings = make_settings(tmp_path / "repository", log_format="json")
    elsewhere = triton.settings.triton_addresses[0]
    responses, stop = list[int](), threading.Event()

    def send() -> None:
        while not stop.is_set():
            with closing(http.client.HTTPConnection("127.0.0.1", settings.port, timeout=60)) as connection:
                try:
                    connection.request("POST", "/v1/models/blur/predict", BODY, HEADERS)
                    reply = connection.getresponse()
                except OSError:  # the gateway has stopped listening
                    stop.set()
                    return
                assert len(reply.read()) == len(BODY)  # a truncated response raises
                responses.append(reply.status)

    with command(settings, "gateway", "--triton", elsewhere) as (service, said):
        wait_for(lambda: status(settings, "/health/ready") == 200)
        with ThreadPoolExecutor(CLIENTS) as pool:
            running = [pool.submit(send) for _ in range(CLIENTS)]
            wait_for(lambda: len(responses) > 10)
            service.terminate()
            assert service.wait(60) == 0
            for each in running:
                each.result()
    logged = [json.loads(line) for line in said.read_text().splitlines()]
    statuses = [line["status"] for line in logged if line.get("route", "").endswith("/predict")]
    assert set(responses) == {200}
    assert statuses == ["200"] * len(responses)
