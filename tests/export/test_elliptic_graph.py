"""The graph of the elliptic operator on inputs that end its iterations early."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from export import released
from export.graphs import to_onnx
from export.parity import Graph
from export.signature import Signature
from training import checkpoint
from training.operators.elliptic import EllipticOperator

#: What the operator computes itself; a calibration adds its own quality outputs.
COMPARED = ("solution", *EllipticOperator.quality)
DARCY = Path(__file__).parents[2] / "checkpoints" / "darcy"


@pytest.fixture(scope="module")
def network() -> checkpoint.Checkpoint:
    return checkpoint.load(DARCY)


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Return the released graph, which `test_released.py` compares with a fresh export."""
    return to_onnx.read(DARCY / released.FOLDER / "darcy" / to_onnx.FILE)[0]


@pytest.mark.parametrize("value", [1.0, 6.0, 1e-10, 1e10, 3e38])
@pytest.mark.parametrize("source", [0.0, 1.0, -1e-8])
def test_a_constant_coefficient_gives_the_network_s_solution_and_bound(
    network: checkpoint.Checkpoint, graph: Graph, value: float, source: float
) -> None:
    # Exporters drop additions of small constants, which would leave 0/0.
    fields = [np.full((2, 40, 31), number, np.float32) for number in (value, source)]
    names = Signature.of_checkpoint(network).result_names
    with torch.no_grad():
        expected = dict(zip(names, network.deployed.with_quality(*map(torch.from_numpy, fields)), strict=True))
    found = dict(zip(names, graph(*fields), strict=True))
    assert names[: len(COMPARED)] == COMPARED
    for name in COMPARED:
        atol = 1e-6 * expected[name].abs().max().item()
        np.testing.assert_allclose(found[name], expected[name].numpy(), rtol=1e-4, atol=atol)
