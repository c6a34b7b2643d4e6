"""Networks with several inputs, parameters and outputs are exported as graphs with as many tensors."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from export import parity, repository, triton_config
from export.derivatives import agreement
from export.graphs import to_onnx, to_torchscript
from export.graphs.deployable import Deployable
from export.probes import shapes
from export.signature import Signature
from schema.problem import Description
from training.operators import Operator
from training.operators.field import FieldConfig, FieldOperator

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


LINEAR: dict[str, Any] = {"gated": True, "linear": (False, True)}


def own_network(**kind: Any) -> FieldOperator:
    """Return a small network for these tensors, as a problem file has one."""
    torch.manual_seed(0)
    config = FieldConfig(
        input_components=(0, 2),
        input_scales=("log", "linear"),
        parameter_scales=("linear",),
        output_components=(0, 2),
        output_scales=("linear", "linear"),
        periodic=(False, True),
        points=("cells", "left"),
        working=(10, 12),
        layers=0,
        **kind,
        detail=4,
        modes=3,
        spectral=1,
    )
    return FieldOperator(config)


def signature(**changes: Any) -> Signature:
    return Signature.of(Description.model_validate(HEAT | changes))


def test_an_onnx_graph_has_every_tensor_by_its_name(tmp_path: Path) -> None:
    described = signature()
    to_onnx.write(Deployable(Heat(), described.argument_names), described, tmp_path / to_onnx.FILE)
    run, _ = to_onnx.read(tmp_path / to_onnx.FILE)
    compared = parity.compare(run, Heat(), described)
    parity.gate(compared)
    assert len(compared) > 3


@pytest.mark.parametrize("kind", [{"unet": 1}, pytest.param(LINEAR, marks=pytest.mark.deep)])
def test_a_network_on_data_of_a_user_has_a_graph_for_every_grid(kind: dict[str, Any], tmp_path: Path) -> None:
    network, described = own_network(**kind).eval(), signature()
    to_onnx.write(Deployable(network, described.argument_names), described, tmp_path / to_onnx.FILE)
    run, _ = to_onnx.read(tmp_path / to_onnx.FILE)
    compared = parity.compare(run, network, described)
    parity.gate(compared)
    assert len(compared) > 3
    assert "DFT" not in {node.op_type for node in onnx.load(tmp_path / to_onnx.FILE).graph.node}


def test_a_torchscript_graph_has_every_tensor(tmp_path: Path) -> None:
    described = signature()
    to_torchscript.write(Deployable(Heat(), described.argument_names), described, tmp_path / to_torchscript.FILE)
    run, _ = to_torchscript.read(tmp_path / to_torchscript.FILE)
    parity.gate(parity.compare(run, Heat(), described))
    with zipfile.ZipFile(tmp_path / to_torchscript.FILE) as archive:
        records = [archive.read(name) for name in archive.namelist()]
    assert not any(Path(__file__).name.encode() in each for each in records)  # where its operators come from


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_a_torchscript_graph_on_a_full_disk_is_an_error(tmp_path: Path) -> None:
    described = signature()
    (tmp_path / to_torchscript.FILE).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        to_torchscript.write(Deployable(Heat(), described.argument_names), described, tmp_path / to_torchscript.FILE)


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


def called(old: str, new: str) -> Signature:
    """Return the signature with another name of one tensor."""
    return Signature.of(Description.model_validate_json(json.dumps(HEAT).replace(f'"{old}"', f'"{new}"')))


@pytest.mark.parametrize(
    ("tensor", "name"), [("velocity", "mean"), ("wind", "lambda"), ("flux", "mean"), ("flux", "div")]
)
def test_a_tensor_has_any_name_of_a_wire(tensor: str, name: str, tmp_path: Path) -> None:
    """The exporter calls values inside of a graph `mean` or `div`, and Python has a word `lambda`."""
    described = called(tensor, name)
    to_onnx.write(Deployable(Heat(), described.argument_names), described, tmp_path / to_onnx.FILE)
    run, _ = to_onnx.read(tmp_path / to_onnx.FILE)
    parity.gate(parity.compare(run, Heat(), described, over=[(1, 8, 11)]))


def test_torchscript_refuses_an_argument_with_the_name_of_a_word_of_python(tmp_path: Path) -> None:
    described = called("wind", "lambda")
    with pytest.raises(to_onnx.GraphError, match="lambda"):
        to_torchscript.write(Deployable(Heat(), described.argument_names), described, tmp_path / to_torchscript.FILE)


@pytest.mark.parametrize("which", [0, 1])
def test_nan_is_found_in_every_output(which: int) -> None:
    described = signature()

    def broken(*arguments: Any) -> list[Any]:
        outputs = [output.numpy() for output in Heat()(*map(torch.from_numpy, arguments))]
        outputs[which][0].fill(np.nan)
        return outputs

    with pytest.raises(parity.ParityError, match="but found nan"):
        parity.gate(parity.compare(broken, Heat(), described))


def test_nan_is_found_in_every_tensor_of_a_derivative() -> None:
    one, nan = np.ones((2, 3)), np.full((2, 3), np.nan)
    assert np.isnan(agreement.farthest({"u": one, "v": nan}, {"u": one, "v": one}, {}))


class Scaled(Heat):
    """Its components have sizes as unlike as a pressure and a velocity have."""

    def forward(self, conductivity: Tensor, velocity: Tensor, wind: Tensor) -> tuple[Tensor, Tensor]:
        temperature, flux = super().forward(conductivity, velocity, wind)
        return temperature, flux * torch.tensor([1e6, 1.0])[:, None, None]


def test_a_component_that_is_small_beside_another_is_compared_too() -> None:
    described = signature()

    def half(*arguments: Any) -> list[Any]:
        temperature, flux = Scaled()(*map(torch.from_numpy, arguments))
        return [temperature.numpy(), (flux * torch.tensor([1.0, 0.5])[:, None, None]).numpy()]

    compared = parity.compare(half, Scaled(), described)
    assert max(one.float32.relative_l2 for one in compared) < parity.TOLERANCE
    with pytest.raises(parity.ParityError, match="every component and frame"):
        parity.gate(compared)


def test_a_grid_of_unequal_sides_is_compared_where_no_square_one_is_declared() -> None:
    described = signature(grid={"minimum": 8, "maximum": 64, "declared": [], "unequal": [[12, 20]]})
    assert (12, 20) in {shape[1:] for shape in shapes(described)}


def test_the_card_names_components_lengths_and_boundaries() -> None:
    described = signature()
    assert [tensor.components for tensor in described.inputs] == [(), ("x", "y")]
    assert (described.grid.lengths, described.grid.boundaries) == ((1.0, 1.0), ("wall", "wall"))


class Certified(Operator):
    """A temperature with two numbers about its error."""

    quality = ("error_bound", "novelty")

    def forward(self, conductivity: Tensor, velocity: Tensor, wind: Tensor) -> Tensor:
        return Temperature()(conductivity, velocity, wind)

    def with_quality(self, *fields: Tensor) -> tuple[Tensor, ...]:
        deviation = fields[0].std(dim=(1, 2))[:, None]
        return self(*fields), 0.01 * deviation, torch.exp(-deviation)


@pytest.mark.parametrize("writer", [to_onnx, to_torchscript])
def test_quality_outputs_follow_the_outputs(writer: Any, tmp_path: Path) -> None:
    described = Signature.of(Description.model_validate(HEAT | {"outputs": HEAT["outputs"][:1]}), Certified.quality)
    writer.write(Deployable(Certified(), described.argument_names), described, tmp_path / "graph")
    run, _ = writer.read(tmp_path / "graph")
    compared = parity.compare(run, Certified(), described)
    parity.gate(compared)
    assert all(set(one.quality) == {"error_bound", "novelty"} for one in compared)

    def shifted(*arguments: Any) -> list[Any]:
        temperature, bound, novelty = run(*arguments)
        return [temperature, 1.1 * bound, novelty]

    with pytest.raises(parity.ParityError, match=r"expected error_bound to differ .* at most 0.01 but found 0.1"):
        parity.gate(parity.compare(shifted, Certified(), described))


def test_the_config_numbers_several_results_of_torchscript() -> None:
    described = Signature.of(Description.model_validate(HEAT | {"outputs": HEAT["outputs"][:1]}), Certified.quality)
    names = {form: triton_config.config("heat", described, form).output for form in ("onnx", "torchscript")}
    assert [(tensor.name, list(tensor.dims)) for tensor in names["onnx"]] == [
        ("temperature", [-1, -1]),
        ("error_bound", [1]),
        ("novelty", [1]),
    ]
    assert [tensor.name for tensor in names["torchscript"]] == ["temperature__0", "error_bound__1", "novelty__2"]


def test_quality_outputs_have_one_order() -> None:
    order = "error_bound, solve_bound, misfit, error_estimate, novelty"
    with pytest.raises(ValueError, match=f"in the order {order} but got novelty, error_bound"):
        Signature.of(Description.model_validate(HEAT), ("novelty", "error_bound"))


def publish_card(folder: Path, number: int, described: Signature) -> None:
    """Write a version folder that has a card, and nothing else."""
    version = folder / str(number)
    version.mkdir(parents=True)
    about = {"model": "heat", "version": number, "format": "onnx", "title": "", "problem": "heat"}
    parts = described.model_dump(mode="json")
    (version / "card.json").write_text(json.dumps(about | parts | {"training": {}, "checkpoint": {}}))


def test_versions_that_triton_could_not_load_leave_the_repository(tmp_path: Path) -> None:
    plain, certified = signature(), Signature.of(Description.model_validate(HEAT), Certified.quality)
    path, aside = tmp_path / "model_repository" / "heat", tmp_path / "aside"
    for number, described in ((1, plain), (2, plain), (3, certified)):
        publish_card(path, number, described)
    (path / "config.pbtxt").write_text(triton_config.text("heat", plain, "onnx"))
    publish_card(aside / "heat", 4, certified)
    repository.check_names(path, certified)  # quality outputs may come and go
    repository.install(path, certified, "onnx", aside)
    assert repository.versions(path) == [3, 4]
    assert (path / "config.pbtxt").read_text() == triton_config.text("heat", certified, "onnx")
    with pytest.raises(repository.RepositoryError, match="is published as conductivity, velocity, wind -> temperature"):
        repository.check_names(path, signature(parameters=[]))


def test_inputs_with_a_default_may_be_added(tmp_path: Path) -> None:
    path = tmp_path / "heat"
    path.mkdir()
    (path / "config.pbtxt").write_text(triton_config.text("heat", signature(), "onnx"))
    *inputs, velocity = HEAT["inputs"]
    source = {"name": "source", "meaning": ""}
    repository.check_names(path, signature(inputs=[*inputs, velocity, source | {"default": 1.0}]))
    with pytest.raises(repository.RepositoryError, match="but this checkpoint is conductivity, velocity, source, wind"):
        repository.check_names(path, signature(inputs=[*inputs, velocity, source]))
    with pytest.raises(repository.RepositoryError, match="but this checkpoint is conductivity, wind"):
        repository.check_names(path, signature(inputs=inputs))
