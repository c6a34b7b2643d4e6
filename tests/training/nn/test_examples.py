"""The examples in docstrings run, and every public layer has one."""

from __future__ import annotations

import doctest
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

import pytest
import torch

import research.cao2021
import training.losses
import training.metrics
import training.nn
import training.operators

PACKAGES = (training.nn, training.operators, training.losses, training.metrics, research.cao2021)
WITHOUT_EXAMPLE = {
    "AxisDifferences",
    "HeadAttention",
}
WITHOUT_EXAMPLE |= {"circle_positions", "indices", "sample", "square_positions"}


def modules() -> list[str]:
    """Return the names of all modules of the packages."""
    return [entry.name for root in PACKAGES for entry in walk_packages(root.__path__, f"{root.__name__}.")]


LONG = {"training.nn.encoder"}  # its examples are exported


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.deep if name in LONG else ())
        for name in (*modules(), *(root.__name__ for root in PACKAGES))
    ],
)
def test_examples_run(name: str) -> None:
    torch.manual_seed(0)
    module = import_module(name)
    results = doctest.testmod(module, extraglobs={"torch": torch}, raise_on_error=False)
    assert results.failed == 0


def exported(package: ModuleType) -> list[str]:
    return [name for name in package.__all__ if name not in WITHOUT_EXAMPLE]


@pytest.mark.parametrize("name", exported(training.nn))
def test_every_public_layer_has_an_example(name: str) -> None:
    assert ">>> " in (getattr(training.nn, name).__doc__ or "")


def test_the_public_surface_is_this() -> None:
    assert sorted(training.nn.__all__) == training.nn.__all__ == SURFACE


SURFACE = [
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
