"""Layers for neural operators and sequence networks. This table is the public surface.

| layer | file |
|---|---|
| attention: `GalerkinAttention`, `FourierAttention`, `LinearAttention`, `SoftmaxAttention` | `attention/` |
| attention: `CausalAttention`, `KernelAttention`, `LowRankAttention`; by name: `build_attention` | `attention/` |
| encoder: `EncoderLayer`, `LocalMixing`; from a config: `EncoderConfig`, `encoder_stack` | `encoder.py` |
| spectral convolution: `SpectralConv`; periodic resampling: `resample_periodic` | `spectral/` |
| gated spectral layers, for equations with products: `GatedSpectralLayer` | `spectral/` |
| decoders: `SpectralDecoder`, `PointwiseDecoder`; from a config: `build_decoder` | `decoders.py` |
| between grids: `Downscaler`, `Upscaler`, `resample`, `sample` | `resampling/` |
| between grids by strides: `PoolingDownscaler`, `DeconvolutionUpscaler` | `resampling/` |
| convolutions with a residual: `ResidualBlock` | `residual_block.py` |
| on graphs: `GraphConvolutions`, `GraphAttentions`; from a config: `build_graph_features` | `graphs.py` |
| a list of numbers per sample: `FrequencyHead` | `frequencies.py` |
| coordinates: `grid_coordinates`, `indices`, `JoinCoordinates` | `coordinates.py` |
| positions of tokens: `square_positions`, `circle_positions` | `coordinates.py` |
| statistics, dropout, activations: `Normaliser`, `Dropout`, `build_activation` | one file each |
| classical steps: `ConjugateGradients` | `elliptic/` |
| finite differences of a measured field: `Axis`, `derivatives` | `measured/` |
"""

from training.nn.activations import build_activation
from training.nn.attention import (
    CausalAttention,
    FourierAttention,
    GalerkinAttention,
    HeadAttention,
    KernelAttention,
    LinearAttention,
    LowRankAttention,
    SoftmaxAttention,
    build_attention,
    causal_attention,
)
from training.nn.coordinates import JoinCoordinates, circle_positions, grid_coordinates, indices, square_positions
from training.nn.decoders import (
    PointwiseDecoder,
    PointwiseDecoderConfig,
    SpectralDecoder,
    SpectralDecoderConfig,
    build_decoder,
)
from training.nn.dropout import Dropout
from training.nn.elliptic.conjugate_gradients import ConjugateGradients
from training.nn.encoder import EncoderConfig, EncoderLayer, LocalMixing, encoder_stack
from training.nn.frequencies import FrequencyHead, FrequencyHeadConfig
from training.nn.graphs import (
    GraphAttentionConfig,
    GraphAttentions,
    GraphConvolutionConfig,
    GraphConvolutions,
    build_graph_features,
    line_laplacians,
)
from training.nn.measured.curvature import Axis, derivatives
from training.nn.normaliser import Normaliser
from training.nn.resampling import DeconvolutionUpscaler, Downscaler, PoolingDownscaler, Upscaler, resample, sample
from training.nn.residual_block import ResidualBlock
from training.nn.spectral import GatedSpectralLayer, SpectralConv, resample_periodic

__all__ = [
    "Axis",
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
    "LocalMixing",
    "LowRankAttention",
    "Normaliser",
    "PointwiseDecoder",
    "PointwiseDecoderConfig",
    "PoolingDownscaler",
    "ResidualBlock",
    "SoftmaxAttention",
    "SpectralConv",
    "SpectralDecoder",
    "SpectralDecoderConfig",
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
