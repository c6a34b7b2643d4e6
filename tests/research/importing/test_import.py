"""Imported networks have the outputs of the reference to the last digit, are exported and served."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
import tritonclient.grpc
from pydantic import BaseModel
from typer.testing import CliRunner

from export import parity
from export.graphs import to_onnx
from export.graphs.deployable import Deployable
from export.repository import publish
from export.signature import Signature
from research.cao2021.transformers import LineTransformerConfig, PlaneTransformerConfig
from research.commands import app
from research.importing.files import ReferenceImportError
from research.importing.reference import EXAMPLES, Example, Request, import_reference, save
from research.importing.weights import reference_views
from serving.local_triton.server import TritonServer
from serving.settings import Settings
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
from training.nn.decoders import PointwiseDecoderConfig
from training.operators import build
from training.problems.problem import PROBLEMS

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
GRAPHS = [
    LINES[0],
    *(pytest.param(name, marks=pytest.mark.deep) for name in (LINES[-1], "fourier_transformer_2d_no_scalers")),
]


@pytest.mark.parametrize("name", LINES + PLANES)
def test_an_imported_network_has_the_outputs_of_the_reference(name: str, golden: Golden, tmp_path: Path) -> None:
    case, example = golden(name), example_of(name)
    imported = import_reference(write(tmp_path, case, example))
    assert distance(imported.operator(physical_input(case, example)), expected(case)) <= FLOAT64
    assert imported.card.checkpoint["parameters"] == sum(tensor.numel() for tensor in case.state.values())
    assert imported.assumed == {}
    save(imported, tmp_path / "out")
    loaded = checkpoint.load(tmp_path / "out")
    assert distance(loaded.operator(physical_input(case, example).float()), expected(case)) <= FLOAT32


def test_the_first_entry_of_a_file_does_not_decide_the_precision(golden: Golden, tmp_path: Path) -> None:
    case = golden("simple_transformer_fourier")
    request = write(tmp_path, case, "burgers")
    (name, first), *rest = case.state.items()
    torch.save({name: first.half()} | dict(rest), request.file)
    assert {each.dtype for each in import_reference(request).operator.parameters()} == {torch.float64}
    torch.save({"norm.num_batches_tracked": torch.tensor(1)} | case.state, request.file)
    with pytest.raises(ReferenceImportError, match=r"unknown: 'norm\.num_batches_tracked'"):
        import_reference(request)


@pytest.mark.parametrize("name", GRAPHS)
def test_its_graph_has_the_outputs_of_the_reference(name: str, golden: Golden, tmp_path: Path) -> None:
    case, example = golden(name), example_of(name)
    imported = import_reference(write(tmp_path, case, example))
    signature = Signature.of(imported.problem.description)
    graph = to_onnx.convert(Deployable(imported.operator, signature.argument_names), signature)
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {signature.inputs[0].name: physical_input(case, example).float().numpy()})
    assert distance(output, expected(case)) <= FLOAT32


#: What the reference's config.yml says of its examples, among other things.
YAML = """
ex1_burgers:
  {node_feats: 1, pos_dim: 1, n_targets: 1, n_hidden: 96, num_feat_layers: 0, num_encoder_layers: 4, n_head: 1,
   dim_feedforward: 192, feat_extract_type: null, attention_type: 'fourier', xavier_init: 0.001, layer_norm: False,
   attn_norm: True, decoder_type: 'ifft', freq_dim: 48, num_regressor_layers: 2, fourier_modes: 16, spacial_dim: 1,
   spacial_fc: False, seq_len: null, bulk_regression: False, debug: False}
ex2_darcy:
  {node_feats: 1, pos_dim: 2, n_targets: 1, n_hidden: 128, num_encoder_layers: 6, n_head: 4, dim_feedforward: 256,
   attention_type: 'galerkin', layer_norm: False, attn_norm: True, norm_eps: 0.0000001, decoder_type: 'ifft2',
   spacial_dim: 2, spacial_fc: True, freq_dim: 32, num_regressor_layers: 2, fourier_modes: 12, last_activation: True,
   boundary_condition: 'dirichlet', downscaler_activation: 'relu', upscaler_activation: 'silu'}
ex3_darcy_inv:
  {node_feats: 1, pos_dim: 2, n_targets: 1, n_hidden: 192, num_encoder_layers: 6, n_head: 4, dim_feedforward: 384,
   attention_type: 'galerkin', layer_norm: False, attn_norm: True, norm_eps: 0.0000001, decoder_type: 'pointwise',
   spacial_dim: 2, spacial_fc: True, num_regressor_layers: 1, boundary_condition: 'free'}
"""
PLANE: dict[str, Any] = {"layers": 6, "norm": "none", "activation": "relu"}
PUBLISHED: dict[Example, tuple[LineTransformerConfig | PlaneTransformerConfig, int]] = {
    "burgers": (
        LineTransformerConfig(attention="fourier", channels=96, heads=1, feedforward=192, norm="none"),
        530_305,
    ),
    "darcy": (
        PlaneTransformerConfig(
            grid=(141, 141),
            down_middle=(100, 100),
            tokens=(71, 71),
            up_middle=(99, 99),
            output=(141, 141),
            channels=128,
            feedforward=256,
            **PLANE,
        ),
        2_220_829,
    ),
    "darcy_inverse": (
        PlaneTransformerConfig(
            grid=(141, 141),
            down_middle=(71, 71),
            tokens=(36, 36),
            up_middle=(36, 36),
            output=(36, 36),
            channels=192,
            feedforward=384,
            decoder=PointwiseDecoderConfig(activation="relu"),  # the YAML names none
            **PLANE,
        ),
        2_383_873,
    ),
}


def written(folder: Path, example: Example, config: BaseModel, arguments: str) -> Request:
    """Write the state dict of a new network of ours as the reference would, and the reference's arguments for it."""
    torch.manual_seed(0)
    network = build(config)
    torch.save(reference_views(network.config, network.state_dict()), folder / "reference.pt")
    (folder / "config.yml").write_text(arguments)
    return Request(folder / "reference.pt", example, folder / "config.yml")


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_published_yaml_suffices(example: Example, tmp_path: Path) -> None:
    config, parameters = PUBLISHED[example]
    request = written(tmp_path, example, config, YAML)
    if isinstance(config, PlaneTransformerConfig):
        statistics = flat_statistics(tmp_path / "n.npz", config.grid[0], config.output[0])
        request = replace(request, normaliser=statistics)
    imported = import_reference(request)
    found = imported.operator.config
    assert imported.card.checkpoint["parameters"] == parameters
    assert imported.assumed == ({"tokens": 71} if example == "darcy" else {})
    if isinstance(found, PlaneTransformerConfig) and isinstance(config, PlaneTransformerConfig):
        names = ("grid", "down_middle", "tokens", "up_middle", "output", "decoder")
        assert [getattr(found, name) for name in names] == [getattr(config, name) for name in names]
        assert found.eps == 1e-7
        assert imported.problem.description.output_grid == (None if example == "darcy" else (36, 36))
    assert (found.attention, imported.recipe.name) == (config.attention, f"{example}-imported")
    assert imported.card.errors == ()


@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_layers_on_a_graph_and_a_frequency_head_are_accepted(kind: str, golden: Golden, tmp_path: Path) -> None:
    case, layers = golden("simple_transformer_fourier"), golden("gcn_rawlap0" if kind == "gcn" else "gat")
    width = layers.config["out_features"]
    config = LineTransformerConfig.model_validate(
        {"attention": "fourier", "channels": width, "heads": 1, "layers": 2, "feedforward": 24, "norm": "none"}
        | {"graph": {"kind": "graph-convolution" if kind == "gcn" else "graph-attention"}}
        | {"decoder": {"kind": "spectral", "coordinates": False, "channels": 6, "modes": 4, "hidden": 6}}
    )
    graph = {"num_feat_layers": 2, "feat_extract_type": kind, "edge_feats": 3, "n_hidden": width, "n_freq_targets": 1}
    request = written(tmp_path, "burgers", config, json.dumps(case.config | graph))
    state = torch.load(request.file, weights_only=True)
    published = {f"feat_extract.{key}": tensor.float() for key, tensor in layers.state.items()}
    for first in ("feat_extract.gcn_layer0.weight", "feat_extract.gat_layer0.W"):
        if first in published:
            published[first] = published[first][:1]  # the golden layer has two inputs
    assert published.keys() == {key for key in state if key.startswith("feat_extract")}
    torch.save(state | published | {"freq_regressor.0.weight": torch.ones(width, width)}, request.file)
    imported = import_reference(request)
    assert set(imported.assumed) == {"frequency head", "edges"}
    views = reference_views(imported.operator.config, imported.operator.state_dict())
    assert all(torch.equal(views[key], tensor) for key, tensor in published.items())
    assert imported.operator(torch.randn(2, 20)).shape == (2, 20)


def test_scalers_with_strides_are_accepted(golden: Golden, tmp_path: Path) -> None:
    case = golden("fourier_transformer_2d_inverse")
    config = PlaneTransformerConfig(
        grid=(141, 141),
        down_kind="pooling",
        tokens=(11, 11),
        up_kind="deconvolution",
        output=(131, 131),
        channels=12,
        heads=2,
        layers=2,
        feedforward=24,
        norm="none",
        decoder=PointwiseDecoderConfig(),
    )
    strides = {"downsample_mode": "conv", "upsample_mode": "conv", "downscaler_size": None, "upscaler_size": None}
    request = written(tmp_path, "darcy", config, json.dumps(case.config | strides))
    keys = torch.load(request.file, weights_only=True).keys()
    for part, layer in (("downscaler.", "downscaler_conv"), ("upscaler.", "upscaler_deconv")):
        assert {part + key for key in golden(layer).state} == {key for key in keys if key.startswith(part)}
    imported = import_reference(replace(request, normaliser=flat_statistics(tmp_path / "n.npz", 141, 131)))
    found = imported.operator.config
    assert isinstance(found, PlaneTransformerConfig)
    assert (found.tokens, found.output, imported.problem.description.output_grid) == ((11, 11), (131, 131), (131, 131))
    assert imported.operator(torch.ones(1, 141, 141)).shape == (1, 131, 131)


@pytest.mark.parametrize(
    ("side", "cells"), [(36, None), (71, "block j of 71 covers the cells 6j-1 to 6j+4 of the 421")]
)
def test_the_inverse_problem_says_which_cells_its_output_covers(
    side: int, cells: str | None, golden: Golden, tmp_path: Path
) -> None:
    case, request = case_file(golden, tmp_path, "fourier_transformer_2d_inverse")
    assert request.config is not None
    sizes = {"downscaler_size": None, "upscaler_size": [[side, side], [side, side]]}
    request.config.write_text(json.dumps(case.config | sizes))
    imported = import_reference(replace(request, normaliser=flat_statistics(tmp_path / "n.npz", 141, side)))
    points = imported.problem.description.points
    assert points == PROBLEMS["darcy_inverse"].description.points if cells is None else cells in points


@pytest.mark.deep
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
