"""The autoscaler scales by the time that requests wait, by the adapter of Prometheus and by KEDA."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from serving.observe import Metrics
from serving.version import VERSION
from tests.deploy.manifests import DEPLOY, KUBERNETES, Resources, one
from tests.deploy.test_kubernetes import validate, with_components


def queue_expression() -> str:
    """Return the expression of the autoscaler's metric, by pod."""
    path = KUBERNETES / "components/autoscaling/prometheus-adapter.yaml"
    [rule] = yaml.safe_load(path.read_text())["rules"]["custom"]
    series = rule["seriesQuery"].partition("{")[0]
    assert rule["name"] == {"matches": f"^{series}$", "as": "petrov_queue_share"}
    assert series in rule["metricsQuery"]
    expression: str = rule["metricsQuery"].replace("<<.GroupBy>>", "pod")
    return expression.replace("<<.LabelMatchers>>", 'namespace="petrov"')


def test_the_autoscaler_uses_the_time_that_requests_wait(
    resources: Resources, debian: Callable[[str], str], tmp_path: Path
) -> None:
    scaler = one(resources, "HorizontalPodAutoscaler")["spec"]
    [metric] = scaler["metrics"]
    assert metric["pods"]["metric"]["name"] == "petrov_queue_share"
    # Per minute a pod has 60 requests. Each takes 12 ms from the gateway to Triton's response, 10 ms of them computed,
    # and in the last ten minutes 30 ms, 20 ms of them computed: 8 ms more beside it. A second pod has no requests. A
    # third one has started in these ten minutes, and was never calm.
    series = {
        'petrov_phase_duration_seconds_sum{namespace="petrov", pod="a", phase="triton"}': "0+0.72x20 16.2+1.8x10",
        'petrov_phase_duration_seconds_sum{namespace="petrov", pod="a", phase="parse"}': "0+9x31",
        'petrov_phase_duration_seconds_count{namespace="petrov", pod="a", phase="triton"}': "0+60x31",
        'nv_inference_compute_infer_duration_us{namespace="petrov", pod="a", model="m"}': "0+6e5x20 1.32e7+1.2e6x10",
        'petrov_phase_duration_seconds_sum{namespace="petrov", pod="b", phase="triton"}': "7x31",
        'petrov_phase_duration_seconds_count{namespace="petrov", pod="b", phase="triton"}': "9x31",
        'nv_inference_compute_infer_duration_us{namespace="petrov", pod="b", model="m"}': "9x31",
        'petrov_phase_duration_seconds_sum{namespace="petrov", pod="c", phase="triton"}': "_x20 0+1.8x11",
        'petrov_phase_duration_seconds_count{namespace="petrov", pod="c", phase="triton"}': "_x20 0+60x11",
        'nv_inference_compute_infer_duration_us{namespace="petrov", pod="c", model="m"}': "_x20 0+1.2e6x11",
    }
    rule = {"record": "queue", "expr": queue_expression()}
    samples = [{"labels": f'{{pod="{pod}"}}', "value": value} for pod, value in (("a", 0.4), ("b", 0), ("c", 0.4))]
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": "round(queue, 1e-6)", "eval_time": "30m", "exp_samples": samples}],
    }
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "adapter", "rules": [rule]}]}))
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [case]}))
    command = [debian("promtool"), "test", "rules", tmp_path / "tests.yml"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    names = {family.name for family in Metrics(VERSION).registry.collect()}
    assert "petrov_phase_duration_seconds" in names
    assert "replicas" not in one(resources, "Deployment")["spec"]  # an apply would reset the number of replicas
    assert scaler["scaleTargetRef"]["name"] == one(resources, "Deployment")["metadata"]["name"]


#: The keys of a ScaledObject that the manifest may have, after the reference of KEDA 2.
SCALED_OBJECT = {
    "apiVersion": {"const": "keda.sh/v1alpha1"},
    "kind": {"const": "ScaledObject"},
    "metadata": {"type": "object"},
    "spec": {
        "scaleTargetRef": {"type": "object"},
        "minReplicaCount": {"type": "integer"},
        "maxReplicaCount": {"type": "integer"},
        "pollingInterval": {"type": "integer"},
        "fallback": {"failureThreshold": {"type": "integer"}, "replicas": {"type": "integer"}},
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"type": "object"}}},
        "triggers": {
            "type": "array",
            "items": {
                "type": {"const": "prometheus"},
                "metricType": {"enum": ["AverageValue", "Value"]},
                "metadata": {
                    name: {"type": "string"} for name in ("serverAddress", "ignoreNullValues", "threshold", "query")
                },
            },
        },
    },
}


def strict(keys: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has these keys and no others."""
    if isinstance(keys.get("type"), str) or {"const", "enum"} & keys.keys():
        return keys | ({"items": strict(keys["items"])} if "items" in keys else {})
    properties = {name: strict(each) for name, each in keys.items()}
    return {"type": "object", "additionalProperties": False, "required": [*keys], "properties": properties}


def test_keda_scales_by_the_same_time_and_at_the_same_pace(resources: Resources, tmp_path: Path) -> None:
    found = with_components(tmp_path, "keda")
    assert "HorizontalPodAutoscaler" not in {each["kind"] for each in found}
    scaled = one(found, "ScaledObject")
    jsonschema.validate(scaled, strict(SCALED_OBJECT))
    scaler = one(resources, "HorizontalPodAutoscaler")
    spec, own = scaler["spec"], scaled["spec"]
    behavior = own["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    validate(scaler | {"spec": spec | {"behavior": behavior}})
    assert behavior == spec["behavior"]
    assert (own["minReplicaCount"], own["maxReplicaCount"]) == (spec["minReplicas"], spec["maxReplicas"])
    assert own["scaleTargetRef"] == spec["scaleTargetRef"]
    [trigger], [metric] = own["triggers"], spec["metrics"]
    target = metric["pods"]["target"]["averageValue"]
    assert float(trigger["metadata"]["threshold"]) == pytest.approx(float(target.removesuffix("m")) / 1000)
    assert trigger["metadata"]["ignoreNullValues"] == "false"  # else no figures would mean no load, and pods would end
    together = re.sub(r"\bsum by \(pod\)", "sum", queue_expression())
    assert "".join(trigger["metadata"]["query"].split()) == "".join(together.split())


def test_the_target_of_the_autoscaler_is_the_queue_of_a_released_model_at_its_highest_load(
    resources: Resources,
) -> None:
    [metric] = one(resources, "HorizontalPodAutoscaler")["spec"]["metrics"]
    target = float(metric["pods"]["target"]["averageValue"].removesuffix("m")) / 1000
    queues = [row["queued_share"] for row in json.loads((DEPLOY.parent / "docs/bench/plan.json").read_text())["rows"]]
    assert queues == pytest.approx([target] * len(queues), rel=0.25)
