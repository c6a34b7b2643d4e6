"""The graph of the elliptic operator on inputs that end its iterations early."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from export import to_onnx
from export.deployable import Deployable
from export.parity import Graph
from export.signature import Signature
from training.operators.elliptic import EllipticConfig, EllipticOperator
from training.problems.registry import PROBLEMS


@pytest.fixture(scope="module")
def operator() -> EllipticOperator:
    torch.manual_seed(0)
    return EllipticOperator(EllipticConfig(channels=4, layers=1)).eval()


@pytest.fixture(scope="module")
def graph(operator: EllipticOperator, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    problem = PROBLEMS["darcy"].description_for(operator.optional)
    signature, path = Signature.of(problem, operator.quality), Path(tmp_path_factory.mktemp("graph")) / to_onnx.FILE
    to_onnx.write(Deployable(operator, signature.argument_names), signature, path)
    return to_onnx.read(path)[0]


@pytest.mark.parametrize("value", [1.0, 6.0, 1e-10, 1e10])
@pytest.mark.parametrize("source", [0.0, 1.0, -1e-8])
def test_a_constant_coefficient_gives_the_network_s_solution_and_bound(
    operator: EllipticOperator, graph: Graph, value: float, source: float
) -> None:
    # Exporters drop additions of small constants, which would leave 0/0.
    fields = [np.full((2, 40, 31), number, np.float32) for number in (value, source)]
    with torch.no_grad():
        expected = operator.with_quality(*map(torch.from_numpy, fields))
    for found, other in zip(graph(*fields), expected, strict=True):
        np.testing.assert_allclose(found, other.numpy(), rtol=1e-4, atol=1e-6 * other.abs().max().item())
