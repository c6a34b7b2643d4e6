"""Comparison of layers and networks with the golden vectors of the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from research.cao2021.transformers import LineTransformerConfig
from research.importing.weights import reference_views

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}  # of the largest entry
PRECISIONS = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=["float64", "float32"])
LINE = LineTransformerConfig()


def views(own: Mapping[str, Tensor], reference: str, prefix: str, layout: Any = LINE) -> dict[str, Tensor]:
    """Return the tensors of a module as a module of the reference has them.

    Args:
        own: Tensors by their names in the module.
        reference: The prefix of the module in the reference's network.
        prefix: The prefix of the module in the network here.
        layout: The config of the network, which fixes the number of its axes and the kind of attention.
    """
    whole = reference_views(layout, {prefix + name: tensor for name, tensor in own.items()})
    return {key.removeprefix(reference): tensor for key, tensor in whole.items()}


def load_published(module: nn.Module, state: Mapping[str, Tensor], parts: tuple[str, str], layout: Any = LINE) -> None:
    """Copy a state dict of the reference into a module; `parts` are the prefixes in its network and here."""
    own = views(module.state_dict(), *parts, layout)
    assert own.keys() == state.keys()
    for key, tensor in own.items():
        tensor.copy_(state[key])


def assert_published(name: str, found: Tensor | None, expected: Tensor, floor: float = 0.0) -> None:
    """Compare two tensors, relative to the largest entry; differences up to `floor` are accepted."""
    assert found is not None, name
    assert found.shape == expected.shape, name
    distance, size = (found.double() - expected).abs().max(), expected.abs().max()
    assert distance <= TOLERANCE[found.dtype] * size + floor + 1e-12, f"{name}: {distance} of {size}"


def assert_published_gradients(
    module: nn.Module,
    gradients: Mapping[str, Tensor],
    dtype: torch.dtype,
    parts: tuple[str, str] | None = None,
    layout: Any = LINE,
) -> None:
    """Compare the gradients of a module's parameters. Some are zero in theory; as sums they round like the others."""
    floor = torch.finfo(dtype).eps * max(float(gradient.abs().max()) for gradient in gradients.values())
    own = {name: parameter.grad for name, parameter in module.named_parameters() if parameter.grad is not None}
    found = own if parts is None else views(own, *parts, layout)
    for name, gradient in gradients.items():
        assert_published(name, found.get(name), gradient, floor)
