"""Graph features, scalers with strides and residual blocks against the golden vectors, and in networks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import onnxruntime
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from export.graphs import to_onnx
from export.graphs.deployable import one_trace, shape_checks_off
from research.cao2021.graphs import (
    GraphAttentionConfig,
    GraphAttentions,
    GraphConvolutionConfig,
    GraphConvolutions,
    GraphFeaturesConfig,
    line_laplacians,
)
from research.cao2021.layers import (
    DeconvolutionUpscaler,
    FrequencyHead,
    FrequencyHeadConfig,
    PoolingDownscaler,
    ResidualBlock,
    deconvolved,
    pooled,
)
from research.cao2021.transformers import LineTransformerConfig, PlaneTransformerConfig
from tests.training.nn.published import PRECISIONS, assert_published, assert_published_gradients
from training.nn.decoders import SpectralDecoderConfig
from training.operators import build

NAMES = {
    r"conv\.0\.weight": "convolution.0.weight",
    r"conv1\.1\.weight": "convolution.3.weight",
    r"res\.shortcut\.(\w+)": r"shortcut.\1",
    r"edge_learner\.lap_conv1\.conv\.0\.weight": "edges.first.convolution.0.weight",
    r"edge_learner\.lap_conv2\.conv\.0\.weight": "edges.second.convolution.0.weight",
    r"g(?:cn|at)_layer0\.(\w+)": r"layers.0.\1",
    r"g(?:cn|at)_layers\.0\.(\w+)": r"layers.1.\1",
    r"downsample\.(\d)\.conv0\.conv\.0\.weight": r"\1.stem.convolution.0.weight",
    r"downsample\.(\d)\.conv1\.conv\.0\.weight": r"\1.chain.0.convolution.0.weight",
    r"downsample\.(\d)\.conv2\.conv\.0\.weight": r"\1.chain.1.convolution.0.weight",
    r"downsample\.(\d)\.conv3\.conv\.0\.weight": r"\1.chain.2.convolution.0.weight",
    r"upsample\.0\.deconv(\d)\.(\w+)": r"deconvolutions.\1.\2",
    r"upsample\.1\.deconv0\.(\w+)": r"deconvolutions.2.\1",
    r"upsample\.1\.deconv1\.(\w+)": r"deconvolutions.3.\1",
    r"(layers\.\d)\.W": r"\1.weight",
    r"(layers\.\d)\.a": r"\1.score",
}


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return entries of the reference under our names; linear maps at a point are convolutions here."""
    found = {}
    for key, tensor in state.items():
        name = key
        for pattern, ours in NAMES.items():
            name = re.sub(f"^{pattern}$", ours, name)
        found[name] = tensor[..., None, None] if name == "shortcut.weight" else tensor
    return found


def assert_exact(module: nn.Module, case: Any, inputs: Mapping[str, Tensor], cotangent: Tensor, y: Tensor) -> None:
    """Compare output and gradients with the reference's."""
    module.double().load_state_dict(renamed(case.state))
    dtype = next(iter(inputs.values())).dtype
    output = module.to(dtype).eval()(*inputs.values())
    assert_published("output", output, y)
    output.backward(cotangent.to(dtype))
    gradients = {key: case.gradients[f"state/{key}"] for key in case.state}
    assert_published_gradients(module, renamed(gradients), dtype)


def given(case: Any, key: str, dtype: torch.dtype) -> Tensor:
    return case.inputs[key].to(dtype).requires_grad_()


@PRECISIONS
@pytest.mark.parametrize("name", ["res1_bb0_silu", "res1_bb1_relu", "res0_bb1_silu"])
def test_a_residual_block_is_the_published_one(name: str, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    case = golden(f"conv2d_resblock_{name}")
    block = ResidualBlock(
        case.config["in_dim"],
        case.config["out_dim"],
        residual=case.config["residual"],
        double=case.config["basic_block"],
        activation=case.config["activation_type"],
    )
    x = given(case, "x", dtype)
    assert_exact(block, case, {"x": x}, case.inputs["cotangent"], case.outputs["y"])
    assert_published("x", x.grad, case.gradients["x"])


@PRECISIONS
@pytest.mark.parametrize(
    ("name", "make"),
    [("downscaler_conv", lambda: PoolingDownscaler(1, 7)), ("upscaler_deconv", lambda: DeconvolutionUpscaler(6))],
    ids=["pooling", "deconvolution"],
)
def test_a_scaler_with_strides_is_the_published_one(
    name: str, make: Callable[[], nn.Module], dtype: torch.dtype, golden: Callable[[str], Any]
) -> None:
    case, layer = golden(name), make()
    x = case.inputs["x"].movedim(-1, 1).to(dtype).requires_grad_()
    cotangent, y = (tensor.movedim(-1, 1) for tensor in (case.inputs["cotangent"], case.outputs["y"]))
    assert_exact(layer, case, {"x": x}, cotangent, y)
    assert_published("x", x.grad, case.gradients["x"].movedim(-1, 1))
    size = pooled if isinstance(layer, PoolingDownscaler) else deconvolved
    assert tuple(map(size, x.shape[2:])) == y.shape[2:]


@PRECISIONS
@pytest.mark.parametrize("name", ["gcn_rawlap0", "gcn_rawlap1", "gat"])
def test_graph_features_are_the_published_ones(name: str, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    case = golden(name)
    sizes = case.config["node_feats"], case.config["out_features"]
    layers: nn.Module = GraphAttentions(GraphAttentionConfig(activate=case.config["activation"]), *sizes)
    if name != "gat":
        keep = case.config["raw_laplacian"]
        layers = GraphConvolutions(GraphConvolutionConfig(powers=case.config["edge_feats"], keep=keep), *sizes)
    x, edges = given(case, "x", dtype), case.inputs["edge"].to(dtype)
    assert_exact(layers, case, {"x": x, "edges": edges}, case.inputs["cotangent"], case.outputs["y"])
    assert_published("x", x.grad, case.gradients["x"])


def test_the_powers_of_the_laplacian_reach_as_many_neighbours() -> None:
    for periodic, ends in ((False, [1, 2]), (True, [1, 2, 8, 9])):
        first, second = line_laplacians(torch.arange(10), 2, torch.float64, periodic=periodic)[0].unbind(-1)
        torch.testing.assert_close(second, first @ first)
        assert second[0].nonzero().flatten().tolist() == [0, *ends]
        values = torch.linalg.eigvalsh(first)
        assert values.min().abs() < 1e-12
        assert values.max() <= 2 + 1e-12


def test_graph_layers_do_not_depend_on_the_order_of_the_nodes() -> None:
    edges, order = line_laplacians(torch.arange(12), 1, torch.float32), torch.randperm(12)
    x, layers = torch.randn(3, 12, 2), GraphAttentions(GraphAttentionConfig(layers=3), 2, 5).eval()
    permuted = layers(x[:, order], edges[:, order][:, :, order])
    torch.testing.assert_close(permuted, layers(x, edges)[:, order])


def test_the_frequency_head_sees_tokens_alone_or_in_bulk() -> None:
    x = torch.randn(2, 20, 8)
    alone = FrequencyHead(FrequencyHeadConfig(targets=2, length=3), 8).eval()
    bulk = FrequencyHead(FrequencyHeadConfig(targets=2, length=3, points=20), 8).eval()
    changed = torch.cat([x[:, :3], torch.zeros(2, 17, 8)], dim=1)
    assert alone(x).shape == bulk(x).shape == (2, 3, 2)
    assert torch.equal(alone(changed), alone(x))
    assert not torch.allclose(bulk(changed), bulk(x))


SMALL: dict[str, Any] = {"layers": 1, "channels": 8, "heads": 2, "feedforward": 12, "gain": 0.5}
SPECTRAL = SpectralDecoderConfig(channels=4, modes=3, hidden=6)
STRIDES: dict[str, Any] = {"grid": (85, 40), "tokens": (8, 5), "output": (83, 35)}
STRIDES |= {"down_kind": "pooling", "up_kind": "deconvolution"}
SAME: dict[str, Any] = {"grid": (9, 10), "tokens": (9, 10), "output": (9, 10), "boundary": "free"}
NETWORKS = [
    (LineTransformerConfig(graph=GraphConvolutionConfig(), decoder=SPECTRAL, **SMALL), (33,), (33,)),
    (LineTransformerConfig(graph=GraphAttentionConfig(), periodic=True, decoder=SPECTRAL, **SMALL), (40,), (40,)),
    (LineTransformerConfig(decoder=FrequencyHeadConfig(length=5), **SMALL), (40,), (5,)),
    (LineTransformerConfig(decoder=FrequencyHeadConfig(length=5, points=24), **SMALL), (24,), (5,)),
    (PlaneTransformerConfig(boundary="free", decoder=SPECTRAL, **STRIDES, **SMALL), (30, 41), (83, 35)),
    (PlaneTransformerConfig(residual_blocks=2, decoder=SPECTRAL, **SAME, **SMALL), (9, 12), (9, 12)),
]


@pytest.mark.parametrize(("config", "sides", "output"), NETWORKS, ids=lambda one: getattr(one, "kind", None))
def test_networks_with_these_layers_are_trained(config: Any, sides: tuple[int, ...], output: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network = build(config)
    found = network(torch.randn(3, *sides))
    assert found.shape == (3, *output)
    found.square().mean().backward()
    assert [name for name, one in network.named_parameters() if one.grad is None or not one.grad.any()] == []


class Lines(nn.Module):
    """A network of every kind of layer, in one graph: separate exports take longer."""

    def __init__(self) -> None:
        super().__init__()
        self.networks = nn.ModuleList([build(config) for config, *_ in NETWORKS[:3]])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(network(x) for network in self.networks)


@pytest.mark.deep
def test_a_graph_of_operators_accepts_lines_that_were_not_traced() -> None:
    lines = Lines().eval().requires_grad_(requires_grad=False)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("point", min=8)}
    with shape_checks_off(), to_onnx.quiet(), one_trace(to_onnx.OPSET, len(lines.networks)):
        program = torch.onnx.export(
            lines,
            (torch.randn(2, 19),),
            dynamic_shapes=(axes,),
            dynamo=True,
            opset_version=to_onnx.OPSET,
            verbose=False,
        )
    assert program is not None
    graph = program.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    for shape in ((1, 64), (3, 33)):
        x = torch.randn(shape)
        found = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        for one, expected in zip(found, lines(x), strict=True):
            torch.testing.assert_close(torch.from_numpy(one), expected, rtol=1e-4, atol=1e-5)


def test_recipes_name_the_layers_by_their_kind() -> None:
    adapter = TypeAdapter[Any](GraphFeaturesConfig)
    assert adapter.validate_python({"kind": "graph-attention", "layers": 3}) == GraphAttentionConfig(layers=3)
    with pytest.raises(ValidationError, match="powers"):
        adapter.validate_python({"kind": "graph-attention", "powers": 2})
    table = {"graph": {"kind": "graph-convolution"}, "decoder": {"kind": "frequency", "length": 7}}
    assert LineTransformerConfig.model_validate(table).decoder == FrequencyHeadConfig(length=7)


def test_sizes_that_strides_do_not_make_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"expected tokens and output \(\(8, 5\), \(83, 35\)\)"):
        PlaneTransformerConfig(decoder=SPECTRAL, **(STRIDES | {"tokens": (8, 6)}), **SMALL)
    with pytest.raises(ValueError, match="more channels than the 3 edge features but got 3"):
        GraphConvolutions(GraphConvolutionConfig(), 2, 3)
    with pytest.raises(ValueError, match="padding 1"):
        ResidualBlock(2, 3, padding=2, residual=True)
