"""Both decoders on one, two and three axes; the published numbers are in test_exact_networks."""

from __future__ import annotations

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from training.nn.decoders import (
    DecoderConfig,
    PointwiseDecoder,
    PointwiseDecoderConfig,
    SpectralDecoder,
    SpectralDecoderConfig,
    build_decoder,
    published_deviation,
)
from training.nn.grids import grid_coordinates, indices
from training.nn.spectral import SpectralConv

GRIDS = [(9,), (7, 10), (6, 5, 8)]
CONFIGS = [
    SpectralDecoderConfig(channels=6, modes=3, hidden=8, joined=4),
    SpectralDecoderConfig(channels=6, modes=3, hidden=8, coordinates=False, layers=1),
    PointwiseDecoderConfig(layers=2, joined=5, gain=0.01),
    PointwiseDecoderConfig(layers=0, coordinates=False),
]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("config", CONFIGS, ids=repr)
def test_decoders_return_one_channel_on_any_number_of_axes(
    config: SpectralDecoderConfig | PointwiseDecoderConfig, grid: tuple[int, ...]
) -> None:
    coordinates = grid_coordinates(indices(grid), torch.float32)
    assert build_decoder(config, 7, len(grid))(torch.randn(2, 7, *grid), coordinates).shape == (2, 1, *grid)


def test_coordinates_change_the_output_only_if_they_are_joined() -> None:
    x, coordinates = torch.randn(1, 7, 9), torch.linspace(0, 1, 9)[None]
    for config in CONFIGS:
        decoder = build_decoder(config, 7, 1)
        assert torch.equal(decoder(x, coordinates), decoder(x, coordinates**2)) == (not config.coordinates)


def test_coordinates_are_in_the_order_of_the_axes_or_of_the_reference() -> None:
    here, reference = (grid_coordinates(indices((3, 5)), torch.float64, reverse=reverse) for reverse in (False, True))
    assert here[0, :, 0].tolist() == [0, 0.5, 1]
    assert here[1, 0].tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert (here[0] == here[0, :, :1]).all()
    assert torch.equal(reference, here.flip(0))


def test_spectral_layers_start_as_published() -> None:
    decoder = SpectralDecoder(SpectralDecoderConfig(), 130, 2)
    for layer, inputs in zip(decoder.spectral, (130, 32), strict=True):
        assert isinstance(layer, SpectralConv)
        assert layer.weight.std().item() == pytest.approx(published_deviation(inputs, 32, 12, 2), rel=0.05)


def test_a_small_gain_bounds_the_initial_weights() -> None:
    decoder = PointwiseDecoder(PointwiseDecoderConfig(gain=0.01), 40, 1)
    for name, parameter in decoder.named_parameters():
        bound = 0.01 * (6 / sum(parameter.shape[:2])) ** 0.5 if parameter.ndim > 1 else 0
        assert parameter.abs().max() <= bound, name


def test_the_config_is_chosen_by_its_kind() -> None:
    adapter = TypeAdapter[SpectralDecoderConfig | PointwiseDecoderConfig](DecoderConfig)
    assert adapter.validate_python({"kind": "pointwise", "layers": 3}) == PointwiseDecoderConfig(layers=3)
    with pytest.raises(ValidationError, match="modes"):
        adapter.validate_python({"kind": "pointwise", "modes": 3})
