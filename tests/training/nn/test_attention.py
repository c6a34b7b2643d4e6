"""Every attention type against the published numbers and its formula, and what all of them promise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from training.importing.reference_layout import reference_state
from training.nn.attention import ATTENTION, HeadAttention, build_attention, causal_attention
from training.operators import LineTransformerConfig

B, N, C, H, P = 2, 11, 12, 3, 2
KINDS = [kind for kind in ATTENTION if not kind.startswith("kernel-")]  # those have tests of their own, one for all
LINEAR_TIME = ["galerkin", "fourier", "linear", "causal"]
MASKED = ["fourier", "softmax", "causal"]
CASES = sorted(path.stem for path in (Path(__file__).parents[2] / "golden").glob("attention_*.npz"))
OURS = {"integral": "fourier", "local": "fourier", "global": "linear"}  # the reference's further names
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}  # of the largest entry


@pytest.fixture
def tokens() -> Tensor:
    return torch.randn(B, N, C, dtype=torch.float64)


@pytest.fixture
def positions() -> Tensor:
    return torch.rand(N, P, dtype=torch.float64)


def build(kind: Any, coordinates: int = P, **options: Any) -> HeadAttention:
    """An attention in float64 with every parameter away from its special first value."""
    torch.manual_seed(0)
    attention = build_attention(kind, C, H, coordinates, gain=1.0, **options).double()
    for parameter in attention.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return attention


def by_hand(attention: HeadAttention, kind: str, x: Tensor, positions: Tensor) -> Tensor:
    """The sums head by head, with the full n x n matrix."""
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


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_equals_the_published_numbers(name: str, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    case = golden(name)
    theirs = case.config
    attention = build_attention(
        OURS.get(theirs["attention_type"], theirs["attention_type"]),
        theirs["d_model"],
        theirs["n_head"],
        theirs["pos_dim"],
        norm=theirs["norm_type"] if theirs["norm"] else "none",
        eps=theirs["eps"],
    )
    attention.to(dtype).load_state_dict(renamed(case.state))
    inputs = {key: tensor.to(dtype) for key, tensor in case.inputs.items()}
    query = inputs["query" if "query" in inputs else "x"].requires_grad_()
    answer = attention(
        query, inputs.get("key"), inputs.get("value"), positions=inputs.get("pos"), mask=inputs.get("mask")
    )
    answer.backward(inputs["cotangent"])
    assert_published("answer", answer, case.outputs["y"])
    assert_published("x", query.grad, case.gradients["x"])
    gradients = renamed({key: case.gradients[f"state/{key}"] for key in case.state})
    # Some gradients are zero in theory; as sums they round like the others.
    floor = torch.finfo(dtype).eps * max(float(gradient.abs().max()) for gradient in gradients.values())
    for key, gradient in gradients.items():
        assert_published(key, attention.get_parameter(key).grad, gradient, floor)


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    whole = reference_state(
        LineTransformerConfig(), {f"encoder_layers.0.attn.{key}": tensor for key, tensor in state.items()}
    )
    return {key.removeprefix("encoder.0.attention."): tensor for key, tensor in whole.items()}


def assert_published(name: str, ours: Tensor | None, theirs: Tensor, floor: float = 0.0) -> None:
    assert ours is not None, name
    distance = (ours.double() - theirs).abs().max()
    assert distance <= TOLERANCE[ours.dtype] * theirs.abs().max() + floor + 1e-12, name


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_causal_sums_equal_the_published_numbers(dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    case = golden("functional_causal_linear")
    assert_published("answer", causal_attention(*(case.inputs[key].to(dtype) for key in "qkv")), case.outputs["y"])


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_formula(kind: str, tokens: Tensor, positions: Tensor) -> None:
    attention = build(kind)
    expected = by_hand(attention, kind, tokens, positions)
    torch.testing.assert_close(attention(tokens, positions=positions), expected)


@pytest.mark.parametrize("norm", ["layer", "instance", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_reaches_every_parameter(kind: str, norm: str, tokens: Tensor, positions: Tensor) -> None:
    attention = build(kind, norm=norm)
    attention(tokens, positions=positions).square().sum().backward()
    dead = [
        name for name, parameter in attention.named_parameters() if parameter.grad is None or not parameter.grad.any()
    ]
    assert dead == []


@pytest.mark.parametrize("norm", ["layer", "instance", "none"])
@pytest.mark.parametrize("kind", ["galerkin", "fourier", "linear", "softmax"])
def test_permuted_tokens_give_permuted_answers(kind: str, norm: str, tokens: Tensor, positions: Tensor) -> None:
    attention, order = build(kind, norm=norm), torch.randperm(N)
    permuted = attention(tokens[:, order], positions=positions[order])
    torch.testing.assert_close(permuted, attention(tokens, positions=positions)[:, order])


@pytest.mark.parametrize("kind", ["galerkin", "fourier", "softmax"])
def test_repeating_every_token_changes_nothing(kind: str, tokens: Tensor, positions: Tensor) -> None:
    """The mixing is a mean over the domain, so a grid refined by repetition gives the same field."""
    attention = build(kind)
    doubled = attention(tokens.repeat_interleave(2, dim=1), positions=positions.repeat_interleave(2, dim=0))
    torch.testing.assert_close(doubled[:, ::2], attention(tokens, positions=positions))


@given(tokens=st.integers(1, 200), seen=st.integers(0, 199))
@settings(max_examples=20, deadline=None)
def test_causal_attention_does_not_look_ahead(tokens: int, seen: int) -> None:
    seen = min(seen, tokens - 1)
    attention, x = build("causal", coordinates=0), torch.randn(1, tokens, C, dtype=torch.float64)
    changed = torch.cat([x[:, : seen + 1], torch.randn(1, tokens - seen - 1, C, dtype=torch.float64)], dim=1)
    torch.testing.assert_close(attention(changed)[:, : seen + 1], attention(x)[:, : seen + 1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["fourier", "causal"])
def test_both_brackets_give_the_same(kind: str) -> None:
    """A mask that hides nothing forbids the linear form and changes no answer; three blocks of causal attention."""
    attention, x = build(kind), torch.randn(B, 150, C, dtype=torch.float64, requires_grad=True)
    places, everything = torch.rand(150, P, dtype=torch.float64), torch.ones(B, 150, 150, dtype=torch.bool)
    linear, quadratic = attention(x, positions=places), attention(x, positions=places, mask=everything)
    torch.testing.assert_close(linear, quadratic)
    cotangent = torch.randn_like(linear)
    gradients = [torch.autograd.grad(answer, x, cotangent)[0] for answer in (linear, quadratic)]
    torch.testing.assert_close(*gradients)


class Largest(TorchDispatchMode):
    """Notes the number of entries of the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        made = answer if isinstance(answer, (tuple, list)) else [answer]
        self.entries = max([self.entries, *(tensor.numel() for tensor in made if isinstance(tensor, Tensor))])
        return answer


@pytest.mark.parametrize("kind", LINEAR_TIME)
def test_linear_forms_never_make_a_tensor_of_all_pairs(kind: str) -> None:
    attention, tokens = build(kind), 4096
    x = torch.randn(1, tokens, C, dtype=torch.float64, requires_grad=True)
    with Largest() as largest:
        attention(x, positions=torch.rand(tokens, P)).sum().backward()
    assert largest.entries < 30 * tokens * C


@pytest.mark.parametrize("kind", LINEAR_TIME)
def test_linear_forms_take_many_tokens(kind: str) -> None:
    attention = build_attention(kind, 16, 2, 1)
    with torch.no_grad():
        answer = attention(torch.randn(1, 65536, 16), positions=torch.arange(65536)[:, None] / 65536)
    assert answer.isfinite().all()


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


@pytest.mark.parametrize("kind", MASKED)
def test_a_query_that_sees_nothing_gets_a_finite_answer(kind: str, tokens: Tensor) -> None:
    attention, mask = build(kind, coordinates=0), torch.ones(B, N, N)
    mask[:, 3] = 0
    answer = attention(tokens, mask=mask)[:, 3]
    values = attention.value(tokens).mean(dim=1)
    torch.testing.assert_close(answer, values if kind == "softmax" else torch.zeros_like(values))


@pytest.mark.parametrize("kind", ["galerkin", "linear"])
def test_types_that_take_no_mask_say_so(kind: str, tokens: Tensor, positions: Tensor) -> None:
    with pytest.raises(ValueError, match=f"{kind} attention accepts no mask.*fourier, softmax, causal or kernel"):
        build(kind)(tokens, positions=positions, mask=torch.ones(B, N, N))


@pytest.mark.parametrize("kind", ["galerkin", "fourier", "linear", "softmax"])
def test_queries_and_keys_may_differ_in_number_and_place(kind: str, tokens: Tensor, positions: Tensor) -> None:
    attention, keys = build(kind), torch.randn(B, 7, C, dtype=torch.float64)
    places = torch.rand(B, 7, P, dtype=torch.float64)
    answer = attention(tokens, keys, positions=positions, key_positions=places)
    assert answer.shape == tokens.shape
    order = torch.randperm(7)
    permuted = attention(tokens, keys[:, order], positions=positions, key_positions=places[:, order])
    torch.testing.assert_close(permuted, answer)


def test_causal_attention_needs_a_key_for_every_query(tokens: Tensor, positions: Tensor) -> None:
    with pytest.raises(ValueError, match="as many keys as queries but got 7, 11"):
        build("causal")(tokens, tokens[:, :7], positions=positions, key_positions=positions[:7])


@pytest.mark.parametrize("coordinates", [1, 3, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_positions_are_of_any_dimension_and_kind(kind: str, coordinates: int, tokens: Tensor) -> None:
    attention, places = build(kind, coordinates), torch.randint(9, (N, coordinates))
    expected = attention(tokens, positions=places.double())
    for same in (places, places.to(torch.int16), places.repeat(B, 1, 1), places.float()[None]):
        torch.testing.assert_close(attention(tokens, positions=same), expected)


@pytest.mark.parametrize("positions", [None, torch.rand(N, 3)])
def test_positions_must_have_the_dimension_that_was_said(positions: Tensor | None, tokens: Tensor) -> None:
    with pytest.raises(ValueError, match=r"expected positions of 2 coordinates but got [03]"):
        build("galerkin")(tokens, positions=positions)


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_multiplies_what_queries_and_keys_are_made_of(kind: str, tokens: Tensor, positions: Tensor) -> None:
    attention, weight = build(kind), torch.rand(B, N, 1, dtype=torch.float64)
    weighted = tokens * weight
    expected = attention(weighted, weighted, tokens, positions=positions)
    torch.testing.assert_close(attention(tokens, positions=positions, weight=weight), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_is_off_in_evaluation_unless_the_reference_is_imitated(
    kind: str, tokens: Tensor, positions: Tensor
) -> None:
    plain, ours, theirs = build(kind), build(kind, dropout=0.5), build(kind, dropout=0.5, dropout_in_evaluation=True)
    expected = plain(tokens, positions=positions)
    assert not torch.allclose(ours(tokens, positions=positions), expected)
    torch.testing.assert_close(ours.eval()(tokens, positions=positions), expected)
    passes = torch.stack([theirs.eval()(tokens, positions=positions) for _ in range(500)])
    assert not torch.allclose(passes[0], passes[1])
    error = passes.std(dim=0) / math.sqrt(len(passes))
    assert ((passes.mean(dim=0) - expected).abs() <= 5 * error + 1e-9).all()


@pytest.mark.parametrize("kind", KINDS)
def test_halved_precision_stays_near(kind: str, tokens: Tensor, positions: Tensor) -> None:
    attention = build(kind)
    exact = attention(tokens, positions=positions)
    rough = attention.to(torch.bfloat16)(tokens.bfloat16(), positions=positions)
    assert rough.dtype == torch.bfloat16
    assert (rough - exact).norm() < 0.05 * exact.norm()


def test_initial_weights_are_small_near_a_scaled_identity_and_symmetric_if_asked() -> None:
    plain = build_attention("galerkin", 64, 4, 0, gain=1e-3, diagonal=0.5)
    symmetric = build_attention("galerkin", 64, 4, 0, gain=1.0, symmetric=True).query.weight
    bound = 1e-3 * math.sqrt(3 / 64)
    assert (plain.query.weight - 0.5 * torch.eye(64)).abs().max() <= bound
    assert not plain.value.bias.any()
    assert torch.equal(symmetric, symmetric.T)
    assert symmetric.diag().mean().item() == pytest.approx(2e-2, abs=0.15)


def test_without_coordinates_nothing_projects_the_answer() -> None:
    assert not any(name.startswith("output") for name in build("galerkin", coordinates=0).state_dict())


@pytest.mark.parametrize("kind", ["cosine", "softmaxx"])
def test_an_unknown_type_is_refused_by_name(kind: Any) -> None:
    with pytest.raises(ValueError, match=f"galerkin, fourier, linear, softmax, causal, .* but got '{kind}'"):
        build_attention(kind, C, H, P)


def test_an_unknown_norm_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="layer, instance, none but got 'batch'"):
        build_attention("galerkin", C, H, P, norm="batch")


def test_channels_must_fit_the_heads() -> None:
    with pytest.raises(ValueError, match="multiple of heads but got 10 channels and 3 heads"):
        build_attention("galerkin", 10, 3, coordinates=1)
