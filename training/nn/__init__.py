"""Layers for neural operators and sequence networks. This table is the public surface.

| layer | file |
|---|---|
| attention: `GalerkinAttention`, `FourierAttention`, `LinearAttention`, `SoftmaxAttention` | `attention/cao.py` |
| attention: `KernelAttention`, `CausalAttention`; by name: `build_attention` | `attention/` |
| encoder: `EncoderLayer`, `LocalMixing`; from a config: `EncoderConfig`, `encoder_stack` | `encoder.py` |
| spectral convolution: `SpectralConv`; periodic resampling: `resample_periodic` | `spectral.py` |
| gated spectral layers, for equations with products: `GatedSpectralLayer` | `spectral.py` |
| spectral layers for equations that are linear in an input: `LinearSpectralLayer` | `spectral.py` |
| decoders: `SpectralDecoder`, `PointwiseDecoder`; from a config: `build_decoder` | `decoders.py` |
| a list of numbers per sample: `FrequencyHead` | `decoders.py` |
| between grids by convolutions: `Downscaler`, `Upscaler` | `scalers.py` |
| between grids by strides: `PoolingDownscaler`, `DeconvolutionUpscaler` | `scalers.py` |
| convolutions with a residual: `ResidualBlock` | `scalers.py` |
| convolutions on three levels: `UNet` | `unet.py` |
| between grids by matrices: `resample`, `sample` | `grids.py` |
| coordinates: `grid_coordinates`, `indices`, `JoinCoordinates` | `grids.py` |
| positions of tokens: `square_positions`, `circle_positions` | `grids.py` |
| on graphs: `GraphConvolutions`, `GraphAttentions`; from a config: `build_graph_features` | `graphs.py` |
| statistics, dropout, activations: `Normaliser`, `Dropout`, `build_activation` | `pointwise.py` |
| classical steps: `ConjugateGradients` | `elliptic/` |
| finite differences of a measured field: `AxisDifferences`, `derivatives` | `measured.py` |
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
    FrequencyHead,
    FrequencyHeadConfig,
    PointwiseDecoder,
    PointwiseDecoderConfig,
    SpectralDecoder,
    SpectralDecoderConfig,
    build_decoder,
)
from training.nn.elliptic.certified_gradients import ConjugateGradients
from training.nn.encoder import EncoderConfig, EncoderLayer, LocalMixing, encoder_stack
from training.nn.graphs import (
    GraphAttentionConfig,
    GraphAttentions,
    GraphConvolutionConfig,
    GraphConvolutions,
    build_graph_features,
    line_laplacians,
)
from training.nn.grids import (
    JoinCoordinates,
    circle_positions,
    grid_coordinates,
    indices,
    resample,
    sample,
    square_positions,
)
from training.nn.measured import AxisDifferences, derivatives
from training.nn.pointwise import Dropout, Normaliser, build_activation
from training.nn.scalers import DeconvolutionUpscaler, Downscaler, PoolingDownscaler, ResidualBlock, Upscaler
from training.nn.spectral import GatedSpectralLayer, LinearSpectralLayer, SpectralConv, resample_periodic
from training.nn.unet import UNet

__all__ = [
    "AxisDifferences",
    "CausalAttention",
    "ConjugateGradients",
    "DeconvolutionUpscaler",
    "Downscaler",
    "Dropout",
    "EncoderConfig",
    "EncoderLayer",
    "FourierAttention",
    "FrequencyHead",
    "FrequencyHeadConfig",
    "GalerkinAttention",
    "GatedSpectralLayer",
    "GraphAttentionConfig",
    "GraphAttentions",
    "GraphConvolutionConfig",
    "GraphConvolutions",
    "HeadAttention",
    "JoinCoordinates",
    "KernelAttention",
    "LinearAttention",
    "LinearSpectralLayer",
    "LocalMixing",
    "Normaliser",
    "PointwiseDecoder",
    "PointwiseDecoderConfig",
    "PoolingDownscaler",
    "ResidualBlock",
    "SoftmaxAttention",
    "SpectralConv",
    "SpectralDecoder",
    "SpectralDecoderConfig",
    "UNet",
    "Upscaler",
    "build_activation",
    "build_attention",
    "build_decoder",
    "build_graph_features",
    "causal_attention",
    "circle_positions",
    "derivatives",
    "encoder_stack",
    "grid_coordinates",
    "indices",
    "line_laplacians",
    "resample",
    "resample_periodic",
    "sample",
    "square_positions",
]
