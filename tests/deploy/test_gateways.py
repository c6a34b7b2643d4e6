"""Several gateways before one Triton: Kubernetes' component and the overlay of compose agree with nginx's file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.manifests import DEPLOY, KUBERNETES, built, compose, one, pod_of
from tests.deploy.test_kubernetes import RELEASE

COMPONENT = KUBERNETES / "components/gateways"
BALANCER = (COMPONENT / "nginx.conf").read_text()
HTTP, GRPC = (
    {
        int(port)
        for port in re.findall(r"server 127\.0\.0\.1:(\d+)", re.search(rf"upstream {name} {{(.*)}}", BALANCER)[1])
    }  # type: ignore[index]
    for name in ("gateways", "grpc")
)
LISTENS = {int(port) for port in re.findall(r"listen (\d+);", BALANCER)}


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], ...]:
    folder = tmp_path_factory.mktemp("overlay")
    away = os.path.relpath(KUBERNETES, folder)
    images = yaml.safe_load((KUBERNETES / "overlays/gpu/kustomization.yaml").read_text())["images"]
    document = {"resources": [f"{away}/overlays/gpu"], "components": [f"{away}/components/gateways"], "images": images}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))
    return built(folder)


def test_the_balancer_says_whose_request_it_passes_on() -> None:
    """The gateways trust it: without its own word they would believe that of a client."""
    for way in ("proxy", "grpc"):
        assert f"{way}_set_header X-Forwarded-For $proxy_add_x_forwarded_for;" in BALANCER


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value") or each["valueFrom"] for each in container["env"]}


def test_the_gateways_of_a_pod_differ_in_their_ports_alone(resources: tuple[dict[str, Any], ...]) -> None:
    for each in resources:
        if each["kind"] != "PodMonitor":
            kubernetes_validate.validate(each, RELEASE, strict=True)
    pod = pod_of(resources)
    found = {each["name"]: each for each in pod["containers"]}
    balancer, gateways = found.pop("balancer"), list(found.values())
    assert {int(variables(each).pop("PETROV_PORT", "8080")) for each in gateways} == HTTP
    assert {int(variables(each).pop("PETROV_GRPC_PORT", "8081")) for each in gateways} == GRPC
    ports = {"PETROV_PORT", "PETROV_GRPC_PORT"}
    alike = [{name: value for name, value in variables(each).items() if name not in ports} for each in gateways]
    assert alike == alike[:1] * 3
    memory = alike[0]["PETROV_GPU_MEMORY"]["configMapKeyRef"]
    [config] = [each for each in resources if each["metadata"]["name"] == memory["name"]]
    assert config["data"].keys() == {memory["key"]}
    assert memory["optional"]  # without a GPU there is none
    assert len({each["image"] for each in gateways}) == 1
    assert {port["containerPort"] for port in balancer["ports"]} == LISTENS
    names = {port["name"]: port["containerPort"] for port in balancer["ports"]}
    assert {names[port["targetPort"]] for port in one(resources, "Service")["spec"]["ports"]} == LISTENS
    clients, monitoring = one(resources, "NetworkPolicy")["spec"]["ingress"]
    assert {each["port"] for each in clients["ports"]} == LISTENS
    own = {port["name"]: port["containerPort"] for each in gateways for port in each["ports"]}
    endpoints = one(resources, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert {own[each["port"]] for each in endpoints if each["port"] in own} == HTTP
    assert {each["port"] for each in monitoring["ports"]} == HTTP | {8002}
    volumes = {each["name"] for each in pod["volumes"]}
    mounts = {mount["name"] for each in (*gateways, balancer) for mount in each["volumeMounts"]}
    assert mounts <= volumes


def test_the_overlay_of_compose_has_the_same_gateways() -> None:
    file = DEPLOY / "compose.gateways.yaml"
    program = Path(sys.executable).with_name("check-jsonschema")
    command = [program, "--builtin-schema", "vendor.compose-spec", file]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    document = yaml.safe_load(file.read_text())
    added, first = document["services"], compose()["services"]["gateway"]
    assert {int(port.rpartition(":")[2]) for port in added["gateway"]["ports"]} == LISTENS
    balancer, further = added["balancer"], [added["gateway-2"], added["gateway-3"]]
    assert {int(each["environment"]["PETROV_PORT"]) for each in further} | {8080} == HTTP
    assert {int(each["environment"]["PETROV_GRPC_PORT"]) for each in further} | {8081} == GRPC
    for each in further:
        assert each["environment"].items() >= document["x-variables"].items() >= first["environment"].items()
        assert each["environment"].keys() - document["x-variables"].keys() == {"PETROV_PORT", "PETROV_GRPC_PORT"}
        assert each["environment"]["PETROV_GPU_MEMORY"] == "${PETROV_GPU_MEMORY:-}"
        assert each["environment"]["PETROV_PORT"] in each["healthcheck"]["test"][-1]
        assert {name: each[name] for name in ("image", "volumes", "mem_limit", "tmpfs")} == {
            name: first[name] for name in ("image", "volumes", "mem_limit", "tmpfs")
        }
    for each in (*further, balancer):
        assert (each["read_only"], each["cap_drop"]) == (True, ["ALL"])
        assert each["network_mode"] == "service:gateway"
    [mount] = balancer["volumes"]
    assert (DEPLOY / mount.split(":")[0]).resolve() == (COMPONENT / "nginx.conf").resolve()


def test_prometheus_reads_the_metrics_of_every_gateway_of_compose() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    [job] = [each for each in config["scrape_configs"] if each["job_name"] == "petrov"]
    added = yaml.safe_load((DEPLOY / "compose.gateways.yaml").read_text())["services"]
    [mount] = added["prometheus"]["volumes"]
    source, target, _ = mount.split(":")
    assert [each["files"] for each in job["file_sd_configs"]] == [[f"{target}/*.yml"]]
    further = [yaml.safe_load(file.read_text()) for file in (DEPLOY / source).glob("*.yml")]
    found = [each for group in (*further, job["static_configs"]) for part in group for each in part["targets"]]
    assert sorted(found) == [f"gateway:{port}" for port in sorted(HTTP)]
