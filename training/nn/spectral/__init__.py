"""Layers in truncated Fourier series."""

from training.nn.spectral.convolution import SpectralConv, resample_periodic
from training.nn.spectral.gated import GatedSpectralLayer

__all__ = ["GatedSpectralLayer", "SpectralConv", "resample_periodic"]
