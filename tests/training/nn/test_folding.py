"""Folded Galerkin attention has the output and the gradients of the computation by heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.nn.attention import HeadAttention, build_attention
from training.nn.attention.cao import centre, fold


def galerkin(channels: int, heads: int, coordinates: int, **options: Any) -> HeadAttention:
    """Return an attention in float64 with every parameter moved from its initial value."""
    attention = build_attention("galerkin", channels, heads, coordinates, gain=1.0, **options).double()
    for parameter in attention.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return attention


def by_heads(attention: HeadAttention, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return the same output without folding, which an explicit key disables."""
    return attention(x, key=x, positions=positions)


@given(
    heads=st.integers(1, 4),
    width=st.integers(2, 5),
    coordinates=st.integers(1, 3),
    tokens=st.integers(1, 12),
    batch=st.integers(1, 3),
    apart=st.booleans(),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
def test_folding_equals_the_computation_by_heads(
    heads: int, width: int, coordinates: int, tokens: int, batch: int, apart: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    attention = galerkin(heads * width, heads, coordinates)
    x = torch.randn(batch, tokens, heads * width, dtype=torch.float64)
    positions = torch.rand(*([batch] if apart else []), tokens, coordinates, dtype=torch.float64)
    apart_by_head = by_heads(attention, x, positions)
    torch.testing.assert_close(fold(attention, x, positions), apart_by_head, rtol=1e-9, atol=1e-10)


@given(
    heads=st.integers(1, 4),
    width=st.integers(1, 5),
    tokens=st.integers(1, 12),
    offset=st.floats(-100, 100),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
def test_centred_projections_give_the_same_output(
    heads: int, width: int, tokens: int, offset: float, seed: int
) -> None:
    torch.manual_seed(seed)
    attention = galerkin(heads * width, heads, 2, eps=1e-3)
    attention.key.bias.data += offset
    x = torch.randn(2, tokens, heads * width, dtype=torch.float64)
    positions = torch.rand(tokens, 2, dtype=torch.float64)
    expected = attention(x, positions=positions)
    centre(attention)
    torch.testing.assert_close(fold(attention, x, positions), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(by_heads(attention, x, positions), expected, rtol=1e-9, atol=1e-9)


def test_gradients_equal_those_of_the_computation_by_heads() -> None:
    torch.manual_seed(0)
    attention, positions = galerkin(12, 3, 2), torch.rand(9, 2, dtype=torch.float64)
    x = torch.randn(2, 9, 12, dtype=torch.float64, requires_grad=True)
    slopes = [
        torch.autograd.grad(output.square().sum(), [x, *attention.parameters()])
        for output in (attention(x, positions=positions), by_heads(attention, x, positions))
    ]
    for folded, expected in zip(*slopes, strict=True):
        torch.testing.assert_close(folded, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("norm", ["instance", "none"])
def test_other_norms_are_computed_by_heads(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.nn.attention.cao.fold", None)
    attention = galerkin(12, 3, 2, norm=norm)
    attention(torch.randn(2, 9, 12, dtype=torch.float64), positions=torch.rand(9, 2, dtype=torch.float64))


def test_dropout_acts_on_the_same_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deterministic function of each entry replaces the random mask."""
    attention, positions = galerkin(12, 3, 2), torch.rand(9, 2, dtype=torch.float64)
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    plain = attention(x, positions=positions)
    monkeypatch.setattr(attention, "drop", lambda matrix: 2 * matrix)
    dropped, expected = fold(attention, x, positions), by_heads(attention, x, positions)
    torch.testing.assert_close(dropped, expected, rtol=1e-9, atol=1e-10)
    assert not torch.allclose(dropped, plain)


def test_dropout_keeps_the_mean() -> None:
    attention, positions = galerkin(12, 3, 2, dropout=0.5), torch.rand(9, 2, dtype=torch.float64)
    x = torch.randn(1, 9, 12, dtype=torch.float64)
    with torch.no_grad():
        many = attention(x.expand(20_000, -1, -1), positions=positions)
    expected = attention.eval()(x, positions=positions)
    assert many.std(dim=0).min() > 0
    torch.testing.assert_close(many.mean(dim=0, keepdim=True), expected, rtol=0, atol=0.05 * float(many.std()))


def test_folding_keeps_fewer_numbers_for_the_backward_pass() -> None:
    """It keeps the keys and values, projected and normalised, and no heads."""
    attention, positions = galerkin(64, 4, 2), torch.rand(4096, 2, dtype=torch.float64)
    x = torch.randn(1, 4096, 64, dtype=torch.float64, requires_grad=True)

    def kept(output: Callable[[], torch.Tensor]) -> int:
        sizes = dict[int, int]()

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            output()
        return sum(sizes.values())

    heads = kept(lambda: by_heads(attention, x, positions))
    assert kept(lambda: attention(x, positions=positions)) < 0.7 * heads
