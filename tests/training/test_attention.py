"""Scale-preserving attention against its formulas."""

from __future__ import annotations

import math

import pytest
import torch

from training.attention import ATTENTION, AttentionType, FourierAttention, GalerkinAttention

B, N, C, H, P = 2, 11, 12, 3, 2


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randn(B, N, C, dtype=torch.float64)


@pytest.fixture
def positions() -> torch.Tensor:
    return torch.rand(N, P, dtype=torch.float64)


def build(kind: AttentionType) -> GalerkinAttention | FourierAttention:
    torch.manual_seed(0)
    return ATTENTION[kind](C, H, coordinates=P, gain=1.0).double()


def by_hand(attention: GalerkinAttention | FourierAttention, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The paper's sums head by head, with the full n x n matrix."""
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
        Q, K, V = (Q, first(K), second(V)) if isinstance(attention, GalerkinAttention) else (first(Q), second(K), V)
        Q, K, V = (torch.cat([positions.expand(B, N, P), y], dim=-1) for y in (Q, K, V))
        scale = N if isinstance(attention, GalerkinAttention) else N * math.sqrt(width + P)
        outputs.append(Q @ K.mT / scale @ V)
    return attention.output(torch.cat(outputs, dim=-1))


@pytest.mark.parametrize("kind", ["galerkin", "fourier"])
def test_equals_the_formula(kind: AttentionType, tokens: torch.Tensor, positions: torch.Tensor) -> None:
    attention = build(kind)
    torch.testing.assert_close(attention(tokens, positions=positions), by_hand(attention, tokens, positions))


@pytest.mark.parametrize("kind", ["galerkin", "fourier"])
def test_permuted_tokens_give_permuted_answers(
    kind: AttentionType, tokens: torch.Tensor, positions: torch.Tensor
) -> None:
    attention, order = build(kind), torch.randperm(N)
    torch.testing.assert_close(attention(tokens[:, order], positions=positions[order]), attention(tokens, positions=positions)[:, order])


@pytest.mark.parametrize("kind", ["galerkin", "fourier"])
def test_repeating_every_token_changes_nothing(
    kind: AttentionType, tokens: torch.Tensor, positions: torch.Tensor
) -> None:
    """The mixing is a mean over the domain, so a grid refined by repetition gives the same field."""
    attention = build(kind)
    doubled = attention(tokens.repeat_interleave(2, dim=1), positions=positions.repeat_interleave(2, dim=0))
    torch.testing.assert_close(doubled[:, ::2], attention(tokens, positions))


def test_channels_must_fit_the_heads() -> None:
    with pytest.raises(ValueError, match="multiple of heads but got 10 channels and 3 heads"):
        GalerkinAttention(10, 3, coordinates=1)
