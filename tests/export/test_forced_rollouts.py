"""Graphs of rollouts whose inputs change in time, with their derivatives, beside the network that they are made of."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from export import parity, probes
from export.derivatives import agreement
from export.derivatives.differentiate import differentiate_rollout
from export.graphs import to_onnx, to_torchscript
from export.graphs.deployable import Deployable
from export.signature import Signature
from schema.card import KINDS, Kind
from training.calibration import CalibratedOperator, Measured, calibrate
from training.operators.field import FieldConfig
from training.operators.trajectory import TrajectoryConfig, TrajectoryOperator
from training.problems.problem_file import ProblemFile

#: Some tensors are called as what a graph has inside of its loop, which has another name then.
PROBLEM = ProblemFile.model_validate(
    {
        "name": "forced",
        "data": {"files": ["forced.npz"]},
        "inputs": {
            "initial": {"key": "u"},
            "f": {"per_frame": True},
            "initial_before": {},
            "wind": {"per_frame": "end", "components": ["x", "y"]},
        },
        "parameters": {"frame_count": {}, "iteration": {"per_frame": True}},
        "outputs": {"u": {}},
        "axes": {"x": {"boundary": "periodic", "points": "left"}},
        "time": {"step": 0.1, "history": 2},
    }
)
STEP = FieldConfig(
    input_components=(2, 0, 0, 2),
    input_scales=("linear",) * 4,
    parameter_scales=("linear",) * 2,
    output_components=(0,),
    output_scales=("linear",),
    periodic=(True,),
    points=("left",),
    working=(16,),
    layers=0,
    gated=True,
    detail=4,
    modes=4,
    spectral=1,
)
FORCED = {"f", "wind", "iteration"}
Run = Callable[..., list[np.ndarray[Any, Any]]]


@pytest.fixture(scope="module")
def network() -> CalibratedOperator:
    """Return a network of random weights whose step sees everything, with a novelty."""
    torch.manual_seed(0)
    config = TrajectoryConfig(step=STEP, history=2, components=(0,), states=(0,), conserved=(False,), forced=(1, 3, 5))
    operator = TrajectoryOperator(config)
    samples = [torch.randn(96, *shape) for shape in ((2, 16), (1, 16), (16,), (1, 2, 16), (), (1,))]
    operator.fit_normalisers(*samples, samples[0][:, 1] + torch.randn(96, 16))
    measured = [Measured(operator.canonical(*(each[rows] for each in samples))) for rows in (slice(48), slice(48, 96))]
    calibration = calibrate(PROBLEM.describe((16,), 96, 8), measured[:1], measured[1:])
    assert calibration is not None
    return CalibratedOperator(operator.eval(), calibration).eval()


@pytest.fixture(scope="module")
def signature(network: CalibratedOperator) -> Signature:
    return Signature.of(PROBLEM.describe((16,), 96, 8)).reporting(network)


@pytest.fixture(scope="module")
def graph(network: CalibratedOperator, signature: Signature) -> bytes:
    return to_onnx.graph_of(Deployable(network, signature.argument_names), signature)


def opened(graph: bytes) -> Run:
    """Open a graph with one thread, as configs of graphs on points say: several add to one sum at a time."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return lambda *arrays: session.run(None, dict(zip(names, arrays, strict=True)))


def test_the_signature_says_what_has_a_value_per_frame(signature: Signature) -> None:
    axes = {one.name: one.axes for one in (*signature.arguments, *signature.results)}
    assert axes["f"] == ("batch", "frame", "x")
    assert axes["wind"] == ("batch", "frame", "component", "x")
    assert axes["iteration"] == axes["novelty"] == ("batch", "frame")
    assert axes["initial"] == ("batch", "history", "x")
    assert {one.name: one.per_frame for one in signature.inputs if one.per_frame} == {"f": "start", "wind": "end"}
    pulled = {one.name: one.axes for one in signature.product("vjp").outputs}
    assert all(pulled[f"gradients.{name}"] == axes[name] for name in FORCED)
    assert pulled["gradients.frame_count"] == ("batch", "value")


def test_one_graph_rolls_out_any_number_of_frames(
    network: CalibratedOperator, signature: Signature, graph: bytes, tmp_path: Path
) -> None:
    run = opened(graph)
    parity.gate(parity.compare(run, network, signature))
    arrays = probes.draw((2, 16), signature, frames=13)
    with torch.inference_mode():
        expected, novelty = network.with_quality(*map(torch.from_numpy, arrays))
    found = run(*arrays)
    assert found[0].shape == (2, 13, 16)
    assert found[1].shape == (2, 13)
    np.testing.assert_allclose(found[0], expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found[1], novelty, atol=0.03)
    scripted = tmp_path / to_torchscript.FILE
    to_torchscript.write(Deployable(network, signature.argument_names), signature, scripted)
    parity.gate(parity.compare(to_torchscript.read(scripted)[0], network, signature))


def test_the_novelty_of_a_frame_is_that_of_its_forcing(signature: Signature, graph: bytes) -> None:
    rng, frame = np.random.default_rng(0), np.zeros((2, 6), np.int32)
    shapes = ((2, 2, 16), (2, 6, 16), (2, 16), (2, 6, 2, 16), (2,), (2, 6))  # of the distribution that is known
    arrays = [*(rng.standard_normal(shape).astype(np.float32) for shape in shapes), frame]
    run, position = opened(graph), signature.argument_names.index("f")
    before = run(*arrays)[1]
    arrays[position] = arrays[position].copy()
    arrays[position][1, 4] *= 100
    after = run(*arrays)[1]
    assert after[1, 4] < 0.05
    changed = before != after
    assert changed[1, 4]
    assert changed.sum() == 1


def check_products(kind: Kind, network: CalibratedOperator, signature: Signature, graph: bytes) -> None:
    """Assert that the products with derivatives of a rollout are those of automatic differentiation."""
    made = differentiate_rollout(onnx.load(io.BytesIO(graph)), kind, signature)
    run = opened(to_onnx.checked(made, signature.product(kind)))
    found = agreement.evidence(run, kind, network.operator, signature, {})
    assert max(one["frames"] for one in found["comparisons"]) == 16
    assert found["central_difference"] < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_a_rollout_agree_with_automatic_differentiation(
    kind: Kind, network: CalibratedOperator, signature: Signature, graph: bytes
) -> None:
    check_products(kind, network, signature, graph)
