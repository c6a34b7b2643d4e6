"""Attention of rank 1 as a contextual mapping: the bounds of the construction, and the limits of hardmax."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from export.graphs.deployable import shape_checks_off
from research.memorisation.contextual_mapping import contextual_mapping, hidden_from_hardmax, separation
from research.memorisation.low_rank import LowRankAttention, boltzmann, hardmax

D = 5


def sequences(seed: int, size: int, count: int, length: int, channels: int) -> Tensor:
    """Return random sequences of different tokens from one random vocabulary of `size`."""
    generator = torch.Generator().manual_seed(seed)
    vocabulary = torch.randn(size, channels, dtype=torch.float64, generator=generator)
    chosen = [torch.randperm(size, generator=generator)[:length] for _ in range(count)]
    return torch.stack([vocabulary[indices] for indices in chosen])


def exact_context(attention: LowRankAttention, sequence: Tensor, k: int) -> Decimal:
    """Return the context of token k along the output vector, the sum of p_i W_V x_i, in decimal arithmetic."""
    q, key, value = (
        [dot(layer.weight[0], token) for token in sequence]
        for layer in (attention.query, attention.key, attention.value)
    )
    weights = [(q[k] * each).exp() for each in key]
    return sum(w * v for w, v in zip(weights, value, strict=True)) / sum(weights)


def dot(a: Tensor, b: Tensor) -> Decimal:
    return sum((Decimal(x) * Decimal(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)), Decimal(0))


@given(seed=st.integers(0, 2**31), size=st.integers(3, 6), length=st.integers(1, 3), channels=st.integers(1, 4))
@settings(max_examples=10, deadline=None)
def test_the_construction_is_bounded_and_separates_contexts(seed: int, size: int, length: int, channels: int) -> None:
    """In as many digits as the bound needs: distances like exp(-1000) are below the rounding of any float."""
    data = sequences(seed, size, 4, length, channels)
    assume(len(data.flatten(0, 1).unique(dim=0)) > 1)  # all sequences may have drawn the same single token
    found = contextual_mapping(data, draws=512, generator=torch.Generator().manual_seed(seed))
    attention = found.attention
    assert all(torch.linalg.matrix_rank(layer.weight) == 1 for layer in attention.children())
    with torch.no_grad():
        assert attention(data).norm(dim=-1).max() <= found.radius * (1 + 1e-12)  # rounding
    assert -math.inf < found.log_distance <= math.log(separation(data).distance / 2)
    with localcontext() as context:
        context.prec = 60 + int(-min(found.log_distance, 0))
        length_of_output = Decimal(attention.output.weight.norm().item())
        sets = [{tuple(token.tolist()) for token in sequence} for sequence in data]
        for (i, k), (j, m) in itertools.combinations(itertools.product(range(len(data)), range(length)), 2):
            if not torch.equal(data[i, k], data[j, m]):
                moved = attention(data)
                assert (moved[i, k] - moved[j, m]).norm().log() >= found.log_distance
            elif sets[i] != sets[j]:
                apart = exact_context(attention, data[i], k) - exact_context(attention, data[j], m)
                assert (abs(apart) * length_of_output).ln() >= Decimal(found.log_distance)


@pytest.mark.parametrize("seed", range(5))
def test_softer_scores_separate_beyond_rounding(seed: int) -> None:
    """All 20 sets of three of six tokens; the same weights under hardmax merge most."""
    generator = torch.Generator().manual_seed(seed)
    vocabulary = torch.randn(6, D, dtype=torch.float64, generator=generator)
    data = vocabulary[torch.tensor(list(itertools.combinations(range(6), 3)))]
    found = contextual_mapping(data, score_gap=0.3, generator=generator)
    assert found.log_distance == -math.inf
    attention = found.attention
    soft = attention(data).flatten(0, 1)
    assert torch.pdist(soft).min() > 1e-8
    assert soft.norm(dim=-1).max() <= found.radius * (1 + 1e-12)  # rounding
    attention.hard = True
    assert len(attention(data).flatten(0, 1).detach().round(decimals=9).unique(dim=0)) <= 36


@pytest.mark.parametrize("heads", [1, 2, 8])
@pytest.mark.parametrize("rank", [1, 3, D])
def test_hardmax_merges_contexts_that_softmax_separates(rank: int, heads: int) -> None:
    data = hidden_from_hardmax(D)
    for seed in range(20):
        torch.manual_seed(seed)
        hard, soft = (LowRankAttention(D, rank, heads, hard=each).double() for each in (True, False))
        soft.load_state_dict(hard.state_dict())
        for token in (0, 3):
            merged, apart = (attention(data)[:, token] for attention in (hard, soft))
            torch.testing.assert_close(merged[0], merged[1], rtol=0, atol=1e-12)
            assert (apart[0] - apart[1]).norm() > 1e-9


def test_hardmax_merges_contexts_of_equal_scores() -> None:
    attention = LowRankAttention(D, hard=True).double()
    attention.query.weight.data.zero_()
    output = attention(hidden_from_hardmax(D))
    torch.testing.assert_close(output[0, 0], output[1, 0])


def test_hardmax_gives_equal_weights_to_equal_scores() -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0], [2.0, 1.0, 0.0]])
    assert torch.equal(hardmax(scores), torch.tensor([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]))
    assert torch.equal(hardmax(scores), (1e4 * scores).softmax(dim=-1))


@pytest.mark.parametrize("rank", [1, 2, D])
def test_equals_the_formula_with_matrices_of_that_rank(rank: int) -> None:
    torch.manual_seed(0)
    attention, x = LowRankAttention(D, rank).double(), torch.randn(2, 7, D, dtype=torch.float64)
    W_Q, W_K, W_V, W_O = (each.weight for each in (attention.query, attention.key, attention.value, attention.output))
    assert torch.linalg.matrix_rank(W_Q.T @ W_K) == torch.linalg.matrix_rank(W_O @ W_V) == rank
    expected = torch.stack([each + (each @ W_Q.T @ W_K @ each.T).softmax(-1) @ each @ W_V.T @ W_O.T for each in x])
    torch.testing.assert_close(attention(x), expected)


@pytest.mark.parametrize("hard", [False, True])
def test_several_heads_are_the_sum_of_single_ones(hard: bool) -> None:
    torch.manual_seed(0)
    several, x = LowRankAttention(D, 2, heads=3, hard=hard).double(), torch.randn(2, 7, D, dtype=torch.float64)
    expected = x
    for head in range(3):
        single, part = LowRankAttention(D, 2, hard=hard).double(), slice(2 * head, 2 * head + 2)
        for name in ("query", "key", "value"):
            getattr(single, name).weight.data.copy_(getattr(several, name).weight[part])
        single.output.weight.data.copy_(several.output.weight[:, part])
        expected = expected + single(x) - x
    torch.testing.assert_close(several(x), expected)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("hard", [False, True])
def test_padding_is_not_seen(hard: bool, heads: int) -> None:
    attention, x = LowRankAttention(D, 2, heads, hard=hard).double(), torch.randn(2, 9, D, dtype=torch.float64)
    mask = torch.arange(9)[None, None] < 6
    torch.testing.assert_close(attention(x, mask)[:, :6], attention(x[:, :6]))


@pytest.mark.parametrize(
    ("tokens", "mask", "message"),
    [
        ((7, D), None, r"LowRankAttention: expected \[batch, token, channel\] with 5 channels but got \(7, 5\)"),
        ((2, 3, 5, D), None, r"expected \[batch, token, channel\] with 5 channels but got \(2, 3, 5, 5\)"),
        ((2, 3, 4), None, r"with 5 channels but got \(2, 3, 4\)"),
        ((5, 5, D), (5, 5), r"expected a mask \[batch, 1, key\] or .* but got the shape \(5, 5\)"),
        ((2, 5, D), (2, 1, 4), r"but got the shape \(2, 1, 4\)"),
    ],
)
def test_other_shapes_are_refused(tokens: tuple[int, ...], mask: tuple[int, ...] | None, message: str) -> None:
    with shape_checks_off(), pytest.raises(ValueError, match=message):
        LowRankAttention(D)(torch.ones(tokens), None if mask is None else torch.ones(mask, dtype=torch.bool))


def test_a_gradient_reaches_every_matrix_of_softmax() -> None:
    attention = LowRankAttention(D)
    attention(torch.randn(2, 4, D)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in attention.parameters())


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=20), st.floats(-20, 20))
@settings(deadline=None)
def test_the_boltzmann_operator_is_a_softened_maximum(entries: list[float], shift: float) -> None:
    x = torch.tensor(entries, dtype=torch.float64)
    value, n = boltzmann(x), len(entries)
    assert x.mean() - 1e-9 <= value <= x.max() + 1e-9
    assert x.max() - value <= math.log(n) + 1e-9  # boltz = log-sum-exp - entropy
    torch.testing.assert_close(boltzmann(x + shift), value + shift)
    torch.testing.assert_close(boltzmann(x.flip(0)), value)


def test_the_derivative_of_the_boltzmann_operator_may_be_negative() -> None:
    """Its derivative is p_i (1 + x_i - boltz): an entry far below the maximum lowers it as it grows."""
    x = torch.tensor([3.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
    value = boltzmann(x)
    [slope] = torch.autograd.grad(value, x)
    torch.testing.assert_close(slope, (x.softmax(0) * (1 + x - value)).detach())
    assert slope[0] > 0 > slope[1]


@given(
    gaps=st.lists(st.floats(1, 1.5), min_size=5, max_size=5),
    first=st.sets(st.integers(0, 5), min_size=3, max_size=3),
    second=st.sets(st.integers(0, 5), min_size=3, max_size=3),
)
@settings(deadline=None)
def test_boltzmann_operators_of_different_sets_are_apart(gaps: list[float], first: set[int], second: set[int]) -> None:
    """The lemma, in decimal arithmetic."""
    least = 4 * math.log(3) + 6
    levels = [Decimal(0), *itertools.accumulate(Decimal(least * gap) for gap in gaps)]
    a, b = (sorted((levels[index] for index in chosen), reverse=True) for chosen in (first, second))
    if a == b:
        return
    a, b = max(a, b), min(a, b)
    k = next(index for index in range(3) if a[index] != b[index])
    with localcontext() as context:
        context.prec = 200
        one, other = (sum(x * x.exp() for x in each) / sum(x.exp() for x in each) for each in (a, b))
        assert abs(one - other) >= Decimal(least) / 2 * (a[k] - a[0]).exp()


def test_separation_equals_its_definition() -> None:
    data = torch.tensor([[[3.0, 4.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 3.0]]])
    assert separation(data) == pytest.approx((1.0, 5.0, 2.0))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (torch.ones(2, 3, D), "sequence 0 to have 3 different tokens but got 1"),
        (torch.tensor([[[0.0], [1.0]]]), "none of them 0"),
        (torch.ones(1, 1, D), "at least two different tokens"),
        (torch.ones(3, D), r"expected sequences \[sequence, token, channel\] .* but got \(3, 5\) in torch.float32"),
        (torch.ones(1, 0, D), r"but got \(1, 0, 5\)"),
        (torch.ones(1, 2, D, dtype=torch.int64), "but got .* in torch.int64"),
        (torch.tensor([[[1.0], [math.nan]]]), "expected sequences of finite numbers"),
        (torch.tensor([[[1.0], [2.0]]]) * 1e-20, "weights torch.float32 can hold"),
        (torch.tensor([[[1.0], [2.0]]], dtype=torch.float64) * 1e200, "weights torch.float64 can hold"),
    ],
)
def test_sequences_outside_the_theorem_are_refused(data: Tensor, message: str) -> None:
    with shape_checks_off(), pytest.raises(ValueError, match=message):
        contextual_mapping(data)


@pytest.mark.parametrize("options", [{"draws": 0}, {"score_gap": 0.0}, {"score_gap": math.nan}])
def test_options_of_the_construction_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected a positive score_gap and at least 1 of draws"):
        contextual_mapping(sequences(0, 4, 2, 3, D), **options)
