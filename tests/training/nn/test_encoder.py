"""The encoder layer: the published numbers, its options, and its graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.export import Dim

import export.graphs.to_onnx
import export.graphs.to_torchscript
from export.graphs.deployable import one_trace, shape_checks_off
from tests.training.nn.published import LINE, PRECISIONS, assert_published, assert_published_gradients, load_published
from training.nn.attention import ATTENTION, SoftmaxAttention, build_attention
from training.nn.encoder import EncoderConfig, EncoderLayer, LocalMixing, encoder_stack

CASES = sorted(path.stem for path in (Path(__file__).parents[2] / "golden").glob("encoder_layer_*.npz"))
PREFIXES = ("encoder_layers.0.", "encoder.0.")  # of an encoder layer in the networks


def small(kind: Any = "galerkin", coordinates: int = 1, **options: Any) -> EncoderLayer:
    torch.manual_seed(0)
    return EncoderLayer(build_attention(kind, 16, 2, coordinates, gain=1.0), 16, 32, **options)


@PRECISIONS
@pytest.mark.parametrize("name", CASES)
def test_equals_the_published_numbers(name: str, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    case = golden(name)
    layer = published(case.config).to(dtype)
    layout = LINE.model_copy(update={"attention": case.config["attention_type"]})
    load_published(layer, case.state, PREFIXES, layout)
    layer.eval()
    inputs = {key: tensor.to(dtype) for key, tensor in case.inputs.items()}
    tokens = inputs["x"].requires_grad_()
    output = layer(tokens, inputs["pos"])
    output.backward(inputs["cotangent"])
    assert_published("output", output, case.outputs["y"])
    assert_published("x", tokens.grad, case.gradients["x"])
    stored = {key: case.gradients[f"state/{key}"] for key in case.state if f"state/{key}" in case.gradients}
    assert len(stored) == len(list(layer.parameters())) + heads_beyond_the_first(case)
    assert_published_gradients(layer, stored, dtype, PREFIXES, layout)


def published(reference: dict[str, Any]) -> EncoderLayer:
    attention = build_attention(
        reference["attention_type"],
        reference["d_model"],
        reference["n_head"],
        reference["pos_dim"],
        norm=reference["norm_type"] if reference["attn_norm"] else "none",
        eps=reference["norm_eps"],
    )
    return EncoderLayer(
        attention,
        reference["d_model"],
        reference["dim_feedforward"],
        norm="post" if reference["layer_norm"] else "none",
        activation=reference["activation_type"],
        batch_norm=reference["batch_norm"],
        eps=reference["norm_eps"],
    )


def heads_beyond_the_first(case: Any) -> int:
    """Return the number of additional tensors of the reference, which has a weight and a bias per head and norm."""
    return 4 * (case.config["n_head"] - 1) if case.config["attn_norm"] else 0


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_the_residual_branch_may_be_subtracted(norm: Any) -> None:
    plus, minus = small(norm=norm), small(norm=norm, residual="minus")
    for layer in (plus, minus):
        nn.init.zeros_(layer.feedforward[2].weight)  # leaves the mixing branch alone
        nn.init.zeros_(layer.feedforward[2].bias)
    tokens, positions = torch.randn(2, 9, 16), torch.rand(9, 1)
    inner = plus.norm1(tokens) if norm == "pre" else tokens
    mixed = plus.attention(inner, positions=positions)
    after = (lambda x: plus.norm2(plus.norm1(x))) if norm == "post" else (lambda x: x)
    torch.testing.assert_close(plus(tokens, positions), after(tokens + mixed))
    torch.testing.assert_close(minus(tokens, positions), after(tokens - mixed))


def test_mask_and_weight_reach_the_attention() -> None:
    layer, tokens = small("fourier", coordinates=0, norm="none"), torch.randn(2, 9, 16)
    blind = layer(tokens, mask=torch.zeros(2, 9, 9))
    torch.testing.assert_close(blind, tokens + layer.feedforward(tokens))
    assert not torch.allclose(layer(tokens, weight=torch.rand(2, 9, 1)), layer(tokens))


def test_batch_norm_takes_statistics_over_batch_and_tokens() -> None:
    layer = small(coordinates=0, batch_norm=True)
    layer(5 + torch.randn(4, 50, 16))
    hidden = layer.feedforward[1](torch.randn(4 * 50, 32))
    torch.testing.assert_close(hidden.mean(dim=0), torch.zeros(32), rtol=0, atol=1e-5)
    torch.testing.assert_close(hidden.var(dim=0), torch.ones(32), rtol=0.02, atol=0)


@pytest.mark.parametrize("rates", [{"dropout": 0.5}, {"feedforward_dropout": 0.5}])
def test_dropout_is_off_in_evaluation(rates: dict[str, float]) -> None:
    layer, plain, tokens = small(coordinates=0, **rates), small(coordinates=0), torch.randn(2, 9, 16)
    assert not torch.allclose(layer(tokens), plain(tokens))
    torch.testing.assert_close(layer.eval()(tokens), plain(tokens))


@pytest.mark.parametrize("identical", [True, False])
def test_layers_start_equal_only_if_configured_and_never_share_weights(identical: bool) -> None:
    config = EncoderConfig(channels=16, heads=2, layers=3, feedforward=32, local=3, identical=identical)
    stack = encoder_stack(config, 1, lambda: LocalMixing(16, (9,), config.local))
    first, last = stack[0], stack[2]
    assert torch.equal(first.attention.query.weight, last.attention.query.weight) is identical
    assert torch.equal(first.local.convolution.weight, last.local.convolution.weight) is identical
    assert len({parameter.data_ptr() for parameter in stack.parameters()}) == len(list(stack.parameters()))


def test_a_config_decides_everything_about_a_layer() -> None:
    config = EncoderConfig(
        attention="softmax",
        attention_norm="instance",
        attention_dropout=0.5,
        norm="post",
        eps=1e-3,
        gain=0.5,
        diagonal=1.0,
        symmetric=True,
        activation="gelu",
        batch_norm=True,
        residual="minus",
        dropout=0.1,
        feedforward_dropout=0.2,
    )
    layer = encoder_stack(config, 2)[0]
    attention = layer.attention
    assert isinstance(attention, SoftmaxAttention)
    assert type(attention.first_norm).__name__ == "HeadInstanceNorm"
    assert (attention.rate, attention.eval().rate, attention.coordinates) == (0.5, 0.0, 2)
    assert attention.first_norm.eps == layer.norm1.eps == config.eps
    assert torch.equal(attention.query.weight, attention.query.weight.T)
    assert (layer.post, layer.minus, layer.local) == (True, True, None)
    assert [type(part).__name__ for part in layer.feedforward[1]] == ["GELU", "Dropout", "BatchNorm1d"]
    assert (layer.dropout.p, layer.feedforward[1].dropout.p) == (0.1, 0.2)


@pytest.mark.parametrize(
    "fault", [{"attention": "cosine"}, {"attention_norm": "batch"}, {"norm": "attention"}, {"residual": "times"}]
)
def test_a_config_refuses_unknown_names_and_lists_the_known(fault: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"(Input should be|expected a kind of attention among) .*\w+"):
        EncoderConfig(**fault)


@pytest.mark.parametrize("fault", [{"norm": "attention"}, {"residual": "times"}, {"activation": "tanh"}])
def test_a_layer_refuses_unknown_names_and_lists_the_known(fault: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"{next(iter(fault))} among \w+, .* but got '\w+'"):
        small(**fault)


class EveryType(nn.Module):
    """One layer of every kind, and one of instance norm, in one graph: separate exports take six times as long."""

    def __init__(self) -> None:
        super().__init__()
        kinds = [kind for kind in ATTENTION if not kind.startswith("kernel-")]
        cases = [*((kind, "layer") for kind in (*kinds, "kernel-aoglu3", "kernel-random")), ("softmax", "instance")]
        self.layers = nn.ModuleDict(
            {
                f"{kind}, {norm} norm": EncoderLayer(
                    build_attention(kind, 16, 2, 2, gain=1.0, norm=norm), 16, 32, batch_norm=True
                )
                for kind, norm in cases
            }
        )

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        return tuple(layer(tokens, tokens[..., :2]) for layer in self.layers.values())


@pytest.mark.deep
def test_graphs_accept_every_number_of_tokens() -> None:
    module = EveryType().eval()
    with shape_checks_off(), export.graphs.to_torchscript.quiet():
        traced = torch.jit.freeze(torch.jit.trace(module, torch.ones(2, 70, 16), check_trace=False))
    session = onnx_session(module)
    for batch, tokens in ((1, 5), (3, 64), (2, 333)):
        x = torch.randn(batch, tokens, 16)
        with torch.no_grad(), export.graphs.to_torchscript.quiet():
            outputs = zip(module(x), traced(x), session.run(None, {"tokens": x.numpy()}), strict=True)
        for name, (eager, torchscript, onnx) in zip(module.layers, outputs, strict=True):
            torch.testing.assert_close(torchscript, eager, rtol=1e-5, atol=1e-5, msg=f"{name}, TorchScript")
            torch.testing.assert_close(torch.from_numpy(onnx), eager, rtol=1e-5, atol=1e-5, msg=f"{name}, ONNX")


def onnx_session(module: EveryType) -> onnxruntime.InferenceSession:
    results = len(module.layers)
    with shape_checks_off(), export.graphs.to_onnx.quiet(), one_trace(export.graphs.to_onnx.OPSET, results):
        program = torch.onnx.export(
            module,
            (torch.ones(2, 70, 16),),
            dynamo=True,
            dynamic_shapes=({0: Dim("batch", min=1, max=64), 1: Dim("token", min=2, max=100_000)},),
            input_names=["tokens"],
            opset_version=export.graphs.to_onnx.OPSET,
            external_data=False,
            verbose=False,
        )
    assert program is not None
    return onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 10, "heads": 4}, "a multiple of 4 heads but got 10"),
        ({"heads": 0}, "greater than 0"),
        ({"layers": -1}, "greater than or equal to 0"),
        ({"dropout": 1.5}, "less than or equal to 1"),
        ({"local": 4}, "an odd stencil in local but got 4"),
        ({"causal": True}, "galerkin attention has no causal form"),
        ({"attention": "causal", "attention_norm": "instance"}, "instance norm is over all tokens, later ones, too"),
    ],
)
def test_options_that_build_no_layer_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        EncoderConfig(**options)
