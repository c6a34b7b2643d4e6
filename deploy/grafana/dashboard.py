"""Write `petrov.json`, the dashboard, from a table of panels: `python deploy/grafana/dashboard.py`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("petrov.json")
WIDTH, HEIGHT = 24, 8  # columns of Grafana's grid, and the height of a panel
SOURCE = {"type": "prometheus", "uid": "${source}"}
OF = 'model=~"$model"'
AT = 'model=~"$model", grid=~"$grid"'
# As ../prometheus/recording.yml counts them.
PREDICTIONS = f'{OF}, route=~".*/(predict|infer|ModelInfer|apply|Evaluate)"'
PRODUCTS = "vjp|jvp|apply|vector_jacobian_product|jacobian_vector_product|Evaluate|Gradient|ApplyJacobian"
RUNS = f'{OF}, route=~".*/(predict|infer|ModelInfer|rollout|{PRODUCTS})"'


@dataclass(frozen=True)
class Panel:
    """One chart.

    Attributes:
        title: The heading.
        unit: One of Grafana's units.
        queries: Expressions by legend.
        kind: One of Grafana's panel types.
        note: The description of the panel.
        stack: Whether the curves add up.
    """

    title: str
    unit: str
    queries: dict[str, str]
    kind: str = "timeseries"
    note: str = ""
    stack: bool = False


def rate(metric: str, by: str, where: str = OF) -> str:
    """Return the expression for the growth of a counter per second."""
    return f"sum by ({by}) (rate({metric}{{{where}}}[$__rate_interval]))"


def quantile(of: float, histogram: str, by: str, where: str = OF) -> str:
    """Return the expression for a quantile of a histogram."""
    return f"histogram_quantile({of}, {rate(f'{histogram}_bucket', f'{by}, le', where)})"


def quantiles(histogram: str, by: str, where: str = OF) -> dict[str, str]:
    """Return p50, p95 and p99 of a histogram, one curve per set of labels."""
    names = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return {f"p{of * 100:.0f} {names}": quantile(of, histogram, by, where) for of in (0.5, 0.95, 0.99)}


def mean(histogram: str, by: str, where: str = OF) -> str:
    """Return the expression for the mean of a histogram."""
    return f"{rate(f'{histogram}_sum', by, where)} / {rate(f'{histogram}_count', by, where)}"


def per_inference(metric: str) -> str:
    """Return the expression for the seconds per inference of one of Triton's counters in microseconds."""
    return f"{rate(metric, 'model')} / {rate('nv_inference_count', 'model')} / 1e6"


def waiting() -> str:
    """Return the expression for the seconds of a call of Triton in which it is not computed."""
    calls = f'{OF}, phase="triton"'
    computing = f"{rate('nv_inference_compute_infer_duration_us', 'model')} / 1e6"
    return f"({rate(f'{PHASES}_sum', 'model', calls)} - {computing}) / {rate(f'{PHASES}_count', 'model', calls)}"


PHASES = "petrov_phase_duration_seconds"
ROWS: dict[str, list[Panel]] = {
    "Service": [
        Panel("Ready", "bool_yes_no", {"{{instance}}": "petrov_ready"}, "stat"),
        Panel("Running", "short", {"{{instance}} {{version}}": "petrov_build_info"}, "stat", "Instance and version."),
        Panel("Triton servers in use", "bool_yes_no", {"{{instance}} to {{endpoint}}": "petrov_endpoint_up"}, "stat"),
    ],
    "Requests": [
        Panel("Predictions, rollouts and derivatives", "reqps", {"{{model}} {{code}}": rate(
            "petrov_request_duration_seconds_count", "model, code", RUNS)}, stack=True),
        Panel("Duration of predictions", "s", quantiles("petrov_request_duration_seconds", "model", PREDICTIONS),
              note="From the request line to the end of the response, the client's upload included."),
        Panel("In flight", "short", {"predictions at {{instance}}": "petrov_inflight_predictions",
              "limit of {{instance}}": "petrov_inflight_requests_limit",
              "requests of any kind at {{instance}}": "petrov_inflight_requests"}),
        Panel("Bytes in flight", "bytes", {"{{instance}}": "petrov_inflight_bytes",
              "limit of {{instance}}": "petrov_inflight_bytes_limit"}),
        Panel("Rejections", "reqps", {"{{reason}}":
              "sum by (reason) (rate(petrov_rejected_total[$__rate_interval])) > 0"}, stack=True),
    ],
    "Fields": [
        Panel("Fields", "ops", {"{{model}} {{grid}}": rate("petrov_fields_total", "model, grid", AT)}, stack=True,
              note="Predicted fields per second."),
        Panel("Fields per call of Triton", "short", {
              "mean {{model}}": mean("petrov_batch_fields", "model"),
              "p95 {{model}}": quantile(0.95, "petrov_batch_fields", "model")}),
        Panel("Request bodies", "bytes", {"p95": quantile(0.95, "petrov_request_bytes", "job", ""),
              "mean": mean("petrov_request_bytes", "job", "")}),
        Panel("Frames of streamed rollouts", "ops", {"{{model}}": rate("petrov_frames_total", "model")}, stack=True),
        Panel("Fields by key", "ops", {"{{key}}": rate("petrov_key_fields_total", "key", "")}, stack=True),
    ],
    "Quality": [
        Panel("Inputs outside", "percentunit", {"{{model}}":
              f"{rate('petrov_outside_total', 'model')} / {rate('petrov_solved_by_total', 'model')}"},
              note="Share of fields unlike the training data; about 1 % of the training distribution are."),
        Panel("Error estimate", "percentunit", quantiles("petrov_error_estimate", "model"),
              note="Calibrated relative L2 errors."),
        Panel("True error", "percentunit", quantiles("petrov_true_error", "model"),
              note="Relative L2 distance to the classical solution on the same grid, for a share of the predictions."),
        Panel("Error bound", "percentunit", quantiles("petrov_error_bound", "model"),
              note="Guaranteed relative errors in the energy norm."),
        Panel("Misfit", "percentunit", quantiles("petrov_misfit", "model"),
              note="Relative L2 distances from inputs of inverse models to the forward solutions of their outputs."),
        Panel("Solved by", "ops", {"{{model}} {{by}}": rate("petrov_solved_by_total", "model, by")}, stack=True,
              note="Fields per second by the network and by the classical solver."),
    ],
    "Phases: parse, triton, encode": [
        *(Panel(f"p{of * 100:.0f} by phase", "s",
                {"{{model}} {{grid}} {{phase}}": quantile(of, PHASES, "model, grid, phase", AT)})
          for of in (0.5, 0.95, 0.99)),
        Panel("Share of each phase", "percentunit", {"{{model}} {{phase}}":
              f"{rate(f'{PHASES}_sum', 'model, phase', AT)}"
              f" / on (model) group_left () {rate(f'{PHASES}_sum', 'model', AT)}"}, stack=True),
        Panel("Calls of Triton", "s", quantiles("petrov_triton_duration_seconds", "model")),
    ],
    "Triton": [
        Panel("Queue", "s", {"{{model}}": waiting()},
              note="Mean per call, from the gateway to Triton's response, without the computation."),
        Panel("Computing", "s", {"{{model}}": per_inference("nv_inference_compute_infer_duration_us")},
              note="Mean per inference."),
        Panel("Fields per executed batch", "short", {"{{model}}":
              f"{rate('nv_inference_count', 'model')} / {rate('nv_inference_exec_count', 'model')}"}),
        Panel("Inferences", "ops", {"{{model}} {{version}}": rate("nv_inference_count", "model, version"),
              "failed {{model}} {{reason}}": rate("nv_inference_request_failure", "model, reason")}),
        Panel("Pending", "short", {"{{model}}": f"sum by (model) (nv_inference_pending_request_count{{{OF}}})"}),
        Panel("Retries", "ops", {"after {{endpoint}}": rate("petrov_retries_total", "endpoint", "")},
              note="Calls that were repeated after their connection was lost."),
    ],
    "Process": [
        Panel("Memory", "bytes", {"{{instance}}": 'process_resident_memory_bytes{job="petrov"}'}),
        Panel("Processor", "percentunit", {"{{instance}}":
              'rate(process_cpu_seconds_total{job="petrov"}[$__rate_interval])'}),
        Panel("Open files", "short", {"{{instance}}": 'process_open_fds{job="petrov"}'}),
    ],
}  # fmt: skip


def dashboard() -> dict[str, Any]:
    """Return the document that Grafana reads."""
    return {
        "uid": "petrov",
        "title": "Petrov",
        "description": "Generated by deploy/grafana/dashboard.py.",
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source(), *(variable(name) for name in ("model", "grid"))]},
        "panels": list(layout()),
    }


def source() -> dict[str, Any]:
    """Return the variable that selects the data source."""
    return {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}


def variable(label: str) -> dict[str, Any]:
    """Return the variable that selects values of a label."""
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


def layout() -> Any:
    """Yield the panels, three or four side by side below the heading of their row."""
    y = number = 0
    for heading, panels in ROWS.items():
        number += 1
        position = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": heading, "gridPos": position, "collapsed": False, "panels": []}
        y += 1
        columns = 4 if len(panels) % 4 == 0 else 3
        width = WIDTH // columns
        for index, panel in enumerate(panels):
            number += 1
            row, column = divmod(index, columns)
            yield chart(panel, number, {"x": column * width, "y": y + row * HEIGHT, "w": width, "h": HEIGHT})
        y += HEIGHT * -(-len(panels) // columns)


def chart(panel: Panel, number: int, position: dict[str, int]) -> dict[str, Any]:
    """Return a panel as Grafana reads it."""
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stack else {}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.note,
        "gridPos": position,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": custom}, "overrides": []},
        "options": {"textMode": "value_and_name"} if panel.kind == "stat" else {},
        "targets": [
            {"refId": letter, "expr": expression, "legendFormat": legend, "datasource": SOURCE}
            for letter, (legend, expression) in zip("ABCDEFGH", panel.queries.items(), strict=False)
        ],
    }


def text() -> str:
    """Return the content of the file."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
