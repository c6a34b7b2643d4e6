"""Networks with several inputs, parameters and outputs are exported as graphs with as many tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from export import parity, to_onnx, to_torchscript, triton_config
from export.deployable import Deployable
from export.probes import shapes
from export.signature import Signature, SignatureError
from export.to_onnx import GraphError
from training.problems.description import Description

HEAT: dict[str, Any] = {
    "name": "heat",
    "title": "Steady heat",
    "equation": "",
    "boundary": "",
    "inputs": [
        {"name": "conductivity", "meaning": "", "positive": True},
        {"name": "velocity", "meaning": "", "components": ["x", "y"]},
    ],
    "parameters": [{"name": "wind", "meaning": "", "default": 1.0}],
    "outputs": [{"name": "temperature", "meaning": ""}, {"name": "flux", "meaning": "", "components": ["x", "y"]}],
    "axes": [{"name": name, "boundary": "wall", "points": "cells"} for name in ("row", "column")],
    "points": "cells",
    "grid": {"minimum": 8, "maximum": 64, "declared": [16]},
    "distribution": "",
}


class Heat(nn.Module):
    """Two fields and a number in, two fields out."""

    def forward(self, conductivity: Tensor, velocity: Tensor, wind: Tensor) -> tuple[Tensor, Tensor]:
        mean = conductivity.mean(dim=(1, 2), keepdim=True)
        temperature = conductivity / mean + wind[:, None, None] * velocity.sum(dim=1)
        return temperature, velocity * temperature[:, None]


class Temperature(Heat):
    """Its first output alone."""

    def forward(self, conductivity: Tensor, velocity: Tensor, wind: Tensor) -> Tensor:
        return super().forward(conductivity, velocity, wind)[0]


def signature(**changes: Any) -> Signature:
    return Signature.of(Description.model_validate(HEAT | changes))


def test_an_onnx_graph_has_every_tensor_by_its_name(tmp_path: Path) -> None:
    described = signature()
    to_onnx.write(Deployable(Heat(), described.argument_names), described, tmp_path / to_onnx.FILE)
    run, _ = to_onnx.read(tmp_path / to_onnx.FILE)
    compared = parity.compare(run, Heat(), described)
    parity.gate(compared)
    assert len(compared) > 3


def test_torchscript_takes_several_inputs_and_gives_one_output(tmp_path: Path) -> None:
    described = signature(outputs=HEAT["outputs"][:1])
    to_torchscript.write(Deployable(Temperature(), described.argument_names), described, tmp_path / to_torchscript.FILE)
    run, _ = to_torchscript.read(tmp_path / to_torchscript.FILE)
    parity.gate(parity.compare(run, Temperature(), described))
    both = signature()
    with pytest.raises(GraphError, match="TorchScript is for models with one output but found temperature, flux"):
        to_torchscript.write(Deployable(Heat(), both.argument_names), both, tmp_path / to_torchscript.FILE)


def test_the_config_names_every_tensor() -> None:
    config = triton_config.config("heat", signature(), "onnx")
    assert [(tensor.name, list(tensor.dims)) for tensor in config.input] == [
        ("conductivity", [-1, -1]),
        ("velocity", [2, -1, -1]),
        ("wind", [1]),
    ]
    assert [(tensor.name, list(tensor.dims)) for tensor in config.output] == [
        ("temperature", [-1, -1]),
        ("flux", [2, -1, -1]),
    ]
    assert config.input[2].HasField("reshape")


def test_a_graph_that_computes_something_else_is_found(tmp_path: Path) -> None:
    described = signature()
    to_onnx.write(Deployable(Heat(), described.argument_names), described, tmp_path / to_onnx.FILE)
    run, _ = to_onnx.read(tmp_path / to_onnx.FILE)

    def shifted(*arguments: Any) -> list[Any]:
        temperature, flux = run(*arguments)
        return [temperature, flux * torch.tensor(1.001).numpy()]

    with pytest.raises(parity.ParityError, match="at most 1e-05 but found"):
        parity.gate(parity.compare(shifted, Heat(), described))


def test_a_grid_of_unequal_sides_is_compared_where_no_square_one_is_declared() -> None:
    described = signature(grid={"minimum": 8, "maximum": 64, "declared": [], "unequal": [[12, 20]]})
    assert (12, 20) in {shape[1:] for shape in shapes(described)}


def test_what_the_gateway_cannot_serve_yet_is_refused_by_name() -> None:
    with pytest.raises(SignatureError, match="cannot serve wind, velocity, flux"):
        signature().require_service()
    signature(inputs=HEAT["inputs"][:1], outputs=HEAT["outputs"][:1], parameters=[]).require_service()


def test_the_card_names_components_lengths_and_boundaries() -> None:
    described = signature()
    assert [tensor.components for tensor in described.inputs] == [(), ("x", "y")]
    assert (described.grid.lengths, described.grid.boundaries) == ((1.0, 1.0), ("wall", "wall"))
