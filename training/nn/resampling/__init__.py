"""Fields from one grid to another."""

from training.nn.resampling.interpolation import Downscaler, Upscaler, resample, sample
from training.nn.resampling.pooling import DeconvolutionUpscaler, PoolingDownscaler

__all__ = ["DeconvolutionUpscaler", "Downscaler", "PoolingDownscaler", "Upscaler", "resample", "sample"]
