"""Takes the name of an activation, gives its module."""

from __future__ import annotations

from typing import Literal

from torch import nn

Activation = Literal["silu", "relu", "gelu", "none"]

#: The one registry that turns a recipe's word into a class.
ACTIVATION: dict[str, type[nn.Module]] = {
    "silu": nn.SiLU,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "none": nn.Identity,
}
