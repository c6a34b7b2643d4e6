"""Every kind of attention against the published numbers and its formula, and the properties common to all."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.training.nn.published import LINE, PRECISIONS, assert_published, assert_published_gradients, load_published
from training.nn.attention import ATTENTION, HeadAttention, build_attention, causal_attention

B, N, C, H, P = 2, 11, 12, 3, 2
KINDS = [kind for kind in ATTENTION if not kind.startswith("kernel-")]  # see test_kernel_attention
LINEAR_TIME = ["galerkin", "fourier", "linear", "causal"]
MASKED = ["fourier", "softmax", "causal"]
CASES = sorted(path.stem for path in (Path(__file__).parents[2] / "golden").glob("attention_*.npz"))
PREFIXES = ("encoder_layers.0.attn.", "encoder.0.attention.")  # of an attention in the networks
KIND = {"integral": "fourier", "local": "fourier", "global": "linear"}  # further names of the reference


@pytest.fixture
def tokens() -> Tensor:
    return torch.randn(B, N, C, dtype=torch.float64)


@pytest.fixture
def positions() -> Tensor:
    return torch.rand(N, P, dtype=torch.float64)


def build(kind: Any, coordinates: int = P, **options: Any) -> HeadAttention:
    """Return an attention in float64 with every parameter moved from its initial value."""
    torch.manual_seed(0)
    attention = build_attention(kind, C, H, coordinates, gain=1.0, **options).double()
    for parameter in attention.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return attention


def by_hand(attention: HeadAttention, kind: str, x: Tensor, positions: Tensor) -> Tensor:
    """Return the output computed head by head, with the full n x n matrix."""
    width, outputs = C // H, []
    for h in range(H):
        Q, K, V = (
            (x @ layer.weight.T + layer.bias)[..., h * width : (h + 1) * width]
            for layer in (attention.query, attention.key, attention.value)
        )
        first, second = (
            lambda y, norm=norm, h=h: torch.nn.functional.layer_norm(y, (width,)) * norm.weight[h] + norm.bias[h]
            for norm in (attention.first_norm, attention.second_norm)
        )
        Q, K, V = (Q, first(K), second(V)) if kind in {"galerkin", "linear"} else (first(Q), second(K), V)
        Q, K, V = (torch.cat([positions.expand(B, N, P), y], dim=-1) for y in (Q, K, V))
        outputs.append(matrix_by_hand(kind, Q, K) @ V)
    return attention.output(torch.cat(outputs, dim=-1))


def matrix_by_hand(kind: str, Q: Tensor, K: Tensor) -> Tensor:
    if kind == "causal":
        kernel = ((torch.nn.functional.elu(Q) + 1) @ (torch.nn.functional.elu(K) + 1).mT).tril()
        return kernel / (
            kernel.sum(-1, keepdim=True) + 1e-7 * N * (torch.nn.functional.elu(Q) + 1).sum(-1, keepdim=True)
        )
    if kind == "linear":
        return Q.softmax(-1) @ K.softmax(-2).mT / N
    scores = Q @ K.mT
    width = math.sqrt(Q.shape[-1])
    return {"galerkin": scores / N, "fourier": scores / N / width, "softmax": (scores / width).softmax(-1)}[kind]


@PRECISIONS
@pytest.mark.parametrize("name", CASES)
def test_equals_the_published_numbers(name: str, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    case = golden(name)
    reference = case.config
    kind = KIND.get(reference["attention_type"], reference["attention_type"])
    attention = build_attention(
        kind,
        reference["d_model"],
        reference["n_head"],
        reference["pos_dim"],
        norm=reference["norm_type"] if reference["norm"] else "none",
        eps=reference["eps"],
    )
    layout = LINE.model_copy(update={"attention": kind})
    load_published(attention.to(dtype), case.state, PREFIXES, layout)
    inputs = {key: tensor.to(dtype) for key, tensor in case.inputs.items()}
    query = inputs["query" if "query" in inputs else "x"].requires_grad_()
    output = attention(
        query, inputs.get("key"), inputs.get("value"), positions=inputs.get("pos"), mask=inputs.get("mask")
    )
    output.backward(inputs["cotangent"])
    assert_published("output", output, case.outputs["y"])
    assert_published("x", query.grad, case.gradients["x"])
    gradients = {key: case.gradients[f"state/{key}"] for key in case.state}
    assert_published_gradients(attention, gradients, dtype, PREFIXES, layout)


@PRECISIONS
def test_causal_sums_equal_the_published_numbers(dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    case = golden("functional_causal_linear")
    assert_published("output", causal_attention(*(case.inputs[key].to(dtype) for key in "qkv")), case.outputs["y"])


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_formula(kind: str, tokens: Tensor, positions: Tensor) -> None:
    attention = build(kind)
    expected = by_hand(attention, kind, tokens, positions)
    torch.testing.assert_close(attention(tokens, positions=positions), expected)


@pytest.mark.parametrize(
    ("kind", "norm"),
    [case for case in product(KINDS, ["layer", "instance", "none"]) if case != ("causal", "instance")],  # is refused
)
def test_a_gradient_reaches_every_parameter(kind: str, norm: str, tokens: Tensor, positions: Tensor) -> None:
    attention = build(kind, norm=norm)
    attention(tokens, positions=positions).square().sum().backward()
    without_gradient = [
        name for name, parameter in attention.named_parameters() if parameter.grad is None or not parameter.grad.any()
    ]
    assert without_gradient == []


@pytest.mark.parametrize("norm", ["layer", "instance", "none"])
@pytest.mark.parametrize("kind", ["galerkin", "fourier", "linear", "softmax"])
def test_permuted_tokens_give_permuted_outputs(kind: str, norm: str, tokens: Tensor, positions: Tensor) -> None:
    attention, order = build(kind, norm=norm), torch.randperm(N)
    permuted = attention(tokens[:, order], positions=positions[order])
    torch.testing.assert_close(permuted, attention(tokens, positions=positions)[:, order])


@pytest.mark.parametrize("kind", ["galerkin", "fourier", "softmax"])
def test_repeating_every_token_changes_nothing(kind: str, tokens: Tensor, positions: Tensor) -> None:
    """The mixing is a mean over the domain, so a grid refined by repetition gives the same field."""
    attention = build(kind)
    doubled = attention(tokens.repeat_interleave(2, dim=1), positions=positions.repeat_interleave(2, dim=0))
    torch.testing.assert_close(doubled[:, ::2], attention(tokens, positions=positions))


@pytest.mark.parametrize("kind", ["fourier", "causal"])
def test_both_brackets_give_the_same(kind: str) -> None:
    """A mask that hides nothing forbids the linear form and keeps the output. The tokens fill three causal blocks."""
    attention, x = build(kind), torch.randn(B, 150, C, dtype=torch.float64, requires_grad=True)
    positions, everything = torch.rand(150, P, dtype=torch.float64), torch.ones(B, 150, 150, dtype=torch.bool)
    linear, quadratic = attention(x, positions=positions), attention(x, positions=positions, mask=everything)
    torch.testing.assert_close(linear, quadratic)
    cotangent = torch.randn_like(linear)
    gradients = [torch.autograd.grad(output, x, cotangent)[0] for output in (linear, quadratic)]
    torch.testing.assert_close(*gradients)


class Largest(TorchDispatchMode):
    """Record the number of entries of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        made = output if isinstance(output, (tuple, list)) else [output]
        self.entries = max([self.entries, *(tensor.numel() for tensor in made if isinstance(tensor, Tensor))])
        return output


@pytest.mark.parametrize("kind", LINEAR_TIME)
def test_linear_forms_never_make_a_tensor_of_all_pairs(kind: str) -> None:
    attention, tokens = build(kind), 4096
    x = torch.randn(1, tokens, C, dtype=torch.float64, requires_grad=True)
    with Largest() as largest:
        attention(x, positions=torch.rand(tokens, P)).sum().backward()
    assert largest.entries < 30 * tokens * C


@pytest.mark.parametrize("kind", MASKED)
def test_a_hidden_key_has_no_influence(kind: str, tokens: Tensor, positions: Tensor) -> None:
    attention, mask = build(kind), torch.ones(B, N, N, dtype=torch.bool)
    mask[:, :, 4] = False
    other = tokens.clone()
    other[:, 4] = torch.randn(C, dtype=torch.float64)
    first, second = (attention(tokens, x, positions=positions, mask=mask) for x in (tokens, other))
    torch.testing.assert_close(first, second)
    padding = attention(tokens, positions=positions, mask=mask[:, :1].double())
    torch.testing.assert_close(padding, first)


@pytest.mark.parametrize("kind", ["fourier", "softmax", "kernel-elu"])
def test_a_norm_over_all_tokens_refuses_a_mask(kind: str, tokens: Tensor, positions: Tensor) -> None:
    """Hidden tokens would change the output by its own size, and later ones that of causal attention."""
    attention, padding = build(kind, norm="instance"), torch.ones(B, 1, N)
    attention(tokens, positions=positions)
    with pytest.raises(ValueError, match="instance norm accepts no mask: it is over all tokens"):
        attention(tokens, positions=positions, mask=padding)


@pytest.mark.parametrize("kind", ["causal", "kernel-elu"])
def test_causal_attention_refuses_a_norm_over_all_tokens(kind: str) -> None:
    with pytest.raises(ValueError, match="instance norm is over all tokens, later ones, too"):
        build(kind, norm="instance", **({"causal": True} if kind == "kernel-elu" else {}))


@pytest.mark.parametrize("kind", MASKED)
def test_a_query_without_visible_keys_gets_a_finite_output(kind: str, tokens: Tensor) -> None:
    attention, mask = build(kind, coordinates=0), torch.ones(B, N, N)
    mask[:, 3] = 0
    output = attention(tokens, mask=mask)[:, 3]
    values = attention.value(tokens).mean(dim=1)
    torch.testing.assert_close(output, values if kind == "softmax" else torch.zeros_like(values))


@pytest.mark.parametrize("kind", ["galerkin", "linear"])
def test_attention_without_masks_refuses_one(kind: str, tokens: Tensor, positions: Tensor) -> None:
    with pytest.raises(ValueError, match=f"{kind} attention accepts no mask.*fourier, softmax, causal or kernel"):
        build(kind)(tokens, positions=positions, mask=torch.ones(B, N, N))


@pytest.mark.parametrize("kind", ["galerkin", "fourier", "linear", "softmax"])
def test_queries_and_keys_may_differ_in_number_and_position(kind: str, tokens: Tensor, positions: Tensor) -> None:
    attention, keys = build(kind), torch.randn(B, 7, C, dtype=torch.float64)
    key_positions = torch.rand(B, 7, P, dtype=torch.float64)
    output = attention(tokens, keys, positions=positions, key_positions=key_positions)
    assert output.shape == tokens.shape
    order = torch.randperm(7)
    permuted = attention(tokens, keys[:, order], positions=positions, key_positions=key_positions[:, order])
    torch.testing.assert_close(permuted, output)


@pytest.mark.parametrize("coordinates", [1, 3, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_positions_are_of_any_dimension_and_kind(kind: str, coordinates: int, tokens: Tensor) -> None:
    attention, positions = build(kind, coordinates), torch.randint(9, (N, coordinates))
    expected = attention(tokens, positions=positions.double())
    for same in (positions, positions.to(torch.int16), positions.repeat(B, 1, 1), positions.float()[None]):
        torch.testing.assert_close(attention(tokens, positions=same), expected)


@pytest.mark.parametrize("positions", [None, torch.rand(N, 3)])
def test_positions_of_another_dimension_are_refused(positions: Tensor | None, tokens: Tensor) -> None:
    with pytest.raises(ValueError, match=r"expected positions of 2 coordinates but got [03]"):
        build("galerkin")(tokens, positions=positions)


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_multiplies_the_inputs_of_queries_and_keys(kind: str, tokens: Tensor, positions: Tensor) -> None:
    attention, weight = build(kind), torch.rand(B, N, 1, dtype=torch.float64)
    weighted = tokens * weight
    expected = attention(weighted, weighted, tokens, positions=positions)
    torch.testing.assert_close(attention(tokens, positions=positions, weight=weight), expected)


@pytest.mark.parametrize("kind", [*KINDS, "kernel-glu1"])
def test_dropout_keeps_the_mean_and_is_off_in_evaluation(kind: str, tokens: Tensor, positions: Tensor) -> None:
    plain, dropped = build(kind), build(kind, dropout=0.5)
    expected = plain(tokens, positions=positions)
    passes = dropped(tokens.repeat(500, 1, 1), positions=positions).unflatten(0, (500, B))
    error = passes.std(dim=0) / math.sqrt(len(passes))
    assert not torch.allclose(passes[0], passes[1])
    assert ((passes.mean(dim=0) - expected).abs() <= 5 * error + 1e-9).all()
    torch.testing.assert_close(dropped.eval()(tokens, positions=positions), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_halved_precision_stays_near(kind: str, tokens: Tensor, positions: Tensor) -> None:
    attention = build(kind)
    exact = attention(tokens, positions=positions)
    rough = attention.to(torch.bfloat16)(tokens.bfloat16(), positions=positions)
    assert rough.dtype == torch.bfloat16
    assert (rough - exact).norm() < 0.05 * exact.norm()


def test_initial_weights_are_near_a_scaled_identity_and_optionally_symmetric() -> None:
    plain = build_attention("galerkin", 64, 4, 0, gain=1e-3, diagonal=0.5)
    symmetric = build_attention("galerkin", 64, 4, 0, gain=1.0, symmetric=True).query.weight
    bound = 1e-3 * math.sqrt(3 / 64)
    assert (plain.query.weight - 0.5 * torch.eye(64)).abs().max() <= bound
    assert not plain.value.bias.any()
    assert torch.equal(symmetric, symmetric.T)
    assert symmetric.diag().mean().item() == pytest.approx(2e-2, abs=0.15)


def test_without_coordinates_there_is_no_output_projection() -> None:
    assert not any(name.startswith("output") for name in build("galerkin", coordinates=0).state_dict())


@pytest.mark.parametrize("kind", ["cosine", "softmaxx"])
def test_an_unknown_kind_is_refused_by_name(kind: Any) -> None:
    with pytest.raises(ValueError, match=f"galerkin, fourier, linear, softmax, causal, .* but got '{kind}'"):
        build_attention(kind, C, H, P)


def test_an_unknown_norm_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="layer, instance, none but got 'batch'"):
        build_attention("galerkin", C, H, P, norm="batch")


def test_channels_must_fit_the_heads() -> None:
    with pytest.raises(ValueError, match="multiple of heads but got 10 channels and 3 heads"):
        build_attention("galerkin", 10, 3, coordinates=1)


@pytest.mark.usefixtures("unchecked")
def test_arguments_of_other_samples_or_tokens_are_refused_and_not_broadcast(positions: Tensor) -> None:
    """A mask of padding `[batch, key]` was one of the heads where there are as many heads as samples."""
    attention, x, y = build("softmax"), torch.randn(H, N, C).double(), torch.randn(H, N - 1, C).double()
    padding = torch.ones(H, N, dtype=torch.bool)
    wrong: list[dict[str, Tensor]] = [
        {"mask": padding},
        {"mask": padding[:, :, None]},
        {"mask": padding[None]},
        {"mask": padding[:1, None, :1]},
        {"mask": padding[:, None, 1:]},
        {"key": y},
        {"key": x[:1]},
        {"value": x[:1]},
        {"value": y},
        {"positions": positions[:1]},
        {"positions": positions.expand(H + 1, -1, -1)},
        {"weight": torch.ones(C).double()},
        {"weight": torch.ones(H + 1, 1, 1).double()},
        {"key": y, "key_positions": positions[1:], "weight": torch.ones(H, N, 1).double()},
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match=r"^SoftmaxAttention: expected [a-z_]+ \[.* of 3 samples, 11 tokens and"):
            attention(x, **{"positions": positions} | arguments)
    for mask in (padding[:, None], padding[:1, None], padding[:, None].expand(-1, N, -1)):
        expected = attention(x, positions=positions)
        torch.testing.assert_close(attention(x, positions=positions, mask=mask), expected)
