"""Names of tensor shapes that signatures in `training` share.

The dimension names are: `batch` samples; `row` and `column` the axes of a field on a plane; `block_row` and
`block_column` the axes of its means over blocks; `point` the axis of a line; `grid` any number of axes; `token` the
points that the encoder sees, flattened; `source` the tokens of keys and values; `channel` features; `head` attention
heads; `coordinate` components of a position. jaxtyping checks the annotations while the tests run; outside the tests
they cost nothing.
"""

from __future__ import annotations

from jaxtyping import Float, Integer, Real, Shaped
from torch import Tensor

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
