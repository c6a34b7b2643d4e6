"""Comparison of layers and networks with the golden vectors of the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from research.importing.reference_layout import reference_state
from training.operators import LineTransformerConfig

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}  # of the largest entry
PRECISIONS = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=["float64", "float32"])
LINE = LineTransformerConfig()


def translated(state: Mapping[str, Tensor], reference: str, prefix: str, layout: Any = LINE) -> dict[str, Tensor]:
    """Return a state dict of the reference under the names of this project.

    Args:
        state: Tensors by their names in a module of the reference.
        reference: The prefix of the module in the reference's network.
        prefix: The prefix of the module in the network here.
        layout: The config of the network, which fixes the number of its axes.
    """
    whole = reference_state(layout, {reference + key: tensor for key, tensor in state.items()})
    return {key.removeprefix(prefix): tensor for key, tensor in whole.items()}


def assert_published(name: str, found: Tensor | None, expected: Tensor, floor: float = 0.0) -> None:
    """Compare two tensors, relative to the largest entry; differences up to `floor` are accepted."""
    assert found is not None, name
    assert found.shape == expected.shape, name
    distance, size = (found.double() - expected).abs().max(), expected.abs().max()
    assert distance <= TOLERANCE[found.dtype] * size + floor + 1e-12, f"{name}: {distance} of {size}"


def assert_published_gradients(module: nn.Module, gradients: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    """Compare the gradients of a module's parameters. Some are zero in theory; as sums they round like the others."""
    floor = torch.finfo(dtype).eps * max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, gradient in gradients.items():
        assert_published(name, module.get_parameter(name).grad, gradient, floor)
