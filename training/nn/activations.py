"""Activation functions by name."""

from __future__ import annotations

from typing import Literal

from torch import nn

from training.registry import lookup

Activation = Literal["silu", "relu", "gelu", "none"]

ACTIVATION: dict[str, type[nn.Module]] = {
    "silu": nn.SiLU,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "none": nn.Identity,
}


def build_activation(name: str) -> nn.Module:
    """Return a new activation layer.

    Raises:
        UnknownNameError: There is no such activation; the message lists the known names.

    Example:
        >>> build_activation("silu")
        SiLU()
    """
    return lookup(ACTIVATION, name, "kind of activation")()
