"""Kernels of positive features against their quadratic form, and the properties of the features."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import export.graphs.to_torchscript
from export.graphs.deployable import shape_checks_off
from research.sequences.trained_kernels import (
    GatedFeatures,
    Matrix,
    OrthogonalMatrix,
    PenalisedMatrix,
    SoftplusFeatures,
)
from training.nn.attention import build_attention, kinds, penalty
from training.nn.attention.kernel import EPS, KernelAttention, RandomFeatures
from training.nn.encoder import EncoderConfig, EncoderLayer, encoder_stack

KERNELS = [kind for kind in kinds() if kind.startswith("kernel-")]
B, N, C, H, P = 2, 70, 16, 2, 1  # two blocks of causal attention
FIXED = {"kernel-elu", "kernel-random"}
EXACT = ["kernel-orthogonal-exact", "kernel-aoglu3-exact"]  # with one matrix, and with several and factored gates
#: One of each form; units differ in number alone.
FORMS = ["kernel-elu", "kernel-random", "kernel-softplus", "kernel-glu2", "kernel-aoglu3", "kernel-oglu2-exact"]
#: channels, heads, hidden features of the FFN: layers of the published ListOps, text and matching networks
PUBLISHED = [(512, 8, 1024), (256, 4, 1024), (128, 4, 512)]


@pytest.fixture
def tokens() -> Tensor:
    return torch.randn(B, N, C, dtype=torch.float64)


@pytest.fixture
def positions() -> Tensor:
    return torch.rand(N, P, dtype=torch.float64)


def build(kind: str, coordinates: int = P, **options: Any) -> KernelAttention:
    """Return an attention in float64 with every parameter moved from its initial value."""
    torch.manual_seed(0)
    attention = build_attention(kind, C, H, coordinates, gain=1.0, **options).double()
    for parameter in attention.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    assert isinstance(attention, KernelAttention)
    return attention


def feature_map(kind: str, width: int, heads: int) -> nn.Module:
    """Return the feature map of a layer without coordinates."""
    attention = build_attention(kind, width * heads, heads, 0)
    assert isinstance(attention, KernelAttention)
    return attention.features


def by_hand(attention: KernelAttention, x: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the output computed head by head, with the full n x n matrix."""
    width, outputs, heads = C // H, [], []
    for h in range(H):
        Q, K, V = (
            (x @ layer.weight.T + layer.bias)[..., h * width : (h + 1) * width]
            for layer in (attention.query, attention.key, attention.value)
        )
        Q, K = (
            nn.functional.layer_norm(y, (width,)) * norm.weight[h] + norm.bias[h]
            for y, norm in ((Q, attention.first_norm), (K, attention.second_norm))
        )
        Q, K, V = (torch.cat([positions.expand(B, N, P), y], dim=-1) for y in (Q, K, V))
        heads.append((Q, K, V))
    queries, keys, values = (torch.stack(each, dim=1) for each in zip(*heads, strict=True))
    queries, keys = attention.features(queries), attention.features(keys)
    for q, k, V in zip(queries.unbind(1), keys.unbind(1), values.unbind(1), strict=True):
        seen = torch.ones(B, N, N, dtype=torch.float64) if mask is None else mask.double().expand(B, N, N)
        kernel = (q @ k.mT) * (seen.tril() if attention.causal else seen)
        outputs.append(kernel / (kernel.sum(-1, keepdim=True) + EPS * N * q.sum(-1, keepdim=True)) @ V)
    return attention.output(torch.cat(outputs, dim=-1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", FORMS)
def test_linear_time_gives_the_quadratic_form_and_its_gradients(
    kind: str, causal: bool, tokens: Tensor, positions: Tensor
) -> None:
    attention, x = build(kind, causal=causal), tokens.requires_grad_()
    outputs = attention(x, positions=positions), by_hand(attention, x, positions)
    torch.testing.assert_close(*outputs)
    cotangent, sources = torch.randn_like(x), [x, *attention.parameters()]
    for one, other in zip(*(torch.autograd.grad(output, sources, cotangent) for output in outputs), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_of_pairs_hides_them(causal: bool, tokens: Tensor, positions: Tensor) -> None:
    attention, mask = build("kernel-glu1", causal=causal), torch.rand(B, N, N) < 0.5
    mask[:, 3] = False
    output = attention(tokens, positions=positions, mask=mask)
    torch.testing.assert_close(output, by_hand(attention, tokens, positions, mask))
    torch.testing.assert_close(output[:, 3], attention.output.bias.expand(B, -1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", FORMS)
def test_padding_has_no_influence(kind: str, causal: bool, tokens: Tensor, positions: Tensor) -> None:
    """Of two samples, the second has 17 tokens. Neither the content nor the length of its padding matters."""
    attention, length = build(kind, causal=causal), 17
    mask = torch.ones(B, 1, N, dtype=torch.bool)
    mask[1, :, length:] = False
    padded = tokens.clone()
    padded[1, length:] = 100 * torch.randn(N - length, C, dtype=torch.float64)
    output = attention(padded, positions=positions, mask=mask)
    torch.testing.assert_close(output[:1], attention(tokens[:1], positions=positions))
    alone = attention(tokens[1:, :length], positions=positions[:length])
    torch.testing.assert_close(output[1:, :length], alone, rtol=1e-10, atol=1e-12)


def test_padding_that_hides_every_key_gives_zero(tokens: Tensor) -> None:
    output = build("kernel-oglu1", coordinates=0)(tokens, mask=torch.zeros(B, 1, N))
    assert not output.any()


def test_padding_stays_linear_in_time() -> None:
    """A matrix of all pairs would take 17 GB here."""
    attention, n = build("kernel-glu2", coordinates=0).float(), 65536
    with torch.no_grad():
        output = attention(torch.randn(1, n, C), mask=torch.arange(n)[None, None] < n // 2)
    assert output.isfinite().all()


@given(length=st.integers(1, 200), seen=st.integers(0, 199))
@settings(max_examples=20, deadline=None)
def test_causal_kernels_do_not_look_ahead(length: int, seen: int) -> None:
    """Not even by rounding: the later tokens are a thousand times larger."""
    seen = min(seen, length - 1)
    attention, x = build("kernel-softplus", coordinates=0, causal=True), torch.randn(1, length, C, dtype=torch.float64)
    later = 1e3 * torch.randn(1, length - seen - 1, C, dtype=torch.float64)
    changed = torch.cat([x[:, : seen + 1], later], dim=1)
    torch.testing.assert_close(attention(changed)[:, : seen + 1], attention(x)[:, : seen + 1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-2, 1.0, 10.0])
@pytest.mark.parametrize("kind", KERNELS)
def test_features_are_positive(kind: str, scale: float) -> None:
    torch.manual_seed(1)
    if kind == "kernel-random":
        scale = min(scale, 1.0)  # meant for normalised tokens
    features = feature_map(kind, 32, 3)(scale * torch.randn(2, 3, 50, 32).clamp(-3, 3))
    assert features.shape[:3] == (2, 3, 50)
    assert (features > 0).all()


@pytest.mark.parametrize("kind", EXACT)
def test_exact_matrices_stay_orthogonal_in_training(kind: str) -> None:
    """After 100 steps at twenty times the usual rate, towards features that would make a free matrix grow."""
    torch.manual_seed(2)
    features, x = feature_map(kind, 16, 2), torch.randn(1, 2, 32, 16)
    expected = 20 * torch.rand(1, 2, 32, 16)
    matrices = [module for module in features.modules() if isinstance(module, OrthogonalMatrix)]
    before = [matrix.weight.detach() for matrix in matrices]
    optimiser = torch.optim.Adam(features.parameters(), lr=2e-2)
    for _ in range(100):
        optimiser.zero_grad()
        (features(x) - expected).square().mean().backward()
        optimiser.step()
    assert matrices
    for matrix, first in zip(matrices, before, strict=True):
        torch.testing.assert_close(matrix.weight.mT @ matrix.weight, torch.eye(16).expand(2, 16, 16), rtol=0, atol=1e-5)
        assert (matrix.weight - first).norm() > 1
    assert penalty(features) is None


def test_the_nearest_orthogonal_matrix_is_the_polar_factor() -> None:
    torch.manual_seed(3)
    matrix = OrthogonalMatrix(24, heads=3).double()
    left, right = (torch.linalg.qr(torch.randn(3, 24, 24, dtype=torch.float64)).Q for _ in range(2))
    matrix.raw.data = left * torch.linspace(0.1, 3, 24, dtype=torch.float64) @ right
    torch.testing.assert_close(matrix.weight, left @ right)


@pytest.mark.parametrize("width", [2, 16, 64, 256])
def test_a_direction_that_has_nearly_vanished_stays_orthogonal(width: int) -> None:
    matrix, sizes = OrthogonalMatrix(width), torch.ones(width)
    sizes[0] = 0.01
    with torch.no_grad():
        matrix.raw.mul_(sizes)  # it starts orthogonal, so these are its singular values
    torch.testing.assert_close(matrix.weight.mT @ matrix.weight, torch.eye(width), rtol=0, atol=1e-5)


def test_a_graph_holds_the_orthogonal_matrices_as_they_were_at_evaluation(tokens: Tensor) -> None:
    attention = build("kernel-oglu2-exact", coordinates=0).eval()
    with torch.no_grad(), shape_checks_off(), export.graphs.to_torchscript.quiet():
        traced = torch.jit.trace(attention, tokens, check_trace=False)
        torch.testing.assert_close(traced(tokens[:, :40]), attention(tokens[:, :40]))


def test_every_head_has_a_map_of_its_own() -> None:
    """Against the formula, head by head; one map for all heads gives the same as equal maps."""
    torch.manual_seed(4)
    x, softplus, sigmoid = torch.randn(B, H, N, 8), nn.functional.softplus, torch.sigmoid
    [first, last] = (features := GatedFeatures(8, H, units=2)).units
    shared = GatedFeatures(8, units=2)
    for h in range(H):
        y = x[:, h] @ first.value.weight[h] * sigmoid(x[:, h] @ first.gate.weight[h])
        expected = softplus(y @ last.value.weight[h]) * sigmoid(y @ last.gate.weight[h])
        torch.testing.assert_close(features(x)[:, h], expected)
        shared.load_state_dict({name: weight[h] for name, weight in features.state_dict().items()})
        torch.testing.assert_close(shared(x)[:, h], expected)


def test_only_orthogonal_kinds_start_orthogonal_and_are_penalised() -> None:
    for kind in KERNELS:
        built = feature_map(kind, 16, 4)
        gates = [each for name, each in built.named_modules() if "gate" in name and isinstance(each, Matrix)]
        free = [each for each in built.modules() if isinstance(each, Matrix) and each not in gates]
        orthogonal, exact = "orthogonal" in kind or "oglu" in kind, kind.endswith("-exact")
        assert all(isinstance(each, PenalisedMatrix) is orthogonal for each in free)
        found = penalty(built)
        assert (found is None) is (exact or not orthogonal)
        assert found is None or found < 1e-8
        for each in [*gates, *(free if not orthogonal else [])]:
            assert all((W.mT @ W - torch.eye(W.shape[-1])).norm() > 0.5 for W in each.weight)


def test_the_penalty_is_the_distance_from_orthogonality_and_pulls_back() -> None:
    torch.manual_seed(4)
    features = SoftplusFeatures(16, heads=2, orthogonality="penalty")
    features.value.weight.data += 0.3 * torch.randn(2, 16, 16)
    far = sum(torch.dist(W.T @ W, torch.eye(16)).item() ** 2 for W in features.value.weight)
    assert penalty(features).item() == pytest.approx(far, rel=1e-5)
    optimiser = torch.optim.Adam(features.parameters(), lr=1e-2)
    for _ in range(200):
        optimiser.zero_grad()
        penalty(features).backward()
        optimiser.step()
    assert penalty(features) < 1e-3 * far


def test_random_features_estimate_the_kernel_of_softmax() -> None:
    torch.manual_seed(5)
    width = 8
    q, k = (0.7 * torch.randn(1, 1, n, width, dtype=torch.float64) for n in (5, 6))
    maps = [RandomFeatures(width).double() for _ in range(2000)]
    drawn = torch.stack([features(q) @ features(k).mT for features in maps])
    expected = (q @ k.mT / math.sqrt(width)).exp()
    error = drawn.std(dim=0) / math.sqrt(len(maps))
    assert ((drawn.mean(dim=0) - expected).abs() < 5 * error).all()
    assert (error < 0.05 * expected).all()


def test_random_features_are_saved() -> None:
    first, second = build_attention("kernel-random", C, H, P), build_attention("kernel-random", C, H, P)
    x, positions = torch.randn(B, N, C), torch.rand(N, P)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x, positions=positions), second(x, positions=positions))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", FORMS)
def test_halved_precision_stays_near_over_many_tokens(kind: str, causal: bool) -> None:
    """Sums in bfloat16 would stop growing at 256 equal tokens."""
    attention, x = build(kind, coordinates=0, causal=causal).float(), torch.randn(1, 4096, C)
    with torch.no_grad():
        exact = attention(x)
        rough = attention.to(torch.bfloat16)(x.bfloat16())
    assert rough.dtype == torch.bfloat16
    assert (rough - exact).norm() < 0.05 * exact.norm()


@pytest.mark.parametrize(("norm", "scale"), [("layer", 1e-6), ("layer", 1e6), ("none", 1e-6), ("none", 100.0)])
@pytest.mark.parametrize("kind", FORMS)
def test_denominators_stay_sound_for_tiny_and_huge_tokens(kind: str, norm: str, scale: float) -> None:
    for dtype, causal in ((torch.float32, False), (torch.float32, True), (torch.bfloat16, False)):
        attention = build(kind, coordinates=0, norm=norm, causal=causal).to(dtype)
        x = (scale * torch.randn(B, N, C)).to(dtype).requires_grad_()
        output = attention(x)
        output.sum().backward()
        assert x.grad is not None
        assert output.isfinite().all()
        assert x.grad.isfinite().all()


#: Parameters of a head's map in units of its width squared.
SQUARES = {"softplus": 1, "orthogonal": 1, "glu1": 2, "glu2": 4, "glu3": 6, "oglu1": 2, "oglu2": 4, "oglu3": 6}


@pytest.mark.parametrize("sizes", PUBLISHED, ids=["listops", "text", "matching"])
@pytest.mark.parametrize("kind", KERNELS)
def test_a_map_per_head_has_the_published_number_of_parameters(kind: str, sizes: tuple[int, int, int]) -> None:
    """A unit adds 4.2 % to a published layer of text, which also projects the heads' outputs; three exceed a tenth."""
    channels, heads, hidden = sizes

    def parameters(kind: str, **options: Any) -> int:
        layer = EncoderLayer(build_attention(kind, channels, heads, 0, **options), channels, hidden)
        return sum(parameter.numel() for parameter in layer.parameters())

    squares = SQUARES.get(kind.removeprefix("kernel-").removesuffix("-exact"), 0 if kind in FIXED else 4.5)
    width, plain = channels // heads, parameters("softmax")
    assert parameters(kind) - plain == squares * width**2 * heads
    assert parameters(kind, shared=True) - plain == squares * width**2
    published = plain + channels**2 + channels
    share = (parameters(kind) - plain) / published
    assert (share > 0.1) is (squares == 6 and channels < 512)


@pytest.mark.parametrize("kind", KERNELS)
def test_every_kind_trains_in_an_encoder(kind: Any) -> None:
    torch.manual_seed(6)
    [layer] = encoder_stack(EncoderConfig(attention=kind, channels=C, heads=H, layers=1, feedforward=32), P)
    x, positions = torch.randn(B, N, C), torch.rand(N, P)
    expected = x.roll(1, dims=2)
    optimiser = torch.optim.Adam(layer.parameters(), lr=1e-2)
    losses = []
    for _ in range(5):
        optimiser.zero_grad()
        loss = (layer(x, positions) - expected).square().mean()
        loss.backward()
        without_gradient = [name for name, each in layer.named_parameters() if each.grad is None or not each.grad.any()]
        assert without_gradient == []
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_causal_kernels_need_a_key_for_every_query(tokens: Tensor) -> None:
    with pytest.raises(ValueError, match="as many keys as queries but got 7, 70"):
        build("kernel-glu1", coordinates=0, causal=True)(tokens, tokens[:, :7])


def test_keys_may_differ_in_number_without_causality(tokens: Tensor) -> None:
    attention, keys = build("kernel-glu1", coordinates=0), tokens[:, :7]
    output, permuted = attention(tokens, keys), attention(tokens, keys[:, torch.randperm(7)])
    torch.testing.assert_close(output, permuted)
