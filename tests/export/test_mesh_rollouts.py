"""Graphs of rollouts on points of their own, with their derivatives, beside the network that they are made of."""

from __future__ import annotations

import io

import numpy as np
import onnx
import pytest
import torch

from export import parity, probes, triton_config
from export.graphs import to_onnx
from export.graphs.deployable import Deployable
from export.signature import Signature
from schema.card import KINDS, Kind
from schema.problem import GridLimits
from tests.export.test_forced_rollouts import check_products, opened
from training.calibration import CalibratedOperator, Measured
from training.calibration.fitting import calibrated
from training.calibration.samples import CalibrationSamples
from training.operators.points import PointsConfig, PointsOperator
from training.operators.points_trajectory import PointsTrajectoryConfig, PointsTrajectoryOperator
from training.problems.problem_file import ProblemFile

PROBLEM = ProblemFile.model_validate(
    {
        "name": "stirred",
        "data": {"files": ["stirred.npz"]},
        "inputs": {
            "start": {"key": "heat"},
            "wind": {"key": "w", "components": ["x", "y"]},
            "load": {"per_frame": True},
        },
        "parameters": {"rate": {}},
        "outputs": {"heat": {}, "flow": {"key": "w", "components": ["x", "y"]}},
        "points": {},
        "time": {"step": 0.1, "history": 2},
    }
)
STEP = PointsConfig(
    input_components=(2, 4, 0),
    input_scales=("linear",) * 3,
    parameter_scales=("linear",),
    output_components=(0, 2),
    output_scales=("linear",) * 2,
    box=((0, 1), (0, 2)),
    latent=8,
    channels=4,
)
#: Clouds of more points are sums of more terms: those of `test_a_graph_of_a_million_points_is_its_network`.
LIMITS = {"grid": GridLimits(minimum=4, maximum=2000, declared=(30,))}
DESCRIBED = PROBLEM.describe((30,), 96, 8, ((0.0, 1.0), (0.0, 2.0))).model_copy(update=LIMITS)


def arrays(points: int, batch: int, frames: int) -> list[torch.Tensor]:
    shapes = ((points, 2), (2, points), (2, points, 2), (frames, points))
    fields = [torch.rand(batch, *shape) for shape in shapes]
    return [*fields, torch.full((batch,), float(points)), torch.rand(batch)]


@pytest.fixture(scope="module")
def network() -> CalibratedOperator:
    """Return a network of random weights whose step sees two frames of a number and of a vector, with a novelty."""
    torch.manual_seed(0)
    config = PointsTrajectoryConfig(
        step=STEP, history=2, components=(0, 2), states=(1, 2), conserved=(False, False), forced=(3,)
    )
    operator, samples = PointsTrajectoryOperator(config), arrays(30, 96, 1)
    operator.fit_normalisers(*samples, torch.rand(96, 30), torch.rand(96, 30, 2))
    measured = [Measured([each[rows] for each in samples], kind={"grid": [30]}) for rows in (slice(48), slice(48, 96))]
    found = calibrated(DESCRIBED, operator, CalibrationSamples(measured[:1], measured[1:], measured[1:]))
    assert found is not None
    return CalibratedOperator(operator.eval(), found).eval()


@pytest.fixture(scope="module")
def signature(network: CalibratedOperator) -> Signature:
    return Signature.of(DESCRIBED).reporting(network)


@pytest.fixture(scope="module")
def graph(network: CalibratedOperator, signature: Signature) -> bytes:
    return to_onnx.graph_of(Deployable(network, signature.argument_names), signature)


def test_one_graph_serves_any_number_of_points_and_frames(
    network: CalibratedOperator, signature: Signature, graph: bytes
) -> None:
    run = opened(graph)
    parity.gate(parity.compare(run, network, signature))
    inputs = probes.draw((2, 57), signature, frames=13)
    with torch.inference_mode():
        expected = network.with_quality(*map(torch.from_numpy, inputs))
    found = run(*inputs)
    assert [each.shape for each in found] == [(2, 13, 57), (2, 13, 57, 2), (2, 13)]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_where_points_lie_is_computed_before_the_loop(graph: bytes) -> None:
    model = onnx.load(io.BytesIO(graph))
    [loop] = [node for node in model.graph.node if node.op_type == "Loop"]
    body = next(each.g for each in loop.attribute if each.name == "body")
    of_the_loop = {node.op_type for node in body.node}
    assert not {"Floor", "Cos", "Sin"} & of_the_loop
    assert "ScatterND" in of_the_loop
    assert "Floor" in {node.op_type for node in model.graph.node}


def test_the_config_asks_for_one_thread_and_no_arena(network: CalibratedOperator) -> None:
    large = DESCRIBED.model_copy(update={"grid": GridLimits(minimum=4, maximum=1_000_000, declared=(30,))})
    signature = Signature.of(large).reporting(network)
    for about in (signature, signature.product("vjp")):
        parameters = triton_config.config("stirred", about, "onnx").parameters
        assert parameters["intra_op_thread_count"].string_value == "1"  # several add to one sum at a time
        assert parameters["enable_mem_arena"].string_value == "0"


@pytest.mark.parametrize("kind", KINDS)
def test_products_agree_with_automatic_differentiation(
    kind: Kind, network: CalibratedOperator, signature: Signature, graph: bytes
) -> None:
    check_products(kind, network, signature, graph)


@pytest.mark.deep
def test_a_graph_of_a_million_points_is_its_network() -> None:
    torch.manual_seed(0)
    step = STEP.model_copy(update={"input_components": (0,), "input_scales": ("linear",), "parameter_scales": ()})
    step = step.model_copy(update={"output_components": (0,), "output_scales": ("linear",), "latent": 24})
    document = {"name": "large", "data": {"files": ["a.npz"]}, "inputs": {"heat": {}}, "outputs": {"u": {}}}
    problem = ProblemFile.model_validate(document | {"points": {}})
    large = Signature.of(problem.describe((900,), 50, None, ((0.0, 1.0), (0.0, 2.0))))
    assert large.grid.maximum == 1_000_000
    made = PointsOperator(step).eval()
    run = opened(to_onnx.graph_of(Deployable(made, large.argument_names), large))
    parity.gate(parity.compare(run, made, large, over=[(1, 1_000_000)]), 1e-6)
