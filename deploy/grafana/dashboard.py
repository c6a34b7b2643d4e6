"""Nothing in, `petrov.json` out: the dashboard as a table of panels, `python deploy/grafana/dashboard.py`."""  # noqa: INP001 - a script

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("petrov.json")
WIDTH, HEIGHT = 24, 8  # of Grafana's grid, and of a panel in it
SOURCE = {"type": "prometheus", "uid": "${source}"}
OF = 'model=~"$model"'
AT = 'model=~"$model", grid=~"$grid"'
PREDICTIONS = f'{OF}, route=~".*/(predict|infer|ModelInfer)"'


@dataclass(frozen=True)
class Panel:
    """One chart.

    Attributes:
        title: Its heading.
        unit: In Grafana's words.
        queries: Expressions by legend.
        kind: In Grafana's words.
        note: What a reader should know.
        stack: Whether the curves add up.
    """

    title: str
    unit: str
    queries: dict[str, str]
    kind: str = "timeseries"
    note: str = ""
    stack: bool = False


def rate(metric: str, by: str, where: str = OF) -> str:
    """Its growth a second."""
    return f"sum by ({by}) (rate({metric}{{{where}}}[$__rate_interval]))"


def quantile(of: float, histogram: str, by: str, where: str = OF) -> str:
    """A quantile of a histogram."""
    return f"histogram_quantile({of}, {rate(f'{histogram}_bucket', f'{by}, le', where)})"


def quantiles(histogram: str, by: str, where: str = OF) -> dict[str, str]:
    """p50, p95 and p99, one curve for each set of labels."""
    names = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return {f"p{of * 100:.0f} {names}": quantile(of, histogram, by, where) for of in (0.5, 0.95, 0.99)}


def mean(histogram: str, by: str, where: str = OF) -> str:
    """The mean of a histogram."""
    return f"{rate(f'{histogram}_sum', by, where)} / {rate(f'{histogram}_count', by, where)}"


def per_inference(metric: str) -> str:
    """Microseconds of Triton's counters as seconds of one inference."""
    return f"{rate(metric, 'model')} / {rate('nv_inference_count', 'model')} / 1e6"


PHASES = "petrov_phase_duration_seconds"
ROWS: dict[str, list[Panel]] = {
    "Service": [
        Panel("Ready", "bool_yes_no", {"{{instance}}": "petrov_ready"}, "stat"),
        Panel("Running", "short", {"{{instance}} {{version}}": "petrov_build_info"}, "stat", "Instance and version."),
        Panel("Tritons given work", "bool_yes_no", {"{{instance}} to {{endpoint}}": "petrov_endpoint_up"}, "stat"),
    ],
    "Requests": [
        Panel("Predictions", "reqps", {"{{model}} {{code}}": rate(
            "petrov_request_duration_seconds_count", "model, code", PREDICTIONS)}, stack=True),
        Panel("Duration", "s", quantiles("petrov_request_duration_seconds", "model", PREDICTIONS),
              note="From the request line to the end of the answer; the client's upload is in it."),
        Panel("In flight", "short", {"{{instance}}": "petrov_inflight_requests",
              "limit of {{instance}}": "petrov_inflight_requests_limit"}),
        Panel("Rejections", "reqps", {"{{reason}}": "sum by (reason) (rate(petrov_rejected_total[$__rate_interval]))"},
              stack=True),
    ],
    "Fields": [
        Panel("Fields", "ops", {"{{model}} {{grid}}": rate("petrov_fields_total", "model, grid", AT)}, stack=True,
              note="Fields answered a second."),
        Panel("Fields in a call of Triton", "short", {
              "mean {{model}}": mean("petrov_batch_fields", "model"),
              "p95 {{model}}": quantile(0.95, "petrov_batch_fields", "model")}),
        Panel("Request bodies", "bytes", {"p95": quantile(0.95, "petrov_request_bytes", "job", ""),
              "mean": mean("petrov_request_bytes", "job", "")}),
        Panel("Fields by key", "ops", {"{{key}}": rate("petrov_key_fields_total", "key", "")}, stack=True),
    ],
    "Phases: parse, queue, triton, encode": [
        *(Panel(f"p{of * 100:.0f} by phase", "s",
                {"{{model}} {{grid}} {{phase}}": quantile(of, PHASES, "model, grid, phase", AT)})
          for of in (0.5, 0.95, 0.99)),
        Panel("Queue", "s", quantiles(PHASES, "model, grid", f'{AT}, phase="queue"'),
              note="What a request waits in the gateway for its turn."),
        Panel("Where the time goes", "percentunit", {"{{model}} {{phase}}":
              f"{rate(f'{PHASES}_sum', 'model, phase', AT)}"
              f" / on (model) group_left () {rate(f'{PHASES}_sum', 'model', AT)}"}, stack=True),
        Panel("Calls of Triton", "s", quantiles("petrov_triton_duration_seconds", "model")),
    ],
    "Triton": [
        Panel("Queue of Triton", "s", {"{{model}}": per_inference("nv_inference_queue_duration_us")},
              note="The mean of one inference; Triton has no histograms."),
        Panel("Computing", "s", {"{{model}}": per_inference("nv_inference_compute_infer_duration_us")},
              note="The mean of one inference."),
        Panel("Fields in an executed batch", "short", {"{{model}}":
              f"{rate('nv_inference_count', 'model')} / {rate('nv_inference_exec_count', 'model')}"}),
        Panel("Inferences", "ops", {"{{model}} {{version}}": rate("nv_inference_count", "model, version"),
              "failed {{model}} {{reason}}": rate("nv_inference_request_failure", "model, reason")}),
        Panel("Pending", "short", {"{{model}}": f"sum by (model) (nv_inference_pending_request_count{{{OF}}})"}),
        Panel("Calls made again", "ops", {"not {{endpoint}}": rate("petrov_retries_total", "endpoint", "")},
              note="Calls that another Triton had to answer."),
    ],
    "Process": [
        Panel("Memory", "bytes", {"{{instance}}": 'process_resident_memory_bytes{job="petrov"}'}),
        Panel("Processor", "percentunit", {"{{instance}}":
              'rate(process_cpu_seconds_total{job="petrov"}[$__rate_interval])'}),
        Panel("Open files", "short", {"{{instance}}": 'process_open_fds{job="petrov"}'}),
    ],
}  # fmt: skip


def dashboard() -> dict[str, Any]:
    """The document that Grafana reads."""
    return {
        "uid": "petrov",
        "title": "Petrov",
        "description": "Made by deploy/grafana/dashboard.py.",
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source(), *(variable(name) for name in ("model", "grid"))]},
        "panels": list(laid_out()),
    }


def source() -> dict[str, Any]:
    """Which Prometheus is asked."""
    return {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}


def variable(label: str) -> dict[str, Any]:
    """A choice among the values of a label."""
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": f"label_values(petrov_fields_total, {label})",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def laid_out() -> Any:
    """The panels, three or four beside one another below the heading of their row."""
    y = number = 0
    for heading, panels in ROWS.items():
        number += 1
        place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": heading, "gridPos": place, "collapsed": False, "panels": []}
        y += 1
        columns = 4 if len(panels) % 4 == 0 else 3
        width = WIDTH // columns
        for index, panel in enumerate(panels):
            number += 1
            row, column = divmod(index, columns)
            yield drawn(panel, number, {"x": column * width, "y": y + row * HEIGHT, "w": width, "h": HEIGHT})
        y += HEIGHT * -(-len(panels) // columns)


def drawn(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    """A panel as Grafana has it."""
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stack else {}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.note,
        "gridPos": place,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": custom}, "overrides": []},
        "options": {"textMode": "value_and_name"} if panel.kind == "stat" else {},
        "targets": [
            {"refId": letter, "expr": expression, "legendFormat": legend, "datasource": SOURCE}
            for letter, (legend, expression) in zip("ABCDEFGH", panel.queries.items(), strict=False)
        ],
    }


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
