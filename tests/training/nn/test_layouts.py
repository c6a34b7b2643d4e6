"""Every layer says which layout it takes, and refuses another with that sentence instead of an error of torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from research.cao2021.graphs import (
    GraphAttentionConfig,
    GraphAttentions,
    GraphConvolutionConfig,
    GraphConvolutions,
    line_laplacians,
)
from research.cao2021.layers import (
    DeconvolutionUpscaler,
    FrequencyHead,
    FrequencyHeadConfig,
    PoolingDownscaler,
    ResidualBlock,
)
from training import nn as layers
from training.nn import (
    Downscaler,
    EncoderLayer,
    GatedSpectralLayer,
    JoinCoordinates,
    LinearSpectralLayer,
    LocalMixing,
    PointwiseDecoder,
    PointwiseDecoderConfig,
    SpectralConv,
    SpectralDecoder,
    SpectralDecoderConfig,
    UNet,
    Upscaler,
    build_attention,
)
from training.nn.attention import ATTENTION

TOKENS, FIELDS, FEATURES = "[batch, token, channel]", "[batch, channel, *grid]", "[batch, *grid, channel]"
COORDINATES, EDGES = torch.zeros(2, 12, 10), line_laplacians(torch.arange(20), 3, torch.float32)
#: By name: the layer, its layout, its other arguments, and what it takes.
CASES: dict[str, tuple[nn.Module, str, tuple[torch.Tensor, ...], tuple[int, ...]]] = {
    **{kind: (build_attention(kind, 8, 2), TOKENS, (), (3, 20, 8)) for kind in ATTENTION},
    "encoder": (EncoderLayer(build_attention("galerkin", 8, 2), 8, 16), TOKENS, (), (3, 20, 8)),
    "local": (LocalMixing(8, (4, 5), 3), TOKENS, (), (3, 20, 8)),
    "frequency": (FrequencyHead(FrequencyHeadConfig(), 8), TOKENS, (), (3, 20, 8)),
    "graph": (GraphConvolutions(GraphConvolutionConfig(powers=3), 8, 9), TOKENS, (EDGES,), (3, 20, 8)),
    "graph attention": (GraphAttentions(GraphAttentionConfig(), 8, 9), TOKENS, (EDGES,), (3, 20, 8)),
    "spectral": (SpectralConv(8, 4, 3, 2), FIELDS, (), (3, 8, 12, 10)),
    "spectral decoder": (SpectralDecoder(SpectralDecoderConfig(modes=3), 8, 2), FIELDS, (COORDINATES,), (3, 8, 12, 10)),
    "pointwise": (PointwiseDecoder(PointwiseDecoderConfig(), 8, 2), FIELDS, (COORDINATES,), (3, 8, 12, 10)),
    "join": (JoinCoordinates(8, 4, 2), FIELDS, (COORDINATES,), (3, 8, 12, 10)),
    "down": (Downscaler(8, 12, 4, 7, 5), FIELDS, (), (3, 8, 12, 10)),
    "up": (Upscaler(8, 4, 14, 20), FIELDS, (), (3, 8, 12, 10)),
    "pooling": (PoolingDownscaler(8, 12), FIELDS, (), (3, 8, 12, 10)),
    "deconvolution": (DeconvolutionUpscaler(8), FIELDS, (), (3, 8, 12, 10)),
    "residual": (ResidualBlock(8, 4), FIELDS, (), (3, 8, 12, 10)),
    "unet": (UNet(2, 8, 4, 1), FIELDS, (), (3, 8, 12, 8)),
    "gated": (GatedSpectralLayer(8, 3, [True, False], (12, 10)), FEATURES, (), (3, 12, 10, 8)),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", CASES)
def test_a_layer_takes_its_layout_and_refuses_the_others(name: str) -> None:
    layer, layout, others, shape = CASES[name]
    layer.eval()
    with torch.no_grad():
        assert len(layer(torch.randn(shape), *others)) == shape[0]
        swapped = (shape[0], *shape[2:], shape[1]) if layout == FIELDS else (shape[0], shape[-1], *shape[1:-1])
        more = (shape[0], shape[1] + 1, *shape[2:]) if layout == FIELDS else (*shape[:-1], shape[-1] + 1)
        for wrong in (swapped, more, shape[:-1], (*shape, 2, 2)):
            with pytest.raises(ValueError, match=r"expected \[batch, .* with 8 channels") as caught:
                layer(torch.randn(wrong), *others)
            assert layout in str(caught.value)
            assert str(wrong) in str(caught.value)


@pytest.mark.usefixtures("unchecked")
def test_a_layer_of_one_grid_names_it() -> None:
    layer = GatedSpectralLayer(4, 3, [True, False], (8, 9))
    with pytest.raises(ValueError, match=r"^GatedSpectralLayer: expected .* with 4 channels on 8 x 9 points but got"):
        layer(torch.zeros(2, 9, 8, 4))
    linear = LinearSpectralLayer(4, 3, [True, False], (8, 9))
    with pytest.raises(ValueError, match=r"^LinearSpectralLayer: expected .* on 8 x 9 points but got \(2, 8, 8, 4\)"):
        linear(torch.zeros(2, 8, 9, 4), torch.zeros(2, 8, 8, 4))
    with pytest.raises(ValueError, match=r"^LocalMixing: expected .* with 8 channels on 4 x 5 points but got"):
        LocalMixing(8, (4, 5), 3)(torch.zeros(2, 21, 8))


def test_attention_needs_no_coordinates() -> None:
    attention = build_attention("galerkin", 64, 4)
    assert attention(torch.randn(2, 30, 64)).shape == (2, 30, 64)
    assert attention.coordinates == 0


def test_the_table_has_the_layout_of_every_layer() -> None:
    rows = [line for line in (layers.__doc__ or "").splitlines() if line.startswith("| ")][1:]
    assert all(len(row.split("|")) == 5 for row in rows)
    named = {name for row in rows for name in layers.__all__ if f"`{name}`" in row}
    helpers = {"HeadAttention", "causal_attention"}
    configs = {name for name in layers.__all__ if name.endswith("Config")}
    assert named | helpers | configs == {*layers.__all__}
