"""Fixtures of the deployment tests: programs that come as Debian packages, and a real Prometheus."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.conftest import wait_until
from tests.deploy.manifests import OVERLAYS, Resources, overlay

PROMETHEUS = Path(__file__).parents[2] / "deploy" / "prometheus"


@pytest.fixture(scope="module", params=OVERLAYS)
def resources(request: pytest.FixtureRequest) -> Resources:
    """Return the resources of an overlay for Kubernetes."""
    return overlay(request.param)


@pytest.fixture(scope="session")
def debian() -> Callable[[str], str]:
    """Return a function that finds a program; without it the test is skipped, and fails under CI=true."""

    def find(program: str) -> str:
        path = shutil.which(program)
        if path is None:
            reason = f"{program} is not installed (`make programs` installs it as root)"
            pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
        return path

    return find


class Prometheus:
    """A running Prometheus.

    Args:
        http: A client of its HTTP API.
    """

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    def get(self, path: str, **parameters: str) -> Any:
        response = self._http.get(f"/api/v1{path}", params=parameters).json()
        assert response["status"] == "success", (parameters, response)
        return response["data"]

    def ready(self) -> bool:
        """Return whether it is ready."""
        try:
            return self._http.get("/-/ready").status_code == 200
        except httpx2.TransportError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the current samples of an expression."""
        result: list[dict[str, Any]] = self.get("/query", query=expression)["result"]
        return result

    def value(self, expression: str) -> float:
        """Return the value of the only sample, or 0 without one."""
        return float(next(iter(self.query(expression)), {"value": [0, "0"]})["value"][1])

    def firing(self, alert: str) -> list[str]:
        """Return the models for which an alert fires."""
        return [
            sample["metric"]["model"] for sample in self.query(f'ALERTS{{alertname="{alert}",alertstate="firing"}}')
        ]


@pytest.fixture(scope="session")
def run_prometheus(
    debian: Callable[[str], str], free_ports: Callable[[int], list[int]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., AbstractContextManager[Prometheus]]:
    """Return a context manager that runs the deployed configuration with intervals of a second."""

    @contextmanager
    def run(targets: Mapping[str, int], *, at_once: bool = False) -> Iterator[Prometheus]:
        """Yield a Prometheus that scrapes the jobs of the deployed configuration.

        Args:
            targets: The port of each job; jobs without one are left out.
            at_once: Whether alerts fire without the time that they wait in a deployment.
        """
        folder, [port] = tmp_path_factory.mktemp("prometheus"), free_ports(1)
        config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
        config["global"] = dict.fromkeys(config["global"], "1s")
        for name in config["rule_files"]:
            rules = yaml.safe_load((PROMETHEUS / name).read_text())
            for rule in [rule for group in rules["groups"] for rule in group["rules"] if at_once]:
                rule.pop("for", None)
            (folder / name).write_text(yaml.safe_dump(rules))
        config["scrape_configs"] = [job for job in config["scrape_configs"] if job["job_name"] in targets]
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": [f"127.0.0.1:{targets[job['job_name']]}"]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = [
            *(debian("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"),
            *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
        ]
        with (
            (folder / "log").open("wb") as log,
            httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http,
            subprocess.Popen(command, stdout=log, stderr=log) as process,
        ):
            try:
                found = Prometheus(http)
                wait_until(found.ready)
                yield found
            finally:
                process.terminate()

    return run
