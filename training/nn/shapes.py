"""Names of tensor shapes that signatures in `training` share.

The dimension names are: `batch` samples; `row` and `column` the axes of a field on a plane; `block_row` and
`block_column` the axes of its means over blocks; `point` the axis of a line; `grid` any number of axes; `token` the
points that the encoder sees, flattened; `source` the tokens of keys and values; `channel` features; `head` attention
heads; `coordinate` components of a position. jaxtyping checks the annotations while the tests run; outside the tests
they cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Integer, Real, Shaped
from torch import Tensor, nn

#: The three layouts of this package: of tokens, of fields between convolutions, and of features on one grid.
Layout = Literal["[batch, token, channel]", "[batch, channel, *grid]", "[batch, *grid, channel]"]
TOKENS: Layout = "[batch, token, channel]"
FIELDS: Layout = "[batch, channel, *grid]"
FEATURES: Layout = "[batch, *grid, channel]"

Line = Float[Tensor, "batch point"]
Plane = Float[Tensor, "batch row column"]
Blocks = Float[Tensor, "batch block_row block_column"]
Field = Float[Tensor, "batch *grid"]
Channels = Float[Tensor, "batch channel *grid"]
Features = Float[Tensor, "batch _ ..."]  # any channels on any grid
Numbers = Integer[Tensor, "batch token"]  # indices into a vocabulary; 0 is padding
Logits = Float[Tensor, "batch *token label"]  # per sequence or per token
Tokens = Float[Tensor, "batch token channel"]
Rows = Float[Tensor, "row channel"]  # the tokens of all samples as the rows of one matrix
Sources = Float[Tensor, "batch source channel"]
Heads = Float[Tensor, "batch head token width"]
Mixed = Float[Tensor, "batch head _ _"]  # heads of queries, keys or values, with or without coordinates
Matrices = Float[Tensor, "batch *head _ _"]  # attention matrices, per head or for all heads together
Coordinates = Float[Tensor, "coordinate *grid"]
Positions = Real[Tensor, "... token coordinate"]  # shared by all samples, or per sample
SourcePositions = Real[Tensor, "... source coordinate"]
Mask = Shaped[Tensor, "#batch #token source"]  # bool or 0/1; true where the query attends to the source
Weight = Float[Tensor, "#batch #token #channel"]


def tracing() -> bool:
    """Return whether TorchScript is tracing. Sizes are tensors then, and a trace would freeze a comparison of them."""
    return torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call] # public, but neither exported nor typed


def expect(
    x: Tensor,
    layout: Layout,
    channels: int,
    layer: nn.Module,
    *,
    dimensions: int | None = None,
    grid: Sequence[int] | None = None,
) -> None:
    """Require the layout of a layer's input; while a graph is made nothing is compared.

    Args:
        x: The input.
        layout: What the layer takes.
        channels: The features that it takes.
        layer: Whose name the message begins with.
        dimensions: The axes of its grid, 1 to 3 where it takes any.
        grid: Its points per axis where it takes no others; of tokens, the grid that they are the points of.

    Raises:
        ValueError: The input has another layout, number of features or grid.

    Example:
        >>> expect(torch.zeros(2, 64, 100), TOKENS, 64, nn.Identity())
        Traceback (most recent call last):
        ValueError: Identity: expected [batch, token, channel] with 64 channels but got (2, 64, 100)
    """
    if tracing() or torch.compiler.is_compiling():
        return
    axes = {1} if layout == TOKENS else {dimensions or (len(grid) if grid else 0)} - {0} or {1, 2, 3}
    found = tuple(x.shape)
    fits = x.ndim - 2 in axes and found[1 if layout == FIELDS else -1] == channels
    if fits and grid is not None:
        points = found[2:] if layout == FIELDS else found[1:-1]
        fits = points == (math.prod(grid),) if layout == TOKENS else points == tuple(grid)
    if not fits:
        of_grid = "" if dimensions is None or grid else f", {dimensions} axes" if dimensions > 1 else ", 1 axis"
        on_grid = f" on {' x '.join(map(str, grid))} points" if grid else of_grid
        raise ValueError(f"{type(layer).__name__}: expected {layout} with {channels} channels{on_grid} but got {found}")
