"""Check the compose file against the published schema, and the connections between its services."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, compose

SERVICES: dict[str, Any] = compose()["services"]
PORTS = {"triton": {8000, 8001, 8002}, "gateway": {8080, 8081}, "prometheus": {9090}, "grafana": {3000}}


def validated(*files: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("check-jsonschema")
    command = [program, "--builtin-schema", "vendor.compose-spec", *files]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_files_match_the_schema_of_compose(tmp_path: Path) -> None:
    done = validated(DEPLOY / "compose.yaml", DEPLOY / "compose.gpu.yaml")
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((DEPLOY / "compose.yaml").read_text().replace("cap_drop:", "cap_dorp:"))
    assert "cap_dorp" in validated(wrong).stdout


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_bounded_and_unprivileged(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert {"mem_limit", "pids_limit", "healthcheck", "restart"} <= service.keys()
    assert "privileged" not in service
    assert ":latest" not in service["image"]
    assert ":" in service["image"]


def test_triton_and_prometheus_are_in_the_internal_network_only() -> None:
    # Of an internal network the machine itself has an address, unless that is switched off (moby/moby#49262).
    alone = {"com.docker.network.bridge.inhibit_ipv4": "true"}
    assert compose()["networks"] == {"inside": {"internal": True, "driver_opts": alone}, "outside": {}}
    for name in ("triton", "prometheus"):
        assert (SERVICES[name]["networks"], "ports" in SERVICES[name]) == (["inside"], False)
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.keys() == {"gateway", "grafana"}
    for name, ports in published.items():
        assert ports == [f"127.0.0.1:{port}:{port}" for port in sorted(PORTS[name])]


@pytest.mark.parametrize("name", SERVICES)
def test_mounted_sources_exist(name: str) -> None:
    volumes = compose()["volumes"]
    for source, target, *mode in (volume.split(":") for volume in SERVICES[name]["volumes"]):
        assert target.startswith("/")
        if source.startswith("."):
            assert (DEPLOY / source).exists(), source
            assert mode == ["ro"]
        else:
            assert source in volumes


def test_prometheus_reads_its_rules_and_finds_its_targets() -> None:
    mounts = {target: DEPLOY / source for source, target in mounted("prometheus") if source.startswith(".")}
    options = dict(option[2:].split("=", 1) for option in SERVICES["prometheus"]["command"])
    file = Path(options["config.file"])
    configuration = yaml.safe_load((mounts[str(file.parent)] / file.name).read_text())
    assert all((mounts[str(file.parent)] / rules).exists() for rules in configuration["rule_files"])
    assert options["storage.tsdb.path"] in dict(map(reversed, mounted("prometheus")))
    targets = [
        target
        for job in configuration["scrape_configs"]
        for each in job["static_configs"]
        for target in each["targets"]
    ]
    for host, port in (target.split(":") for target in targets):
        assert int(port) in PORTS[host]
        assert set(SERVICES[host]["networks"]) & set(SERVICES["prometheus"]["networks"])


def test_grafana_has_its_data_source_and_its_dashboard() -> None:
    mounts = {target: source for source, target in mounted("grafana")}
    provisioning = DEPLOY / mounts["/etc/grafana/provisioning"]
    [source] = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    host, port = source["url"].removeprefix("http://").split(":")
    assert int(port) in PORTS[host]
    [provider] = yaml.safe_load((provisioning / "dashboards/petrov.yml").read_text())["providers"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home in mounts
    assert Path(home).parent == Path(provider["options"]["path"])


def mounted(name: str) -> list[tuple[str, str]]:
    """Return the sources and targets of a service's volumes."""
    return [(volume.split(":")[0], volume.split(":")[1]) for volume in SERVICES[name]["volumes"]]


def test_the_gateway_waits_for_triton_and_has_time_to_drain() -> None:
    assert SERVICES["gateway"]["depends_on"] == {"triton": {"condition": "service_healthy"}}
    seconds = {name: int(SERVICES[name]["stop_grace_period"].removesuffix("s")) for name in ("gateway", "triton")}
    assert min(seconds.values()) > 20  # PETROV_DRAIN_SECONDS, and --exit-timeout-secs


def test_a_gpu_is_added_to_triton_and_its_memory_to_the_gateway() -> None:
    added = yaml.safe_load((DEPLOY / "compose.gpu.yaml").read_text())
    assert added["services"].keys() == {"triton", "gateway"}
    assert added["services"]["gateway"].keys() == {"environment"}
    assert added["services"]["gateway"]["environment"].keys() == {"PETROV_GPU_MEMORY"}
    assert added["services"]["triton"].keys() == {"deploy"}
