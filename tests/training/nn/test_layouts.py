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
    Normaliser,
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
from training.nn.pointwise import BoundaryConv
from training.nn.spectral import BoundarySpectralConv

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


@pytest.mark.usefixtures("unchecked")
def test_sizes_that_change_the_grid_are_refused() -> None:
    for build in (lambda: LocalMixing(8, (4, 5), 4), lambda: BoundaryConv(2, 3, [True, False], 2)):
        with pytest.raises(ValueError, match=r"expected a stencil of an odd number of points but got [24]"):
            build()
    with pytest.raises(ValueError, match="a token grid of one or two axes"):
        LocalMixing(8, (4, 5, 2), 3)
    with pytest.raises(ValueError, match=r"^UNet: expected a multiple of 4 points on every axis but got \(10, 12\)"):
        UNet(2, 3, 4, 1)(torch.zeros(1, 3, 10, 12))
    with pytest.raises(ValueError, match=r"^JoinCoordinates: expected coordinates of shape \(2, 12, 10\) but got"):
        JoinCoordinates(8, 4, 2)(torch.zeros(3, 8, 12, 10), torch.zeros(2, 12, 1))
    with pytest.raises(ValueError, match=r"^BoundarySpectralConv: expected .* on 8 x 9 points but got \(1, 2, 9, 9\)"):
        BoundarySpectralConv(2, 3, 4, [True, False], (8, 9))(torch.zeros(1, 2, 9, 9))
    for sizes in ((8, 0), (8, -2), (0, 1), (8, 2, -1)):
        with pytest.raises(ValueError, match="expected at least 1 channel and 1 head"):
            build_attention("galerkin", *sizes)


def test_statistics_of_other_samples_are_refused_and_a_constant_becomes_0() -> None:
    for shape in ((5, 8, 2), (5, 3, 4), (0, 4, 4), (5, 4)):
        with pytest.raises(ValueError, match=r"^Normaliser: expected samples .* for statistics \(4, 4\) but got"):
            Normaliser((4, 4)).fit(torch.randn(shape))
    for grid in ((), (4,)):
        normaliser, constant = Normaliser(grid), torch.full((3, 4), 5.0)
        normaliser.fit(constant)
        assert normaliser(constant).tolist() == torch.zeros(3, 4).tolist()
        assert torch.equal(normaliser.inverse(normaliser(constant)), constant)
