"""The one vocabulary of tensor shapes: takes nothing, gives the names that signatures across `training` use.

Axes by name: `batch` samples, `row column` the two axes of a field, `block_row block_column` those of its means over
blocks, `point` the axis of a periodic line, `token` the points the encoder sees (flattened over the token grid),
`source` the tokens that keys and values stand for where they are others than the queries', `channel` features, `head`
attention heads, `coordinate` position components. Annotations are checked while the tests run (jaxtyping's import hook)
and cost nothing otherwise.
"""

from __future__ import annotations

from jaxtyping import Float, Integer, Real, Shaped
from torch import Tensor

Line = Float[Tensor, "batch point"]
Plane = Float[Tensor, "batch row column"]
Blocks = Float[Tensor, "batch block_row block_column"]
Field = Float[Tensor, "batch *grid"]
Channels = Float[Tensor, "batch channel *grid"]
Numbers = Integer[Tensor, "batch token"]  # words of a sequence by number, 0 is padding
Logits = Float[Tensor, "batch *token label"]  # of a sequence, or of each of its tokens
Tokens = Float[Tensor, "batch token channel"]
Rows = Float[Tensor, "row channel"]  # tokens of all samples
Sources = Float[Tensor, "batch source channel"]
Heads = Float[Tensor, "batch head token width"]
Mixed = Float[Tensor, "batch head _ _"]  # heads of queries or sources, with or without the coordinates
Matrices = Float[Tensor, "batch *head _ _"]  # that mix tokens, head by head or all in one
Carried = Float[Tensor, "batch _ ..."]  # the same samples with other channels or on another grid
Places = Float[Tensor, "coordinate *grid"]
Positions = Real[Tensor, "... token coordinate"]  # of all samples, or sample by sample
SourcePositions = Real[Tensor, "... source coordinate"]
Mask = Shaped[Tensor, "#batch #token source"]  # bool or 0/1; true where a query sees a source
Weight = Float[Tensor, "#batch #token #channel"]

__all__ = [
    "Blocks",
    "Carried",
    "Channels",
    "Field",
    "Heads",
    "Line",
    "Logits",
    "Mask",
    "Matrices",
    "Mixed",
    "Numbers",
    "Places",
    "Plane",
    "Positions",
    "Rows",
    "SourcePositions",
    "Sources",
    "Tokens",
    "Weight",
]
