"""Describe the containers of all deployments in `deploy` in one form."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = ("cpu", "gpu")
DEPLOYMENTS = ("compose", *OVERLAYS, "kserve")
Resources = tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Container:
    """A container of any deployment.

    Attributes:
        image: Name and tag of the image.
        arguments: The command line.
        environment: Environment variables, including those of the gateway's image.
        mounts: Whether a volume is read-only, by its mount path.
        probes: Command lines and URLs of the health checks.
        addresses: HOST:PORT at which other containers of the deployment reach it.
    """

    image: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    mounts: dict[str, bool]
    probes: tuple[str, ...]
    addresses: frozenset[str] = field(default_factory=frozenset)

    @property
    def options(self) -> dict[str, str]:
        """Return the value of each `--name=value`."""
        given = (argument[2:].partition("=") for argument in self.arguments if argument.startswith("--"))
        return {name: value for name, _, value in given}


@dataclass(frozen=True)
class Pair:
    """A gateway and its Triton."""

    gateway: Container
    triton: Container


def pair(deployment: str) -> Pair:
    """Return the containers of one of `DEPLOYMENTS`."""
    if deployment == "compose":
        return _compose_pair()
    pod = kserve_pod() if deployment == "kserve" else pod_of(overlay(deployment))
    names = ("transformer-container", "kserve-container") if deployment == "kserve" else ("gateway", "triton")
    gateway, triton = ({each["name"]: each for each in containers(pod)}[name] for name in names)
    models = {"/mnt/models": True} if deployment == "kserve" else {}  # mounted by KServe
    return Pair(_of_kubernetes(gateway, image_environment(), models), _of_kubernetes(triton, {}, models))


def compose() -> dict[str, Any]:
    """Return the content of the compose file."""
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return document


def image_environment() -> dict[str, str]:
    """Return the variables that the gateway's image sets."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    pairs = [pair for line in re.findall(r"^ENV (.*)$", text, re.MULTILINE) for pair in shlex.split(line)]
    return dict(pair.split("=", 1) for pair in pairs)


@cache
def built(folder: Path) -> Resources:
    """Return the resources that kustomize builds from a folder."""
    kubectl = Path(sys.executable).with_name("kubectl")
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def overlay(name: str) -> Resources:
    """Return the resources of an overlay."""
    return built(KUBERNETES / "overlays" / name)


def kserve() -> dict[str, Any]:
    """Return the InferenceService."""
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "kserve/inference-service.yaml").read_text())
    return document


def kserve_pod() -> dict[str, Any]:
    """Return the pod specification within the InferenceService, without the keys of KServe."""
    return {name: value for name, value in kserve()["spec"]["predictor"].items() if name != "minReplicas"}


def pod_of(resources: Resources) -> dict[str, Any]:
    """Return the pod specification of the Deployment."""
    spec: dict[str, Any] = one(resources, "Deployment")["spec"]["template"]["spec"]
    return spec


def one(resources: Resources, kind: str) -> dict[str, Any]:
    """Return the only resource of a kind."""
    [resource] = [each for each in resources if each["kind"] == kind]
    return resource


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all containers of a pod."""
    return [*pod.get("initContainers", []), *pod["containers"]]


def _of_kubernetes(container: dict[str, Any], environment: dict[str, str], mounts: dict[str, bool]) -> Container:
    ports = {port.get("name"): port["containerPort"] for port in container.get("ports", [])}
    probes = [container[name] for name in ("startupProbe", "livenessProbe", "readinessProbe") if name in container]
    return Container(
        image=container["image"],
        arguments=tuple(container["args"]),
        environment=environment | {each["name"]: each["value"] for each in container.get("env", []) if "value" in each},
        mounts=mounts | {each["mountPath"]: each.get("readOnly", False) for each in container["volumeMounts"]},
        probes=tuple(_target(probe, ports) for probe in probes),
        # The containers of a pod share their loopback.
        addresses=frozenset(f"127.0.0.1:{port}" for port in (8000, 8001, 8002)),
    )


def _target(probe: dict[str, Any], ports: dict[str, int]) -> str:
    if "exec" in probe:
        return " ".join(probe["exec"]["command"])
    get = probe["httpGet"]
    return f"http://127.0.0.1:{ports.get(get['port'], get['port'])}{get['path']}"


def _compose_pair() -> Pair:
    services = compose()["services"]
    return Pair(
        _of_compose("gateway", services["gateway"], ("gateway",), image_environment()),
        _of_compose("triton", services["triton"], (), {}),
    )


def _of_compose(
    name: str, service: dict[str, Any], arguments: tuple[str, ...], environment: dict[str, str]
) -> Container:
    mounts = {volume.split(":")[1]: volume.endswith(":ro") for volume in service["volumes"]}
    return Container(
        image=service["image"],
        arguments=tuple(service.get("command", arguments)),
        environment=environment | service.get("environment", {}),
        mounts=mounts | dict.fromkeys(service["tmpfs"], False),
        probes=(" ".join(service["healthcheck"]["test"]),),
        addresses=frozenset(f"{name}:{port}" for port in (8000, 8001, 8002)),
    )
