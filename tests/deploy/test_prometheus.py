"""Check rules and dashboard with promtool, and with a real Prometheus that scrapes a real gateway."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import yaml

import petrov_client
from serving.app import create_app
from serving.local_triton.server import TritonServer
from serving.settings import Settings
from serving.triton import Triton
from tests import toy_fields
from tests.conftest import Gateway, wait_until
from tests.deploy.conftest import Prometheus

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
GROUPS = [
    group
    for name in ("recording", "alerts")
    for group in yaml.safe_load((PROMETHEUS / f"{name}.yml").read_text())["groups"]
]
RULES = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
CHARTED = [
    target["expr"].replace("$__rate_interval", "1m").replace("$model", ".*").replace("$grid", ".*")
    for panel in json.loads((DEPLOY / "grafana/petrov.json").read_text())["panels"]
    for target in panel.get("targets", [])
]
EMPTY = ("petrov_key_fields_total",)  # the gateway has no keys


def promtool(debian: Callable[[str], str], *arguments: str, stdin: bytes | None = None) -> str:
    """Run promtool, check that it succeeds, and return its output."""
    done = subprocess.run(
        [debian("promtool"), *arguments], cwd=PROMETHEUS, input=stdin, capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return (done.stdout + done.stderr).decode()


def test_configuration_and_rules_are_valid(debian: Callable[[str], str]) -> None:
    assert "2 rule files found" in promtool(debian, "check", "config", "prometheus.yml")


def test_every_alert_has_a_case_that_fires_and_one_that_does_not(debian: Callable[[str], str]) -> None:
    assert "SUCCESS" in promtool(debian, "test", "rules", "alerts_test.yml")
    expected = {True: set[str](), False: set[str]()}
    for test in yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]:
        for case in test["alert_rule_test"]:
            expected["exp_alerts" in case].add(case["alertname"])
    names = {alert["alert"] for alert in ALERTS}
    assert expected == {True: names, False: names}


def test_rules_and_dashboard_count_the_same_routes_of_every_protocol(tmp_path: Path) -> None:
    """Those of UM-Bridge and of Tesseracts were missing: no alert on errors could fire for their clients."""
    paths = create_app(Settings(repository=tmp_path), Triton("127.0.0.1:8000", 1)).openapi()["paths"]
    patterns = [set(re.findall(r'route=~"([^"]+)"', text)) for text in (*[rule["expr"] for rule in RULES], *CHARTED)]
    rules, charts = set().union(*patterns[: len(RULES)]), set().union(*patterns[len(RULES) :])
    assert rules == charts
    counted = {path.rpartition("/")[2] for path in paths for pattern in rules if re.fullmatch(pattern, path)}
    assert {name for pattern in rules for name in pattern.strip(".*/()").split("|")} == {*counted, "ModelInfer"}
    computing = {"predict", "infer", "vjp", "jvp", "rollout", "apply", "Evaluate", "Gradient", "ApplyJacobian"}
    assert counted == computing | {"vector_jacobian_product", "jacobian_vector_product"}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_has_a_severity_and_a_runbook(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert alert["annotations"].keys() == {"summary", "description", "action", "runbook"}
    assert alert["annotations"]["runbook"] == f"docs/operate.md#{alert['alert'].lower()}"


@pytest.fixture(scope="module")
def prometheus(
    gateway: Gateway, triton: TritonServer, run_prometheus: Callable[..., AbstractContextManager[Prometheus]]
) -> Iterator[Prometheus]:
    """Run the deployed configuration, with other addresses and intervals, for two rounds of predictions."""
    targets = {"petrov": gateway.settings.port, "triton": triton.settings.triton_metrics_port}
    with run_prometheus(targets) as running:
        yield warmed_up(running, gateway)


def warmed_up(prometheus: Prometheus, gateway: Gateway) -> Prometheus:
    """Return the Prometheus once it has seen counters appear and then grow."""
    wait_until(lambda: prometheus.value("sum(up)") == 2)
    for _ in range(2):
        expected = prometheus.value("sum(petrov_fields_total)") + predict(gateway)
        wait_until(lambda expected=expected: prometheus.value("sum(petrov_fields_total)") >= expected)
    wait_until(lambda: bool(prometheus.query("model:petrov_prediction_seconds:p99_5m > 0")))
    return prometheus


def predict(gateway: Gateway) -> int:
    """Send predictions over HTTP and gRPC, a rollout, a malformed request and one that a model fails on.

    Returns:
        The number of predicted fields.
    """
    fields = np.ones((3, 16, 16))
    with petrov_client.Client(gateway.url) as client:
        client.predict("blur", fields)
        client.rollout("growth", fields[0, 0], 2, rate=1.0)
    httpx2.post(f"{gateway.url}/v1/models/blur/predict", content=b"", headers={"Content-Type": "application/x-npy"})
    inputs = {name: array[0] for name, array in toy_fields.samples().items()}
    inputs["velocity"] = np.full_like(inputs["velocity"], np.finfo(np.float32).max)
    document = {"inputs": {name: array.tolist() for name, array in inputs.items()}}
    assert httpx2.post(f"{gateway.url}/v1/models/drift/predict", json=document).status_code == 502
    with petrov_client.GrpcClient(f"127.0.0.1:{gateway.settings.grpc_port}") as client:
        client.predict("blur", fields)
        client.predict("gauge", fields, quality=True)
    return 3 * len(fields) + 1


def test_the_metrics_of_a_gateway_are_well_formed(debian: Callable[[str], str], gateway: Gateway) -> None:
    predict(gateway)
    promtool(debian, "check", "metrics", stdin=httpx2.get(f"{gateway.url}/metrics").content)


def test_every_rule_is_evaluated(prometheus: Prometheus) -> None:
    def rules() -> list[dict[str, Any]]:
        return [rule for group in prometheus.get("/rules")["groups"] for rule in group["rules"]]

    wait_until(lambda: all(rule["health"] != "unknown" for rule in rules()))
    names = [rule.get("alert") or rule["record"] for rule in RULES]
    assert sorted((rule["name"], rule["health"]) for rule in rules()) == sorted((name, "ok") for name in names)
    assert [rule["name"] for rule in rules() if rule.get("state") == "firing"] == []


@pytest.mark.parametrize("rule", [rule for rule in RULES if "record" in rule], ids=lambda rule: rule["record"])
def test_a_recording_rule_has_a_value(prometheus: Prometheus, rule: dict[str, Any]) -> None:
    wait_until(lambda: bool(prometheus.query(rule["record"])))


@pytest.mark.parametrize("expression", CHARTED)
def test_an_expression_of_the_dashboard_has_a_value(prometheus: Prometheus, expression: str) -> None:
    if any(name in expression for name in EMPTY):
        assert prometheus.query(expression) == []
    else:
        wait_until(lambda: bool(prometheus.query(expression)))  # a failed scrape removes current values


@pytest.mark.parametrize(
    "expression",
    [
        'histogram_quantile(0.5, sum by (le) (rate(petrov_request_duration_seconds_bucket{model="blur"}[5m]))) < 60',
        'sum(rate(petrov_fields_total{model="blur", grid="16x16"}[5m])) > 0',
        'petrov_request_duration_seconds_count{model="blur", route="/v1/models/{model}/predict", code="200"} >= 2',
        'petrov_request_duration_seconds_count{model="blur", route=~".*/ModelInfer", code="OK"} >= 2',
        'petrov_rejected_total{reason="unreadable-body"} >= 2',
        'rate(nv_inference_count{model="blur"}[5m]) > 0',
        "petrov_ready == 1",
        "petrov_inflight_requests_limit == 256",
    ],
)
def test_values_are_those_of_the_run(prometheus: Prometheus, expression: str) -> None:
    wait_until(lambda: bool(prometheus.query(expression)))


def test_every_metric_in_use_is_measured(prometheus: Prometheus) -> None:
    measured = set(prometheus.get("/metadata")) | {"up"}
    expressions = [*CHARTED, *(rule["expr"] for rule in RULES)]
    names = {name for text in expressions for name in re.findall(r"(?<![:\w])(?:petrov|nv|process)_\w+", text)}
    assert {name for name in names if not {name, re.sub("_(bucket|sum|count)$", "", name)} & measured} == set()
