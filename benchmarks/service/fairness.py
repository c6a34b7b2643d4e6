"""Short predictions of a model beside a long rollout of it: by how many steps of the model it delays them.

Rounds without and with the rollout alternate, so that both meet the same other work on the machine. The rollout is that
of another process, which reads frames as they arrive and starts again at the end.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np

from benchmarks.service.running import running
from petrov_client import Client

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODEL = "kuramoto_sivashinsky"
FRAMES = 500
SAMPLE = 7  # the only stored one whose rollout stays finite for 500 frames
ROUNDS, PREDICTIONS, WARM = 4, 40, 5
HEADER = ("predictions of one frame", "median ms", "95 % ms", "median delay in steps", "95 % delay in steps")


def measure(repository: Path, *, quick: bool) -> dict[str, Any]:
    """Return the latencies in seconds, and the time of one frame of a rollout alone.

    Args:
        repository: Holds the model.
        quick: Whether to measure a few rounds only.
    """
    with TemporaryDirectory() as folder:
        shutil.copytree(repository / MODEL, Path(folder) / MODEL)
        with running(Path(folder)) as service, Client(service.gateway) as client:
            state = dict(client.example(MODEL, SAMPLE).inputs)
            step = frame_seconds(client, state)
            alone, beside = [], []
            for _ in range(2 if quick else ROUNDS):
                alone += latencies(service.gateway, state)
                rolling = multiprocessing.get_context("spawn").Process(target=roll, args=(service.gateway, state))
                rolling.start()
                wait_for_frames(service.gateway)
                beside += latencies(service.gateway, state)
                rolling.terminate()
                rolling.join()
    return {
        "model": MODEL,
        "frames": FRAMES,
        "load": os.getloadavg()[0],
        "step": step,
        "alone": alone,
        "beside": beside,
    }


def rows(document: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the table: a row without the rollout, and one with it."""
    found = []
    for name, title in (("alone", "alone"), ("beside", f"beside a rollout of {document['frames']} frames")):
        middle, slow = (np.quantile(document[name], share) for share in (0.5, 0.95))
        base = [np.quantile(document["alone"], share) for share in (0.5, 0.95)]
        delays = ["", ""]
        if name == "beside":
            delays = [f"{(now - then) / document['step']:.1f}" for now, then in zip((middle, slow), base, strict=True)]
        found.append((title, f"{1e3 * middle:.1f}", f"{1e3 * slow:.1f}", *delays))
    return found


def frame_seconds(client: Client, state: dict[str, NDArray[Any]]) -> float:
    """Return the seconds of one frame of a rollout alone: the median of the second half of its frames."""
    arrived = [time.perf_counter() for _ in client.rollout_stream(MODEL, state, FRAMES)]
    return (arrived[-1] - arrived[FRAMES // 2]) / (FRAMES - 1 - FRAMES // 2)


def latencies(url: str, state: dict[str, NDArray[Any]]) -> list[float]:
    """Return the seconds of predictions of one frame, one after another."""
    body = {"inputs": {name: array.tolist() for name, array in state.items()}, "frames": 1}
    found = []
    with httpx2.Client(base_url=url, timeout=60) as http:
        for _ in range(WARM + PREDICTIONS):
            start = time.perf_counter()
            http.post(f"/v1/models/{MODEL}/predict", json=body).raise_for_status()
            found.append(time.perf_counter() - start)
    return found[WARM:]


def roll(url: str, state: dict[str, NDArray[Any]]) -> None:
    """Roll out again and again, until the process is ended."""
    with Client(url) as client:
        while True:
            for _ in client.rollout_stream(MODEL, state, FRAMES):
                pass


def wait_for_frames(url: str) -> None:
    """Return once further frames have been sent."""

    def sent() -> str:
        lines = httpx2.get(f"{url}/metrics").text.splitlines()
        return next((line for line in lines if line.startswith("petrov_frames_total{")), "")

    before = sent()
    while sent() == before:
        time.sleep(0.1)
