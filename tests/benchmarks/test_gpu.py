"""`python -m benchmarks gpu`: one command and one file, with a card or without, here or from a folder elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from benchmarks import gateways, gpu, gpu_worker, throughput
from benchmarks.commands import app

ROOT = Path(__file__).parents[2]
MODELS = "burgers_exact,burgers_exact_jvp,listops"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what a packed folder says of some released models; `make test` has installed them."""
    folder = tmp_path_factory.mktemp("card")
    packed = [
        "gpu",
        "--quick",
        "--pack",
        str(folder),
        "--models",
        MODELS,
        "--repository",
        str(ROOT / "model_repository"),
    ]
    assert CliRunner().invoke(app, packed).exit_code == 0
    command = [sys.executable, "-I", folder / "gpu_worker.py", folder, folder / "result.json", "1"]
    subprocess.run(command, check=True, capture_output=True)
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def test_every_graph_is_measured_and_the_device_is_named(measured: dict[str, Any]) -> None:
    assert [row["model"] for row in measured["rows"]] == MODELS.split(",")
    assert measured["differing"] == 0
    if measured["gpu"] is None:
        assert measured["says"].startswith("no GPU is measured: ")
    else:
        assert measured["says"] == f"GPU: {measured['gpu']['name']}"


def test_products_and_sequences_have_their_arguments(measured: dict[str, Any]) -> None:
    exact, product, sequence = measured["rows"]
    assert exact["differences"].keys() == {"final"}
    assert product["differences"].keys() == {"final", "tangents.final"}
    assert (sequence["batch"], sequence["differences"].keys()) == (2, {"logits"})


def test_a_difference_is_relative_to_the_sample_or_to_the_value_of_a_quality() -> None:
    field = np.ones((2, 3, 4), np.float32)
    changed = field.copy()
    changed[1, 0, 0] += 12**0.5 * 1e-3
    assert gpu_worker.difference("solution", changed, field) == pytest.approx(1e-3, rel=1e-3)
    bound, far = np.array([[0.5], [1e-9]], np.float32), np.array([[0.505], [1e-9]], np.float32)
    assert gpu_worker.difference("error_bound", far, bound) == pytest.approx(1e-2, rel=1e-3)
    close = bound + np.array([[0], [4e-9]], np.float32)  # less than what rounding a solution to float32 allows
    assert gpu_worker.difference("solve_bound", close, bound) < gpu_worker.TOLERANCE
    assert gpu_worker.difference("solve_bound", close + np.float32(2e-8), bound) > gpu_worker.TOLERANCE
    assert gpu_worker.difference("solution", np.full_like(field, np.nan), field) == np.inf


def test_the_share_of_the_service_is_of_the_graph_at_the_same_points() -> None:
    row = {"model": gateways.MODEL, "grid": [gateways.POINTS] * 2, "batch": 8, "processor_ms": 40.0}
    others = [row | {"grid": [421, 421], "processor_ms": 1.0}, row | {"model": "darcy", "processor_ms": 1.0}]
    assert gateways.graph_rate([row, *others, row | {"fault": "out of memory", "processor_ms": 1.0}]) == 200.0
    assert gateways.graph_rate([row, row | {"fields_per_second": 1700.0}]) == 1700.0
    assert gateways.graph_rate(others) is None
    assert gateways.clients(["a", "b", "c"]) == ["a", "b", "c", "a"]


def test_a_throughput_is_of_each_device_that_was_measured(measured: dict[str, Any]) -> None:
    row = {"model": "darcy", "grid": [141, 141], "batch": 8, "processor_ms": 40.0}
    [processor] = throughput.of_graph(row, 141)
    assert (processor["device"], processor["precision"], processor["fields_per_second"]) == (
        "processor",
        "float32",
        200.0,
    )
    assert [each["device"] for each in throughput.of_graph(row | {"gpu_ms": 5.0}, 141)] == ["processor", "card"]
    assert not [*throughput.of_graph(row | {"grid": [421, 421]}, 141)]
    found = [each for row in measured["rows"] for each in throughput.of_graph(row, row["grid"][0])]
    assert ("card" in {each["device"] for each in found}) == (measured["gpu"] is not None)
    operator = torch.nn.AvgPool2d(3)
    assert throughput.eager(operator, "processor", "bfloat16", 1, 33, 1) > 0


def test_three_grids_are_coarse_declared_and_fine() -> None:
    assert gpu.sides(15, 421, [85, 141, 211, 421]) == [43, 141, 421]
    assert gpu.sides(16, 256, [64]) == [33, 64, 96]
