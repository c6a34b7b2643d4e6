"""What clients of several nodes see while one of them fails: failures, and times as a ratio to calm ones.

Three nodes serve one small model behind Envoy, on one machine: `deploy.nodes`. Some clients, of which each sends its
next request shortly after its last response, meet one trouble after the other, each behind a calm time of its own; all
is one run, so ratios hold where times do not.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.harness import Row
from deploy.nodes.cluster import Cluster, Node
from petrov_client import Client
from serving.settings import Settings

MODEL, POINTS, CLIENTS, PAUSE_SECONDS = "burgers", 256, 6, 0.02
CLOSE = 1e-6  # how far, relative to its largest value, a response may be from that of a single node


@dataclass
class Seen:
    """What clients have seen in some time: the seconds of each response, and what failed."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    farthest: float = 0.0  # relative distance of a response from that of a single node

    def cut(self, share: float) -> float:
        return float(np.quantile(self.seconds, share))


class Clients:
    """Clients that predict until they are ended; `watch` says what they see meanwhile."""

    def __init__(self, url: str, expected: np.ndarray, field: np.ndarray) -> None:
        self._url, self._expected, self._field = url, expected, field
        self._seen, self._lock, self._ended = Seen(), threading.Lock(), threading.Event()

    @contextmanager
    def run(self) -> Iterator[None]:
        with ThreadPoolExecutor(CLIENTS) as pool:
            running = [pool.submit(self._client) for _ in range(CLIENTS)]
            try:
                yield
            finally:
                self._ended.set()
            for each in running:
                each.result()

    @contextmanager
    def watch(self) -> Iterator[Seen]:
        """Yield what is seen from now to the end of the context."""
        with self._lock:
            self._seen = seen = Seen()
        yield seen
        with self._lock:
            self._seen = Seen()

    def _client(self) -> None:
        with Client(self._url) as client:
            while not self._ended.wait(PAUSE_SECONDS):
                start = time.monotonic()
                try:
                    found = client.predict(MODEL, self._field)
                except Exception as error:  # noqa: BLE001  which is what is counted
                    with self._lock:
                        self._seen.errors.append(repr(error))
                    continue
                distance = float(np.abs(found - self._expected).max() / np.abs(self._expected).max())
                with self._lock:
                    self._seen.seconds.append(time.monotonic() - start)
                    self._seen.farthest = max(self._seen.farthest, distance)


def measure(repository: Path, *, quick: bool) -> Iterator[Row]:
    """Yield a row per trouble.

    Args:
        repository: Exported models.
        quick: Whether each time is short.
    """
    seconds = 3.0 if quick else 20.0  # so that a few requests are less than a hundredth
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder)

        def copied(number: int) -> Path:
            shutil.copytree(repository / MODEL, own / f"repository-{number}" / MODEL)
            return own / f"repository-{number}"

        settings = Settings.model_validate({"shadow_share": 0.0, "repository": copied(99)})
        with Cluster(settings, own / "nodes", repository=copied) as cluster:
            field = np.sin(2 * np.pi * np.arange(POINTS, dtype=np.float32) / POINTS)[None]
            with Client(cluster.nodes[0].url) as client:
                expected = client.predict(MODEL, field)
            clients = Clients(cluster.settings.url, expected, field)
            with clients.run():
                time.sleep(2.0)
                for name, begin, end in troubles(cluster):
                    yield trouble(cluster, clients, seconds, (name, begin, end))


Trouble = tuple[str, Callable[[], object], Callable[[], object]]


def troubles(cluster: Cluster) -> Iterator[Trouble]:
    """Yield names of troubles, with what begins and what ends each."""
    node, nothing = cluster.nodes[0], lambda: None
    yield "none", nothing, nothing
    yield "a node is killed", node.kill, node.restart
    yield "a node is frozen", node.freeze, node.thaw
    if cluster.networks:

        def links(nodes: list[Node], loss: float = 0.0, delay: float = 0.0) -> Callable[[], object]:
            def change() -> None:
                for each in nodes:
                    each.link(loss=loss, delay=delay)

            return change

        every, one = cluster.nodes[:3], [node]
        yield "a node is cut off", lambda: node.link(up=False), node.link
        yield "5 % of the packets of a node are lost", links(one, loss=0.05), node.link
        yield "5 % of all packets are lost", links(every, loss=0.05), links(every)
        yield "100 ms more to a node and back", links(one, delay=0.1), node.link
        yield "100 ms more to all nodes and back", links(every, delay=0.1), links(every)
    yield "the model is updated, node after node", lambda: update(cluster), nothing
    yield "a node is added", cluster.add, nothing
    yield "a node is removed", lambda: cluster.remove(cluster.nodes[-1]), nothing


def trouble(cluster: Cluster, clients: Clients, seconds: float, one: Trouble) -> Row:
    """Return what clients see in a trouble, and in the calm time before it."""
    name, begin, end = one
    with clients.watch() as calm:
        time.sleep(seconds)
    before, counters = time.monotonic(), cluster.counters()
    with clients.watch() as seen:
        begin()
        time.sleep(max(0.0, before + seconds - time.monotonic()))
    after = cluster.counters()
    end()
    cluster.wait_ready()
    time.sleep(1.0)  # in which requests end that have waited
    return {
        "trouble": name,
        "networks": cluster.networks,
        "requests": len(seen.seconds) + len(seen.errors),
        "failed": len(seen.errors),
        "errors": seen.errors[:3],
        "repeated": after.get("upstream_rq_retry", 0) - counters.get("upstream_rq_retry", 0),
        "farthest": seen.farthest,
        "calm": [calm.cut(0.5), calm.cut(0.99)],
        "seen": [seen.cut(0.5), seen.cut(0.99), max(seen.seconds)],
    }


def update(cluster: Cluster) -> None:
    """Publish the same model as a new version, on one node after the other, each without requests meanwhile."""
    for node in cluster.nodes:
        folder = node.settings.repository / MODEL
        old = max((each for each in folder.iterdir() if each.name.isdecimal()), key=lambda each: int(each.name))
        new, hidden = folder / str(int(old.name) + 1), folder / ".new"
        shutil.copytree(old, hidden)
        card = json.loads((hidden / "card.json").read_text()) | {"version": int(new.name)}
        (hidden / "card.json").write_text(json.dumps(card))
        with cluster.without(node), Client(node.url) as client:
            hidden.rename(new)
            while client.model(MODEL).version < int(new.name):
                time.sleep(0.1)
