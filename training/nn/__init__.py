"""Layers for neural operators and sequence networks. This table is the public surface.

Every layer takes one of three layouts, returns the same where nothing else is said, and refuses another by name:
**tokens** `[batch, token, channel]`, which are points in any order; **fields** `[batch, channel, *grid]`, as torch's
convolutions have them; and **features** `[batch, *grid, channel]`, of layers whose pointwise maps are one matrix
product. Grids have 1 to 3 axes and any number of points. `x.flatten(2).mT` makes tokens of a field, and
`x.movedim(1, -1)` features.

| layer | layout | file |
|---|---|---|
| attention: `GalerkinAttention`, `FourierAttention` | tokens | `attention/cao.py` |
| attention: `LinearAttention`, `SoftmaxAttention` | tokens | `attention/cao.py` |
| attention: `KernelAttention`, `CausalAttention`; by name: `build_attention` | tokens | `attention/` |
| encoder: `EncoderLayer`, `LocalMixing`; from a config: `EncoderConfig`, `encoder_stack` | tokens | `encoder.py` |
| spectral convolution: `SpectralConv`; periodic resampling: `resample_periodic` | fields | `spectral.py` |
| gated spectral layers, for equations with products: `GatedSpectralLayer` | features, one grid | `spectral.py` |
| spectral layers for equations linear in an input: `LinearSpectralLayer` | features, one grid | `spectral.py` |
| decoders: `SpectralDecoder`, `PointwiseDecoder`; from a config: `build_decoder` | fields | `decoders.py` |
| between grids by convolutions: `Downscaler`, `Upscaler` | fields, 2 axes | `scalers.py` |
| convolutions on three levels: `UNet` | fields | `pointwise.py` |
| between grids by matrices: `resample`, `sample` | `[*batch, row, column]` | `grids.py` |
| coordinates: `grid_coordinates`, `indices`, `JoinCoordinates` | fields | `grids.py` |
| positions of tokens: `square_positions`, `circle_positions` | `[token, coordinate]` | `grids.py` |
| statistics, dropout, activations: `Normaliser`, `Dropout`, `build_activation` | any | `pointwise.py` |
| classical steps: `ConjugateGradients` | `[batch, row, column]` | `elliptic/` |
| finite differences of a measured field: `AxisDifferences`, `derivatives` | `[batch, row, column]` | `measured.py` |
"""

from training.nn.attention import (
    CausalAttention,
    FourierAttention,
    GalerkinAttention,
    HeadAttention,
    KernelAttention,
    LinearAttention,
    SoftmaxAttention,
    build_attention,
    causal_attention,
)
from training.nn.decoders import (
    PointwiseDecoder,
    PointwiseDecoderConfig,
    SpectralDecoder,
    SpectralDecoderConfig,
    build_decoder,
)
from training.nn.elliptic.certified_gradients import ConjugateGradients
from training.nn.encoder import EncoderConfig, EncoderLayer, LocalMixing, encoder_stack
from training.nn.grids import (
    JoinCoordinates,
    circle_positions,
    grid_coordinates,
    indices,
    resample,
    sample,
    square_positions,
)
from training.nn.lines import resample_periodic
from training.nn.measured import AxisDifferences, derivatives
from training.nn.pointwise import Dropout, Normaliser, UNet, build_activation
from training.nn.scalers import Downscaler, Upscaler
from training.nn.spectral import GatedSpectralLayer, LinearSpectralLayer, SpectralConv

__all__ = [
    "AxisDifferences",
    "CausalAttention",
    "ConjugateGradients",
    "Downscaler",
    "Dropout",
    "EncoderConfig",
    "EncoderLayer",
    "FourierAttention",
    "GalerkinAttention",
    "GatedSpectralLayer",
    "HeadAttention",
    "JoinCoordinates",
    "KernelAttention",
    "LinearAttention",
    "LinearSpectralLayer",
    "LocalMixing",
    "Normaliser",
    "PointwiseDecoder",
    "PointwiseDecoderConfig",
    "SoftmaxAttention",
    "SpectralConv",
    "SpectralDecoder",
    "SpectralDecoderConfig",
    "UNet",
    "Upscaler",
    "build_activation",
    "build_attention",
    "build_decoder",
    "causal_attention",
    "circle_positions",
    "derivatives",
    "encoder_stack",
    "grid_coordinates",
    "indices",
    "resample",
    "resample_periodic",
    "sample",
    "square_positions",
]
