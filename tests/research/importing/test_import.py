"""Imported networks have the outputs of the reference to the last digit, are exported and served."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
import tritonclient.grpc
from torch import Tensor
from typer.testing import CliRunner

from export import parity
from export.graphs import to_onnx
from export.graphs.deployable import Deployable
from export.repository import publish
from export.signature import Signature
from research.commands import app
from research.importing.arguments import EXAMPLES, Arguments, Example
from research.importing.entries import expected_entries
from research.importing.errors import ReferenceImportError
from research.importing.provenance import imported_problem
from research.importing.reference import Request, import_reference, save
from serving.settings import Settings
from serving.triton.server import TritonServer
from tests.research.importing.reference_cases import (
    FLOAT32,
    FLOAT64,
    Golden,
    case_file,
    distance,
    example_of,
    expected,
    flat_statistics,
    physical_input,
    write,
)
from training import checkpoint
from training.operators import PlaneTransformerConfig
from training.problems.registry import PROBLEMS

LINES = [f"simple_transformer_{kind}" for kind in ("fourier", "linear")] + [
    f"simple_transformer_galerkin_{kind}" for kind in ("pointwise", "spacialfc", "spacialresidual")
]
PLANES = [
    f"fourier_transformer_2d_{kind}"
    for kind in (
        *("darcy", "darcy_softmax_layernorm", "darcy_boundary_value", "darcy_nonorm_free"),
        *("no_scalers", "inverse"),
    )
]
#: Those with parts that the graphs of `test_published_graphs.py` lack; types of attention are tested in
#: `test_encoder.py`.
GRAPHS = [LINES[0], LINES[-1], "fourier_transformer_2d_no_scalers"]


@pytest.mark.parametrize("name", LINES + PLANES)
def test_an_imported_network_has_the_outputs_of_the_reference(name: str, golden: Golden, tmp_path: Path) -> None:
    case, example = golden(name), example_of(name)
    imported = import_reference(write(tmp_path, case, example))
    assert distance(imported.operator(physical_input(case, example)), expected(case)) <= FLOAT64
    assert imported.card["checkpoint"]["parameters"] == sum(tensor.numel() for tensor in case.state.values())
    contradicted = {key for key, value in imported.inference.inferred.items() if case.config.get(key, value) != value}
    assert contradicted == set()
    save(imported, tmp_path / "out")
    loaded = checkpoint.load(tmp_path / "out")
    assert distance(loaded.operator(physical_input(case, example).float()), expected(case)) <= FLOAT32


@pytest.mark.parametrize("name", GRAPHS)
def test_its_graph_has_the_outputs_of_the_reference(name: str, golden: Golden, tmp_path: Path) -> None:
    case, example = golden(name), example_of(name)
    imported = import_reference(write(tmp_path, case, example))
    signature = Signature.of(imported.problem.description)
    graph = to_onnx.convert(Deployable(imported.operator, signature.argument_names), signature)
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {signature.inputs[0].name: physical_input(case, example).float().numpy()})
    assert distance(output, expected(case)) <= FLOAT32


PUBLISHED: dict[Example, tuple[dict[str, Any], int, tuple[tuple[int, ...], ...]]] = {
    "burgers": (
        {"n_hidden": 96, "num_encoder_layers": 4, "freq_dim": 48, "fourier_modes": 16, "spacial_dim": 1},
        530_305,
        (),
    ),
    "darcy": (
        {"n_hidden": 128, "n_head": 4, "num_encoder_layers": 6, "decoder_type": "ifft2", "freq_dim": 32}
        | {"fourier_modes": 12, "pos_dim": 2, "spacial_dim": 2, "spacial_fc": True, "attention_type": "galerkin"},
        2_220_829,
        ((141, 141), (71, 71), (141, 141)),
    ),
    "darcy_inverse": (
        {"n_hidden": 192, "n_head": 4, "num_encoder_layers": 6, "decoder_type": "pointwise", "pos_dim": 2}
        | {"num_regressor_layers": 1, "spacial_dim": 2, "spacial_fc": True, "attention_type": "galerkin"},
        2_383_873,
        ((141, 141), (36, 36), (36, 36)),
    ),
}


def random_state(example: Example) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = Arguments(**PUBLISHED[example][0], attn_norm=True)
    entries = expected_entries(sizes, 1 if example == "burgers" else 2, convolutional=True)
    return {key: 0.1 * torch.randn(shape, generator=generator) for key, shape in entries.items()}


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_published_sizes_need_no_config(example: Example, tmp_path: Path) -> None:
    _, parameters, grids = PUBLISHED[example]
    torch.save(random_state(example), tmp_path / "reference.pt")
    request = Request(tmp_path / "reference.pt", example)
    if grids:
        request = replace(request, normaliser=flat_statistics(tmp_path / "n.npz", grids[0][0], grids[2][0]))
    imported = import_reference(request)
    config = imported.operator.config
    assert imported.card["checkpoint"]["parameters"] == parameters
    assert config.attention == ("fourier" if example == "burgers" else "galerkin")
    assert "attention_type" in imported.assumed
    if isinstance(config, PlaneTransformerConfig):
        assert (config.grid, config.tokens, config.output) == grids
        assert config.eps == 1e-7
        assert imported.problem.description.output_grid == (None if example == "darcy" else (36, 36))
    assert (imported.recipe.name, imported.card["errors"]) == (f"{example}-imported", [])


def test_the_inverse_problem_says_which_cells_its_output_covers() -> None:
    def points(side: int) -> str:
        sizes: dict[str, Any] = {"grid": (141, 141), "tokens": (side,) * 2, "output": (side,) * 2}
        config = PlaneTransformerConfig(**sizes, down_middle=(99, 99), channels=6, heads=1, layers=1)
        return imported_problem("darcy_inverse", config).description.points

    assert points(36) == PROBLEMS["darcy_inverse"].description.points
    assert "block j of 71 covers the cells 6j-1 to 6j+4 of the 421" in points(71)


@pytest.mark.timeout(240)  # two exports and a Triton, on a busy machine
def test_an_imported_checkpoint_is_served_by_triton(
    golden: Golden,
    tmp_path: Path,
    make_settings: Callable[..., Settings],
    run_triton: Callable[[Settings], AbstractContextManager[TritonServer]],
) -> None:
    case, request = case_file(golden, tmp_path)
    out = tmp_path / "published_darcy"
    options = [str(request.file), "--example", "darcy", "--config", str(request.config), "--out", str(out)]
    done = CliRunner().invoke(app, ["import-reference", *options, "--normaliser", str(request.normaliser)])
    assert done.exit_code == 0, done.output
    assert str(out) in done.stdout
    with pytest.raises(ReferenceImportError, match="holds a checkpoint already"):
        save(import_reference(request), out)
    first, *_ = publish(out, tmp_path / "repository")
    assert max(row["float32"]["relative_l2"] for row in first.certificate["comparisons"]) <= parity.TOLERANCE
    settings = make_settings(tmp_path / "repository")
    tensor = tritonclient.grpc.InferInput("coefficient", [2, 29, 29], "FP32")
    tensor.set_data_from_numpy(physical_input(case, "darcy").float().numpy())
    with (
        run_triton(settings),
        tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{settings.triton_grpc_port}") as client,
    ):
        output = client.infer(first.model, [tensor]).as_numpy("solution")
    assert distance(output, expected(case)) <= FLOAT32
