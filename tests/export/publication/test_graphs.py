"""Both formats compute what the network computes, on every grid, and run everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from export import parity, probes
from export.graphs import to_onnx, to_torchscript
from export.graphs.deployable import Deployable, example
from export.parity import ParityError
from export.repository import FORMATS, Publication
from export.signature import Signature
from schema.card import Parameter
from training import checkpoint
from training.problems.problem import PROBLEMS

Published: TypeAlias = "tuple[Path, dict[str, Publication]]"


FEW = {"darcy", "burgers"}  # which the suite publishes; the deep suite has all
PUBLICATIONS = [
    pytest.param(
        problem, "published" if problem in FEW else "all_published", marks=() if problem in FEW else pytest.mark.deep
    )
    for problem in ("darcy", "darcy_inverse", "burgers", "poisson")
]


@pytest.mark.parametrize(("problem", "where"), PUBLICATIONS)
@pytest.mark.parametrize("form", FORMATS)
def test_a_graph_computes_what_its_network_computes_on_any_grid(
    problem: str, where: str, form: str, checkpoints: dict[str, Path], request: pytest.FixtureRequest
) -> None:
    published: Published = request.getfixturevalue(where)
    suffix, writer = FORMATS[form]
    run, _ = writer.read(published[0] / f"{problem}{suffix}" / "1" / writer.FILE)
    loaded = checkpoint.load(checkpoints[problem])
    signature = Signature.of_checkpoint(loaded)
    modules = [Deployable(loaded.deployed, signature.argument_names, dtype) for dtype in (torch.float32, torch.float64)]
    sides = st.integers(signature.grid.minimum, min(signature.grid.maximum, 96))

    @given(
        batch=st.integers(1, 5), grid=st.tuples(*[sides for _ in signature.grid.axes]), seed=st.integers(0, 2**32 - 1)
    )
    @settings(max_examples=6, deadline=None)
    def check(batch: int, grid: tuple[int, ...], seed: int) -> None:
        arguments = probes.draw((batch, *grid), signature, seed)
        output, *quality = run(*arguments)
        with torch.inference_mode():
            single, double = (
                parity.eager(module, [torch.from_numpy(array).to(kind) for array in arguments])[0]
                for module, kind in zip(modules, KINDS, strict=True)
            )
        assert {array.dtype for array in (output, *quality)} == {np.dtype(np.float32)}
        assert [array.shape for array in quality] == [(batch, 1)] * len(signature.quality)
        fixed = signature.outputs[0].shape
        assert output.shape == tuple(n or points for n, points in zip(fixed, (batch, *grid), strict=True))
        assert parity.difference(output, single).relative_l2 <= parity.TOLERANCE
        assert parity.difference(output, double).relative_l2 <= parity.TOLERANCE

    check()


KINDS = (torch.float32, torch.float64)


@pytest.mark.parametrize("problem", ["darcy", "darcy_inverse", "burgers", "poisson"])
def test_no_comparison_uses_the_traced_shape(problem: str) -> None:
    signature = Signature.of(PROBLEMS[problem].description)
    shapes = probes.shapes(signature)
    assert tuple(example(signature)[0].shape) not in shapes
    assert {shape[0] for shape in shapes} == {1, 2, 3}
    assert {signature.grid.minimum, signature.grid.maximum} <= {shape[1] for shape in shapes}


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [
        ({"maximum": -5.0}, -6.0, -5.0),
        ({"maximum": 3.0}, -1.0, 3.0),
        ({"minimum": 4.0}, 4.0, 6.0),
        ({"minimum": -9.0, "maximum": -8.0}, -9.0, -8.0),
    ],
)
def test_parameters_are_drawn_between_their_bounds(bounds: dict[str, float], low: float, high: float) -> None:
    drawn = probes.numbers(500, Parameter(name="load", **bounds))
    assert low <= drawn.min() < drawn.max() <= high


def test_comparisons_of_a_plane_hold_unequal_sides() -> None:
    shapes = probes.shapes(Signature.of(PROBLEMS["darcy"].description))
    assert any(rows != columns and rows % 2 and columns % 2 for _, rows, columns in shapes)


@pytest.mark.parametrize(("problem", "where"), PUBLICATIONS)
def test_the_onnx_graph_is_self_contained_and_says_nothing_of_this_machine(
    problem: str, where: str, request: pytest.FixtureRequest
) -> None:
    published: Published = request.getfixturevalue(where)
    path = published[0] / problem / "1" / to_onnx.FILE
    model = onnx.load(path, load_external_data=False)
    assert [file.name for file in sorted(path.parent.iterdir())] == ["card.json", "certificate.json", "model.onnx"]
    assert {node.domain for node in model.graph.node} == {""}
    assert not to_onnx.FORBIDDEN & to_onnx.operators(model).keys()
    assert str(to_onnx.__file__).encode().rpartition(b"/")[0] not in path.read_bytes()


def test_torchscript_makes_its_tensors_where_the_input_is(published: Published) -> None:
    with to_torchscript.quiet():
        graph = torch.jit.load(published[0] / "darcy_torchscript" / "1" / to_torchscript.FILE).inlined_graph
    assert "prim::device" in str(graph)
    assert 'value="cpu"' not in str(graph)


def test_a_perturbed_weight_is_found(tmp_path: Path, checkpoints: dict[str, Path], published: Published) -> None:
    model = onnx.load(published[0] / "burgers" / "1" / to_onnx.FILE)
    floats = [tensor for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT]
    weight = max(floats, key=lambda tensor: len(tensor.raw_data))
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * np.float32(1.01), weight.name))
    onnx.save(model, tmp_path / "broken.onnx")
    loaded = checkpoint.load(checkpoints["burgers"])
    run, _ = to_onnx.read(tmp_path / "broken.onnx")
    with pytest.raises(ParityError, match="at most 1e-05"):
        parity.gate(parity.compare(run, loaded.operator, Signature.of(loaded.description)))


def test_an_output_that_is_not_finite_is_refused() -> None:
    nothing = parity.difference(np.full((1, 4), np.nan, np.float32), np.ones((1, 4), np.float32))
    with pytest.raises(ParityError, match="nan"):
        parity.gate([parity.Comparison((1, 4), nothing, nothing)])
