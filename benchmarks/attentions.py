"""Networks with attention between points, which `points`, `mesh_trajectories` and `networks` compare with.

They are written here as their papers say: Transolver (Wu et al., ICML 2024), linear attention with softmax features
(LinearNO, arXiv 2511.06294), GNOT (Hao et al., ICML 2023) and low-rank spatial attention (LRSA, arXiv 2604.03582).
Features are `[batch, point, feature]`, and `weight` `[batch, point, 1]` is 1 at points and 0 at padding. The module
needs torch alone, because it runs in the environment of each network.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, LAYERS, HEADS, SLICES, TOKENS, EXPERTS = 64, 4, 8, 32, 64, 3


def pointwise(features: int, outputs: int, width: int = 2 * WIDTH) -> nn.Sequential:
    """Return a network of two layers for every point."""
    return nn.Sequential(nn.Linear(features, width), nn.GELU(), nn.Linear(width, outputs))


def heads(x: Tensor) -> Tensor:
    """Separate `[batch, point, feature]` into heads: `[batch, head, point, feature]`."""
    separate: Tensor = x.unflatten(2, (HEADS, -1))
    return separate.transpose(1, 2)


class PhysicsAttention(nn.Module):
    """Transolver's attention: points are averaged to slices, attention is between slices, which the points share."""

    def __init__(self) -> None:
        super().__init__()
        wide = WIDTH // HEADS
        self.fields, self.places = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.slices = nn.Linear(wide, SLICES)
        nn.init.orthogonal_(self.slices.weight)
        self.temperature = nn.Parameter(torch.full((1, HEADS, 1, 1), 0.5))
        self.projections = nn.ModuleList(nn.Linear(wide, wide, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        shares = torch.softmax(self.slices(heads(self.places(x))) / self.temperature.clamp(0.1, 5), dim=-1)
        shares = shares * weight[:, None]
        total = shares.sum(dim=2)[..., None]
        tokens = shares.transpose(2, 3) @ heads(self.fields(x)) / (total + 1e-5)
        found = functional.scaled_dot_product_attention(*(project(tokens) for project in self.projections))
        out: Tensor = self.out((shares @ found).transpose(1, 2).flatten(2))
        return out


class LinearAttention(nn.Module):
    """Linear attention with softmax features: of queries over the features, of keys over the points."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        query = torch.softmax(heads(self.query(x)), dim=-1)
        key = torch.softmax(heads(self.key(x)).masked_fill(weight[:, None] == 0, -1e9), dim=2)
        found: Tensor = self.out((query @ (key.transpose(2, 3) @ heads(self.value(x)))).transpose(1, 2).flatten(2))
        return found


class LowRankAttention(nn.Module):
    """LRSA: learned tokens attend to the points, then to one another, and the points attend to them.

    Each attention is softmax attention with heads, after a layer norm.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Parameter(0.02 * torch.randn(1, TOKENS, WIDTH))
        self.read, self.write = SoftmaxAttention(), SoftmaxAttention()
        self.process = Block(SoftmaxAttention())
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        tokens = self.tokens.expand(len(x), -1, -1)
        tokens = tokens + self.read(tokens, weight, x)
        tokens = self.norm(self.process(tokens, torch.ones_like(tokens[:, :, :1])))
        found: Tensor = self.write(x, torch.ones_like(tokens[:, :, :1]), tokens)
        return found


class SoftmaxAttention(nn.Module):
    """Softmax attention with heads, of each row of x to those of a source that have weight, by default x itself."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor, weight: Tensor, source: Tensor | None = None) -> Tensor:
        source = x if source is None else source
        parts = heads(self.query(x)), heads(self.key(source)), heads(self.value(source))
        valid = weight[:, None, :, 0].bool()[:, :, None] if bool((weight == 0).any()) else None
        found = functional.scaled_dot_product_attention(*parts, attn_mask=valid)
        out: Tensor = self.out(found.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """Attention and a pointwise network, each after a layer norm and added."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention, self.network = attention, pointwise(WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x), weight)
        found: Tensor = x + self.network(self.norms[1](x))
        return found


class AttentionNetwork(nn.Module):
    """Lift the features, apply blocks of one attention, and read the outputs off."""

    def __init__(self, attention: type[nn.Module], features: int, outputs: int) -> None:
        super().__init__()
        self.lift = pointwise(features, WIDTH)
        self.blocks = nn.ModuleList(Block(attention()) for _ in range(LAYERS))
        self.out = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, outputs))

    def forward(self, features: Tensor, weight: Tensor) -> Tensor:
        x = self.lift(features)
        for block in self.blocks:
            x = block(x, weight)
        found: Tensor = self.out(x)
        return found


class GridAttention(nn.Module):
    """Attention between the points of a grid: maps channels `[batch, channel, *grid]` to one channel."""

    def __init__(self, attention: type[nn.Module], channels: int) -> None:
        super().__init__()
        self.network = AttentionNetwork(attention, channels, 1)

    def forward(self, channels: Tensor) -> Tensor:
        features = channels.flatten(2).transpose(1, 2)
        found: Tensor = self.network(features, torch.ones_like(features[:, :, :1]))
        return found.transpose(1, 2).reshape(len(channels), 1, *channels.shape[2:])


class GnotBlock(nn.Module):
    """GNOT's block: attention to the inputs, then to the points themselves, each followed by experts gated by place."""

    def __init__(self) -> None:
        super().__init__()
        kinds = range(2)  # of the attention to the inputs and to the points
        self.projections = nn.ModuleList(nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4)) for _ in kinds)
        self.experts = nn.ModuleList(nn.ModuleList(pointwise(WIDTH, WIDTH) for _ in range(EXPERTS)) for _ in kinds)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(5))

    def forward(self, x: Tensor, inputs: Tensor, gates: Tensor, weight: Tensor) -> Tensor:
        for index, source in enumerate((self.norms[4](inputs), None)):
            here = self.norms[2 * index](x)
            x = x + self.attention(here, here if source is None else source, self.projections[index], weight)
            normal = self.norms[2 * index + 1](x)
            experts = cast("nn.ModuleList", self.experts[index])
            found = torch.stack([expert(normal) for expert in experts], dim=-1)
            x = x + (found * gates[:, :, None]).sum(dim=-1)
        return x

    @staticmethod
    def attention(x: Tensor, source: Tensor, projections: Any, weight: Tensor) -> Tensor:
        """Return normalised linear attention: softmax features of queries and keys, divided by their sum."""
        query = torch.softmax(heads(projections[0](x)), dim=-1)
        key = torch.softmax(heads(projections[1](source)), dim=-1) * weight[:, None]
        total = query @ key.sum(dim=2)[..., None]
        found = query @ (key.transpose(2, 3) @ heads(projections[2](source))) / total
        out: Tensor = projections[3](found.transpose(1, 2).flatten(2))
        return out


class Gnot(nn.Module):
    """GNOT with one input function, the fields at the points."""

    def __init__(self, features: int, outputs: int, dimensions: int) -> None:
        super().__init__()
        self.dimensions = dimensions
        self.place, self.inputs = pointwise(dimensions, WIDTH), pointwise(features, WIDTH)
        self.gate = pointwise(dimensions, EXPERTS, WIDTH)
        self.blocks = nn.ModuleList(GnotBlock() for _ in range(LAYERS // 2))
        self.out = pointwise(WIDTH, outputs)

    def forward(self, features: Tensor, weight: Tensor) -> Tensor:
        place = features[:, :, : self.dimensions]
        x, inputs, gates = self.place(place), self.inputs(features), torch.softmax(self.gate(place), dim=-1)
        for block in self.blocks:
            x = block(x, inputs, gates, weight)
        found: Tensor = self.out(x)
        return found
