"""Check the document of the dashboard; `test_prometheus.py` evaluates its expressions in a real Prometheus."""

from __future__ import annotations

import itertools
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "deploy/grafana"


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / "petrov.json").read_text())
    return document


def test_the_file_is_the_output_of_the_script() -> None:
    made = runpy.run_path(str(FOLDER / "dashboard.py"))["text"]()
    assert (FOLDER / "petrov.json").read_text() == made, "python deploy/grafana/dashboard.py"


def test_panels_have_distinct_ids_and_do_not_overlap(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    positions = [panel["gridPos"] for panel in panels]
    assert all(position["x"] >= 0 and position["x"] + position["w"] <= 24 for position in positions)
    assert [pair for pair in itertools.combinations(positions, 2) if overlap(*pair)] == []


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[start] < other[start] + other[size] and other[start] < one[start] + one[size]
        for start, size in (("x", "w"), ("y", "h"))
    )


def test_panels_use_the_chosen_data_source(dashboard: dict[str, Any]) -> None:
    [source] = [each for each in dashboard["templating"]["list"] if each["type"] == "datasource"]
    charts = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert all(panel["targets"] for panel in charts)
    used = [item["datasource"]["uid"] for panel in charts for item in (panel, *panel["targets"])]
    assert set(used) == {f"${{{source['name']}}}"}
    assert all(len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) for panel in charts)


def test_provisioning_files_have_the_types_that_grafana_reads() -> None:
    found = {path.parent.name: yaml.safe_load(path.read_text()) for path in FOLDER.glob("provisioning/*/*.yml")}
    [source] = found["datasources"]["datasources"]
    assert (found["datasources"]["apiVersion"], source["type"]) == (1, "prometheus")
    [provider] = found["dashboards"]["providers"]
    assert (found["dashboards"]["apiVersion"], provider["type"]) == (1, "file")
