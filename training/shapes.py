"""The one vocabulary of tensor shapes: takes nothing, gives the names that signatures across `training` use.

Axes by name: `batch` samples, `row column` the two axes of a field, `point` the axis of a periodic line, `token` the
points the encoder sees (flattened over the token grid), `channel` features, `head` attention heads, `coordinate`
position components. Annotations are checked while the tests run (jaxtyping's import hook) and cost nothing otherwise.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

Line = Float[Tensor, "batch point"]
Plane = Float[Tensor, "batch row column"]
Field = Float[Tensor, "batch *grid"]
Channels = Float[Tensor, "batch channel *grid"]
Tokens = Float[Tensor, "batch token channel"]
Heads = Float[Tensor, "batch head token width"]
Carried = Float[Tensor, "batch _ ..."]  # the same samples with other channels or on another grid
Positions = Float[Tensor, "token coordinate"]

__all__ = ["Carried", "Channels", "Field", "Heads", "Line", "Plane", "Positions", "Tokens"]
