"""Three real nodes behind a real Envoy, and what clients see when a node dies, freezes, is cut off, is updated or goes.

The clients are those that we ship, with the repetitions that they make by default. Where namespaces cannot be made the
tests of links are skipped, and fail under CI=true.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx2
import numpy as np
import pytest

from deploy.nodes.cluster import Cluster, Node
from deploy.nodes.envoy import Front
from petrov_client import AsyncClient, AsyncGrpcClient, Client, GrpcClient
from serving.settings import Settings
from tests import toy_rollouts
from tests.conftest import wait_until

pytestmark = [pytest.mark.deep, pytest.mark.filterwarnings("ignore::petrov_client.OutsideTrainingWarning")]

FIELDS = np.random.default_rng(0).random((4, 24, 24), np.float32)
STATE = np.linspace(1, 2, 64, dtype=np.float32)
STATES = np.tile(STATE, (80, 1))  # which are sent in several requests
#: Larger than what sockets and Envoy hold, so that the end of the stream has not been computed when its node fails.
LONG = np.linspace(1, 2, 80_000, dtype=np.float32)
LONG_FRAMES, FRAMES, RATE = 100, 40, 0.999
SECOND = 0.5  # factor of the second version
SAME = {"rtol": 1e-6, "atol": 0.0}


@pytest.fixture(scope="module")
def cluster(
    toy_repository: Path,
    make_settings: Callable[..., Settings],
    free_ports: Callable[[int], list[int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("nodes")

    def repository(number: int) -> Path:
        path = folder / f"repository-{number}"
        for name in ("blur", toy_rollouts.NAME):
            shutil.copytree(toy_repository / name, path / name)
        return path

    settings = make_settings(repository(99))
    [admin] = free_ports(1)
    front = Front(settings, settings.port, settings.grpc_port, admin, frame_seconds=8.0, probe_seconds=2.0)
    with Cluster(settings, folder / "nodes", 3, front, repository=repository) as found:
        yield found


@pytest.fixture
def networked(cluster: Cluster) -> Cluster:
    if not cluster.networks:
        reason = "no network namespaces and devices can be made here (/dev/net/tun, as root)"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    return cluster


class Load:
    """Clients that predict and roll out, one request after the other, and compare each response with that of one node.

    Attributes:
        errors: What a client raised, or which response differed.
        count: Responses that were as expected.
        seconds: How long each took.
    """

    def __init__(self, cluster: Cluster, factors: tuple[float, ...] = (1.0,)) -> None:
        self.errors: list[str] = []
        self.count = 0
        self._stop = threading.Event()
        with Client(cluster.nodes[0].url) as client:
            self._fields = client.predict("blur", FIELDS)
        states = [toy_rollouts.compute(STATE[None], RATE * factor, FRAMES)[0] for factor in factors]
        self._states = [each.astype(np.float32) for each in states]
        addresses = cluster.settings.url, f"127.0.0.1:{cluster.settings.grpc_port}"
        self._factors, self._addresses = factors, dict(zip((Client, GrpcClient), addresses, strict=True))
        self._threads = [
            threading.Thread(target=self._run, args=(kind, address, work))
            for kind, address in zip((Client, GrpcClient), addresses, strict=True)
            for work in (self._predict, self._roll, *([self._predict_states] if factors[1:] else []))
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        wait_until(lambda: self.count > 20 or bool(self.errors))
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, kind: Any, address: str, work: Callable[[Any], None]) -> None:
        with kind(address) as client:
            while not self._stop.wait(0.05):  # four of them leave time for the nodes
                try:
                    work(client)
                except Exception as error:  # noqa: BLE001  the test says which
                    self.errors.append(f"{kind.__name__} {work.__name__}: {error!r}")
                else:
                    self.count += 1

    def _predict(self, client: Any) -> None:
        np.testing.assert_allclose(client.predict("blur", FIELDS), self._fields, **SAME)

    def _predict_states(self, client: Any) -> None:
        async def predicted() -> Any:  # four requests at a time
            kind = AsyncClient if isinstance(client, Client) else AsyncGrpcClient
            async with kind(self._addresses[type(client)]) as other:
                return await other.predict("growth", STATES, rate=1.0)

        found = asyncio.run(predicted())  # with frames
        powers = [np.power(factor, np.arange(1, found.shape[1] + 1))[:, None] for factor in self._factors]
        assert any(np.allclose(found, STATES[:, None] * each, rtol=2e-5) for each in powers), "versions are mixed"

    def _roll(self, client: Any) -> None:
        found = client.rollout("growth", STATE, FRAMES, rate=RATE)
        # Every step rounds, in NumPy's powers otherwise than in a product of as many factors.
        assert any(np.allclose(found, each, rtol=2e-5, atol=0.0) for each in self._states), "versions are mixed"

    def served(self, more: int = 60) -> None:
        """Wait for some further responses."""
        enough = self.count + more
        wait_until(lambda: self.count >= enough or bool(self.errors))


@contextmanager
def stream(cluster: Cluster) -> Iterator[tuple[Node, Callable[[], np.ndarray[Any, Any]]]]:
    """Begin a long rollout; yield the node that computes it, and a function that returns all frames."""
    before = {id(node): rolling(node) for node in cluster.nodes}
    with Client(cluster.settings.url) as client:
        frames = client.rollout_stream("growth", LONG, LONG_FRAMES, rate=RATE)
        first = next(frames)
        [node] = [each for each in cluster.nodes if rolling(each) > before[id(each)]]
        assert rolling(node) < before[id(node)] + LONG_FRAMES - 10  # the others are still to be computed
        yield node, lambda: np.stack([first, *frames])


def rolling(node: Node) -> float:
    """Return how many frames of the toy a node has computed."""
    return total(node, "petrov_frames_total", "growth")


def total(node: Node, metric: str, model: str) -> float:
    """Return the sum of a metric of a node over its labels beside the model."""
    lines = httpx2.get(f"{node.url}/metrics").text.splitlines()
    found = [line for line in lines if line.startswith(f"{metric}{{") and f'model="{model}"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in found)


@pytest.fixture(scope="module")
def long_rollout(cluster: Cluster) -> np.ndarray[Any, Any]:
    with Client(cluster.nodes[0].url) as client:
        return np.asarray(client.rollout("growth", LONG, LONG_FRAMES, rate=RATE))


def survives(cluster: Cluster, fault: Callable[[Node], None], long_rollout: Any) -> None:
    """Check that no client notices that the node of a stream fails, under load."""
    with stream(cluster) as (node, rest), Load(cluster) as load:
        fault(node)
        np.testing.assert_allclose(rest(), long_rollout, **SAME)
        load.served()
    assert load.errors == []


@pytest.mark.parametrize("kind", [Client, GrpcClient])
def test_requests_of_one_connection_reach_all_nodes(cluster: Cluster, kind: Any) -> None:
    def counts() -> list[float]:
        return [total(node, "petrov_request_duration_seconds_count", "blur") for node in cluster.nodes]

    before, address = counts(), f"127.0.0.1:{cluster.settings.grpc_port}"
    with kind(cluster.settings.url if kind is Client else address) as client:
        for _ in range(24):
            client.predict("blur", FIELDS)
    shares = [now - then for now, then in zip(counts(), before, strict=True)]
    assert sum(shares) >= 24  # and the description of the model
    assert min(shares) > 0


def test_a_node_is_killed(cluster: Cluster, long_rollout: Any) -> None:
    killed: list[Node] = []
    try:
        survives(cluster, lambda node: (killed.append(node), node.kill())[0], long_rollout)
    finally:
        for node in killed:
            node.restart()
        cluster.wait_ready()


def test_a_node_is_frozen(cluster: Cluster, long_rollout: Any) -> None:
    try:
        survives(cluster, Node.freeze, long_rollout)
    finally:
        for node in cluster.nodes:
            node.thaw()
        cluster.wait_ready()


def test_a_node_is_cut_off(networked: Cluster, long_rollout: Any) -> None:
    try:
        survives(networked, lambda node: node.link(up=False), long_rollout)
    finally:
        for node in networked.nodes:
            node.link()
        networked.wait_ready()


def test_lost_packets_are_sent_again_early(networked: Cluster) -> None:
    def timeout() -> int:  # of a new connection, in microseconds
        with socket.create_connection((networked.nodes[0].endpoint.host, networked.nodes[0].endpoint.port)) as made:
            return int(struct.unpack_from("I", made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 12), 8)[0])

    # It is the least one and some round trips, which are longer under load. Linux has 200 ms and some.
    assert 50_000 <= min(timeout() for _ in range(20)) < 200_000


@pytest.mark.parametrize("trouble", [{"loss": 0.05}, {"delay": 0.1}], ids=["lossy", "slow"])
def test_links_are_lossy_or_slow(networked: Cluster, trouble: dict[str, float]) -> None:
    with Load(networked) as load:
        start = time.monotonic()
        for node in networked.nodes:
            node.link(**trouble)
        load.served()
        took = time.monotonic() - start
        for node in networked.nodes:
            node.link()
    assert load.errors == []
    assert "delay" not in trouble or took > 60 / 4 * trouble["delay"]  # of four clients; it was not fast for nothing


def test_a_node_is_added_and_another_removed(cluster: Cluster) -> None:
    with Load(cluster) as load:
        added = cluster.add()
        cluster.wait_ready()
        load.served()
        assert rolling(added) > 0  # it has its share
        cluster.remove(added)
        load.served()
    assert load.errors == []
    assert cluster.healthy() == 3


def test_a_node_gets_no_requests_before_its_update(cluster: Cluster) -> None:
    node = cluster.nodes[0]

    def served() -> float:
        return total(node, "petrov_request_duration_seconds_count", "blur")

    with Load(cluster) as load:
        with cluster.without(node):
            wait_until(lambda: cluster.healthy() == 2)
            load.served(20)  # those that it had are over
            before = served()
            load.served()
            assert served() == before
        load.served()
        assert served() > before
    assert load.errors == []


def test_a_model_is_updated_on_one_node_after_the_other(cluster: Cluster) -> None:
    with Client(cluster.settings.url) as client, Load(cluster, (1.0, SECOND)) as load:
        maximum = client.model("growth").frames.maximum
        rollout = client.rollout_stream("growth", STATE, maximum + 20, rate=1.0)  # more than one request may ask for
        next(rollout)
        predictions = client.stream("growth", STATES, rate=1.0)
        next(predictions)
        for node in cluster.nodes:
            toy_rollouts.add(node.settings.repository, 2, SECOND)
            wait_until(lambda node=node: newest(node) == 2)
            load.served(20)
        for frame in rollout:
            np.testing.assert_array_equal(frame, STATE)  # the first version's, to the end
        for states in predictions:
            np.testing.assert_array_equal(states, np.broadcast_to(STATE, states.shape))
        np.testing.assert_array_equal(client.rollout("growth", STATE, 2, rate=1.0)[-1], STATE * SECOND**2)
    assert load.errors == []


def newest(node: Node) -> int:
    return int(httpx2.get(f"{node.url}/v1/models/growth").json()["version"])
