"""Derivatives of graphs equal central differences, operator by operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator
from torch import nn

from export import triton_config
from export.derivatives import agreement
from export.derivatives.agreement import Derivative, without_quality
from export.derivatives.differentiate import differentiate
from export.derivatives.rules import RULES
from export.graphs import to_onnx
from export.graphs.deployable import Deployable
from export.graphs.to_onnx import GraphError
from export.parity import ParityError
from export.signature import Signature
from schema.card import KINDS, Tensor
from schema.problem import Grid
from tests.export.test_several_tensors import LINEAR, Heat, own_network, signature

SIZES = {"batch": 2, "row": 4, "column": 5}
PLANE = ("batch", "row", "column")
IMAGE = ("batch", 3, "row", "column")
WEIGHTS = np.random.default_rng(1).standard_normal((4, 3, 3, 3))


def ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def operator(
    kind: str, *inputs: Any, axes: tuple[tuple[int | str, ...], ...] = (PLANE,), results: int = 1, **attributes: Any
) -> Any:
    """Return a case: an operator, its varying inputs by their axes, and constants between them as arrays."""
    name = f"{kind}-{len(axes)}-{'-'.join(f'{key}={value}' for key, value in attributes.items())}"
    return pytest.param(kind, inputs or ("x0",), axes, results, attributes, id=name[:60])


CASES = [
    *(operator(kind) for kind in ("Identity", "Neg", "Abs", "Exp", "Log", "Sqrt", "Reciprocal", "Tanh", "Sigmoid")),
    *(operator(kind) for kind in ("Sin", "Cos", "Asinh", "Erf", "Gelu", "Relu", "LeakyRelu", "Elu")),
    operator("Cast", to=TensorProto.DOUBLE),
    operator("Clip", "x0", np.array(0.7), np.array(1.4)),
    operator("Clip", "x0", "", np.array(1.1)),
    operator("Softmax", axis=-1),
    operator("Softmax", axis=1),
    *(operator(kind, "x0", "x1", axes=(PLANE, PLANE)) for kind in ("Add", "Sub", "Mul", "Div", "Max", "Min")),
    *(operator(kind, "x0", "x1", axes=(PLANE, ("batch", 1, 1))) for kind in ("Add", "Sub", "Mul", "Div")),
    *(operator(kind, "x0", "x1", axes=(("batch", 1, "column"), PLANE)) for kind in ("Sub", "Mul", "Div")),
    *(operator(kind, "x0", "x1", axes=(("column",), PLANE)) for kind in ("Mul", "Div")),
    operator("Mul", "x0", "x0"),
    operator("Max", "x0", np.array(1.1)),
    operator("Min", np.array(1.1), "x0"),
    operator("Pow", "x0", np.array(2.0)),
    operator("Pow", "x0", np.array(0.5)),
    operator("Where", np.array([[[True], [False], [True], [True]]]), "x0", "x1", axes=(PLANE, PLANE)),
    operator("ReduceSum", "x0", ints(1, 2), keepdims=1),
    operator("ReduceSum", "x0", ints(-1), keepdims=0),
    operator("ReduceMean", "x0", ints(2), keepdims=0),
    operator("ReduceMean", "x0", ints(1, 2), keepdims=1),
    operator("ReduceMax", "x0", ints(1, 2), keepdims=1),
    operator("ReduceMin", "x0", ints(2), keepdims=0),
    operator(
        "LayerNormalization", "x0", np.linspace(1, 2, 3), np.linspace(0, 1, 3), axes=(("batch", "row", 3),), axis=-1
    ),
    operator("MatMul", "x0", "x1", axes=(PLANE, ("batch", "column", 3))),
    operator("MatMul", "x0", "x1", axes=(("row", "column"), ("batch", "column", 3))),
    operator("MatMul", "x0", "x1", axes=((3, "row", 4), ("batch", 3, 4, "column"))),
    operator("MatMul", "x0", np.linspace(0, 1, 12).reshape(4, 3), axes=(("batch", "row", 4),)),
    operator("MatMul", np.linspace(0, 1, 4), "x0", axes=(("batch", 4, "column"),)),
    operator("MatMul", "x0", "x1", axes=(("batch", "row", 4), (4,))),
    operator("Gemm", "x0", np.linspace(0, 1, 12).reshape(3, 4), np.ones(3), axes=(("batch", 4),), transB=1),
    operator("Gemm", "x0", np.linspace(0, 1, 12).reshape(4, 3), axes=(("batch", 4),), alpha=0.5),
    operator("Conv", "x0", WEIGHTS, np.ones(4), axes=(IMAGE,), pads=[1, 1, 1, 1]),
    operator("Conv", "x0", WEIGHTS, axes=(IMAGE,), pads=[2, 1, 1, 2], strides=[2, 2]),
    operator("Conv", "x0", WEIGHTS[:3, :1], axes=(IMAGE,), pads=[1, 1, 1, 1], group=3),
    operator("ConvTranspose", "x0", WEIGHTS[:3], axes=(IMAGE,), pads=[1, 1, 1, 1]),
    *(
        operator("Resize", "x0", "", "", ints(2, 3, 7, 5), axes=(IMAGE,), mode="linear", **modes)
        for modes in (
            {"coordinate_transformation_mode": "align_corners"},
            {"coordinate_transformation_mode": "half_pixel"},
        )
    ),
    operator("Transpose", perm=[2, 0, 1]),
    operator("Reshape", "x0", ints(0, -1)),
    operator("Unsqueeze", "x0", ints(1)),
    operator("Squeeze", "x0", ints(1), axes=(("batch", 1, "column"),)),
    operator("Expand", "x0", ints(2, 4, 5), axes=(("batch", 1, "column"),)),
    operator("Concat", "x0", "x1", "x0", axes=(PLANE, ("batch", "row", 2)), axis=2),
    operator("Concat", "x0", np.ones((2, 3, 5)), "x1", axes=(PLANE, PLANE), axis=1),
    operator("Split", axes=(("batch", 6),), results=2, axis=1, num_outputs=2),
    operator("Slice", "x0", ints(1), ints(-1), ints(2)),
    operator("Slice", "x0", ints(-2), ints(9), ints(1)),
    operator("Slice", "x0", ints(-1), ints(np.iinfo(np.int64).min), ints(2), ints(-1), axes=(("batch", "row", 5),)),
    operator("Pad", "x0", ints(0, 1, 0, 0, 0, 2)),
    *(operator("Pad", "x0", ints(0, 1, 2, 0, 2, 1), mode=mode) for mode in ("edge", "wrap")),
    operator("Gather", "x0", ints(1)[0], axis=1),
    operator("Gather", "x0", ints(-1)[0], axis=2),
    operator("Gather", "x0", ints(2, 0, 1), axes=(IMAGE,), axis=1),
    operator("Gather", "x0", ints(0, 0, 3, 1), axis=1),
    operator("GatherND", "x0", np.array([[0, 1], [1, 3], [0, 1]]), axes=(PLANE,)),
    operator("GatherND", "x0", np.array([[[0, 1], [1, 2]], [[1, 0], [0, 1]]]), axes=(IMAGE,)),
    operator("GatherND", "x0", np.array([[1], [0], [1]]), axes=(IMAGE,)),
    operator("DepthToSpace", axes=(("batch", 8, "row", "column"),), blocksize=2, mode="CRD"),
    operator("DepthToSpace", axes=(("batch", 8, "row", "column"),), blocksize=2, mode="DCR"),
]


def graph_of(
    kind: str, inputs: tuple[Any, ...], axes: tuple[tuple[int | str, ...], ...], results: int, attributes: Any
) -> onnx.ModelProto:
    """Return a graph of one operator, as an exporter writes it."""
    constants = {f"c{index}": value for index, value in enumerate(inputs) if not isinstance(value, str)}
    names = [value if isinstance(value, str) else f"c{index}" for index, value in enumerate(inputs)]
    outputs = [f"y{index}" for index in range(results)]
    graph = helper.make_graph(
        [helper.make_node(kind, names, outputs, **attributes)],
        "case",
        [helper.make_tensor_value_info(f"x{index}", TensorProto.DOUBLE, shape) for index, shape in enumerate(axes)],
        [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", to_onnx.OPSET)], ir_version=10)
    return shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


def spec(value: onnx.ValueInfoProto) -> Tensor:
    sizes = [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim]
    shape = tuple(size if isinstance(size, int) else None for size in sizes)
    axes = tuple(str(size) for size in sizes)
    return Tensor(name=value.name, dtype="FP32", axes=axes, shape=shape, meaning="", units="1", positive=False)


def run(model: onnx.ModelProto, arrays: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[Any]]:
    """Evaluate a graph in double precision."""
    evaluator: Any = ReferenceEvaluator(model)
    return dict(zip(evaluator.output_names, evaluator.run(None, arrays), strict=True))


def test_every_rule_has_a_case() -> None:
    covered = {case.values[0] for case in CASES}
    # By derivatives of derivatives, or as aliases.
    reached = {"ScatterElements", "ScatterND", "SpaceToDepth", "Flatten", "Dropout"}
    assert RULES.keys() - covered == reached


@pytest.mark.parametrize(("kind", "inputs", "axes", "results", "attributes"), CASES)
def test_a_rule_equals_central_differences(
    kind: str, inputs: tuple[Any, ...], axes: tuple[tuple[int | str, ...], ...], results: int, attributes: Any
) -> None:
    model = graph_of(kind, inputs, axes, results, attributes)
    grid = Grid(axes=("row", "column"), minimum=1, maximum=64, declared=(), points="")
    described = Signature(
        inputs=tuple(map(spec, model.graph.input)), outputs=tuple(map(spec, model.graph.output)), grid=grid
    )
    rng = np.random.default_rng(0)

    def drawn(shape: tuple[Any, ...]) -> NDArray[np.float64]:
        return rng.uniform(0.5, 1.5, [SIZES.get(size, size) for size in shape])

    x = {f"x{index}": drawn(shape) for index, shape in enumerate(axes)}
    t = {name: rng.standard_normal(array.shape) for name, array in x.items()}
    y = run(model, x)
    c = {name: rng.standard_normal(array.shape) for name, array in y.items()}
    single = kind in {"Erf", "Gelu"}  # the reference evaluates them in single precision
    size, near = (1e-3, {"rtol": 1e-3, "atol": 1e-3}) if single else (1e-6, {"rtol": 2e-5, "atol": 2e-6})
    ahead, behind = (run(model, {name: x[name] + sign * size * t[name] for name in x}) for sign in (1, -1))
    slopes = {name: (ahead[name] - behind[name]) / (2 * size) for name in y}

    vjp, jvp = (differentiate(model, each, described.product(each)) for each in KINDS)
    pulled = run(vjp, x | {f"cotangents.{name}": array for name, array in c.items()})
    pushed = run(jvp, x | {f"tangents.{name}": array for name, array in t.items()})
    for name in y:
        np.testing.assert_array_equal(pulled[name], y[name])
        np.testing.assert_allclose(pushed[f"tangents.{name}"], slopes[name], **near)
    assert all(pulled[f"gradients.{name}"].shape == array.shape for name, array in x.items())
    by_gradients = sum(float((pulled[f"gradients.{name}"] * t[name]).sum()) for name in x)
    np.testing.assert_allclose(by_gradients, sum(float((c[n] * slopes[n]).sum()) for n in y), **near)


def test_an_operator_without_a_rule_is_named() -> None:
    model = graph_of("Tan", ("x0",), (PLANE,), 1, {})
    grid = Grid(axes=("row", "column"), minimum=1, maximum=64, declared=(), points="")
    described = Signature(inputs=(spec(model.graph.input[0]),), outputs=(spec(model.graph.output[0]),), grid=grid)
    with pytest.raises(GraphError, match=r"Tan .* has no known derivative"):
        differentiate(model, "vjp", described.product("vjp"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "network",
    [
        pytest.param(Heat(), id="products"),
        pytest.param(own_network(**LINEAR).eval(), id="linear", marks=pytest.mark.deep),
    ],
)
def test_several_inputs_parameters_and_outputs(network: nn.Module, kind: Any, tmp_path: Path) -> None:
    described = signature()
    to_onnx.write(Deployable(network, described.argument_names), described, tmp_path / "model.onnx")
    product = described.product(kind)
    made = differentiate(onnx.load(tmp_path / "model.onnx"), kind, product)
    to_onnx.check(made, product)
    onnx.save(made, tmp_path / "made.onnx")
    graph, _ = to_onnx.read(tmp_path / "made.onnx")
    single, double = (
        Derivative(kind, described, without_quality(network, described, dtype), dtype)
        for dtype in (torch.float32, torch.float64)
    )
    compared, difference = agreement.compare(graph, single, double), agreement.central_difference(double)
    agreement.gate(compared, difference)
    assert len(compared) > 3
    with pytest.raises(ParityError, match=r"within 0.0001 of central differences but found 0.1"):
        agreement.gate(compared, 0.1)

    def shifted(*arguments: Any) -> list[Any]:
        *others, last = graph(*arguments)
        return [*others, 1.01 * last]

    with pytest.raises(ParityError, match=r"of at most 0.0001 of the largest entry but found"):
        agreement.gate(agreement.compare(shifted, single, double), difference)


def test_tensors_of_derivatives_have_a_point_in_their_names() -> None:
    names = {kind: signature().product(kind) for kind in KINDS}
    own = ["conductivity", "velocity"]
    assert list(names["vjp"].argument_names) == [*own, "cotangents.temperature", "cotangents.flux", "wind"]
    assert [(spec.name, spec.shape) for spec in names["vjp"].outputs[2:]] == [
        ("gradients.conductivity", (None, None, None)),
        ("gradients.velocity", (None, 2, None, None)),
        ("gradients.wind", (None, 1)),
    ]
    tangents = ["tangents.conductivity", "tangents.velocity"]
    assert list(names["jvp"].argument_names) == [*own, *tangents, "wind", "tangents.wind"]
    assert names["jvp"].result_names == ("temperature", "flux", "tangents.temperature", "tangents.flux")
    config = triton_config.parse(triton_config.text("heat_vjp", names["vjp"], "onnx"))
    assert {tensor.name: list(tensor.dims) for tensor in config.output}["gradients.wind"] == [1]


class Kink(nn.Module):
    """The largest value of a field, which two points share."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.amax(dim=(1, 2), keepdim=True) * torch.ones_like(x)


def test_a_derivative_on_large_grids_alone_is_compared_on_the_smallest_of_them() -> None:
    described = signature(
        inputs=[{"name": "x", "meaning": ""}],
        parameters=[],
        outputs=[{"name": "y", "meaning": ""}],
        grid={"minimum": 230, "maximum": 1024, "declared": [920]},
    )
    single, double = (
        Derivative("vjp", described, without_quality(nn.Identity(), described, dtype), dtype)
        for dtype in (torch.float32, torch.float64)
    )
    [found] = agreement.compare(lambda x, cotangent: [x, 2 * cotangent], single, double)
    assert (found.shape, found.float32) == ((1, 230, 230), 1)


def test_equal_extreme_values_share_the_gradient(tmp_path: Path) -> None:
    described = signature(inputs=[{"name": "x", "meaning": ""}], parameters=[], outputs=[{"name": "y", "meaning": ""}])
    to_onnx.write(Deployable(Kink(), ("x",)), described, tmp_path / "model.onnx")
    made = differentiate(onnx.load(tmp_path / "model.onnx"), "vjp", described.product("vjp"))
    x = np.zeros((1, 8, 9), np.float32)
    x[0, 2, 3] = x[0, 4, 5] = 1
    found = run(made, {"x": x, "cotangents.y": np.ones_like(x)})["gradients.x"]
    np.testing.assert_allclose(found, 36 * x)
