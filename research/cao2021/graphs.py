r"""Token features by sums over a graph: graph convolutions with trained edges, and graph attention.

Nodes are the points of a grid; an edge carries features, such as the entries of the graph Laplacian and of its powers.

.. math::
    \text{convolution:}\quad y_{ic} = \sum_j E_{ijc}\,(x_j W)_c + b_c, \qquad E = \mathrm{CNN}(\text{edges})

.. math::
    \text{attention:}\quad y_i = \mathrm{elu}\Bigl(\sum_j \sigma_j\bigl(\mathrm{leaky}(a_1 \cdot h_i +
    a_2 \cdot h_j)\bigr) h_j\Bigr), \quad h = xW, \quad j \text{ a neighbour of } i

Both hold a number per pair of nodes, so time and memory grow with the square of their number. They are the `GCN` and
the `GAT` of a paper's code (Cao, NeurIPS 2021, https://arxiv.org/abs/2105.14995).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from research.cao2021.layers import ResidualBlock
from schema.parts import Frozen
from training.nn.grids import TOKENS, Tokens, expect
from training.nn.pointwise import Dropout

Edges = Float[Tensor, "#batch token token feature"]
EdgeChannels = Float[Tensor, "#batch _ token token"]
Extracted = Float[Tensor, "batch token _"]
NEIGHBOUR = 1e-6  # an entry of the Laplacian above this is an edge
NOTHING = -9e15  # the score of a pair without an edge
SLOPE = 1e-2  # of the scores below zero


class GraphConfig(Frozen):
    """Options of both kinds of feature extractors."""

    layers: PositiveInt = 2
    activate: bool = True  # ReLU after all layers but the first and the last
    dropout: float = 0.1


class GraphConvolutionConfig(GraphConfig):
    """Options of graph convolutions.

    Example:
        >>> GraphConvolutionConfig(powers=4).layers
        2
    """

    kind: Literal["graph-convolution"] = "graph-convolution"
    powers: PositiveInt = 3  # of the Laplacian: edge features
    keep: bool = False  # the edge features are channels themselves


class GraphAttentionConfig(GraphConfig):
    """Options of graph attention.

    Example:
        >>> GraphAttentionConfig(layers=3).powers
        1
    """

    kind: Literal["graph-attention"] = "graph-attention"
    activate: bool = False

    @property
    def powers(self) -> int:
        """The edge features: the Laplacian alone."""
        return 1


GraphFeaturesConfig = Annotated[GraphConvolutionConfig | GraphAttentionConfig, Field(discriminator="kind")]


def line_laplacians(index: Tensor, powers: int, dtype: torch.dtype, *, periodic: bool = False) -> Edges:
    r"""Return the normalised graph Laplacian :math:`I - D^{-1/2} A D^{-1/2}` of a line of points, and its powers.

    Args:
        index: The indices 0..n-1 of the points. Only their number matters.
        powers: How many powers, the first among them.
        dtype: The dtype of the result.
        periodic: Whether the two ends are neighbours.

    Returns:
        Powers of shape `[1, n, n, powers]`.

    Example:
        >>> line_laplacians(torch.arange(4), 2, torch.float32, periodic=True)[0, 0, :, 0]
        tensor([ 1.0000, -0.5000,  0.0000, -0.5000])
    """
    distance = (index[:, None] - index[None]).abs()
    near = distance == 1
    if periodic:
        near = near | (distance == index[-1:])
    adjacent = near.to(dtype)
    weight = adjacent.sum(dim=1).rsqrt()
    first = (distance == 0).to(dtype) - weight[:, None] * adjacent * weight[None]
    found = [first]
    for _ in range(powers - 1):
        found.append(found[-1] @ first)
    return torch.stack(found, dim=-1)[None]


class EdgeFeatures(nn.Module):
    """Compute one matrix per channel of the edge features by two chained 3 x 3 convolutions over pairs of nodes.

    Args:
        features: The number of edge features.
        channels: The number of channels, more than `features`.
        keep: The edge features are the first channels.
        dropout: The dropout rate after both convolutions. It is 0 in evaluation.

    Raises:
        ValueError: There are too few channels.

    Example:
        >>> EdgeFeatures(3, 9)(torch.randn(1, 6, 6, 3)).shape
        torch.Size([1, 9, 6, 6])
    """

    def __init__(self, features: int, channels: int, *, keep: bool = False, dropout: float = 0.1) -> None:
        super().__init__()
        if channels - (features if keep else 0) < 2 or channels <= features:
            raise ValueError(f"expected more channels than the {features} edge features but got {channels}")
        self.keep, made = keep, channels - (features if keep else 0)
        first = int(made / 3 * 2)
        self.first = ResidualBlock(features, first, dropout=dropout)
        self.second = ResidualBlock(first, made - first, dropout=dropout)

    def forward(self, edges: Edges) -> EdgeChannels:
        planes = edges.movedim(-1, 1)
        first = self.first(planes)
        made = [first, self.second(first)]
        return torch.cat([planes, *made] if self.keep else made, dim=1)


class GraphConvolution(nn.Module):
    """Map the tokens linearly and sum them over the edges, by a matrix per channel; see the formula of the module.

    Args:
        inputs: The number of features per token.
        outputs: The number of features after the layer.

    Example:
        >>> GraphConvolution(2, 9)(torch.randn(4, 6, 2), torch.randn(1, 9, 6, 6)).shape
        torch.Size([4, 6, 9])
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(outputs)
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))

    def forward(self, tokens: Tokens, edges: EdgeChannels) -> Extracted:
        mapped = (tokens @ self.weight).transpose(1, 2)[..., None]
        return (edges @ mapped)[..., 0].transpose(1, 2) + self.bias


class GraphConvolutions(nn.Module):
    """Compute token features by layers of graph convolutions whose edges are trained (GCN).

    Args:
        config: The options.
        inputs: The number of features per token.
        channels: The number of features after every layer.

    References:
        | Semi-Supervised Classification with Graph Convolutional Networks (Kipf & Welling, ICLR 2017)
        | https://arxiv.org/abs/1609.02907

    Example:
        >>> layers = GraphConvolutions(GraphConvolutionConfig(powers=3), 2, 9)
        >>> layers(torch.randn(4, 50, 2), line_laplacians(torch.arange(50), 3, torch.float32)).shape
        torch.Size([4, 50, 9])
    """

    def __init__(self, config: GraphConvolutionConfig, inputs: int, channels: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.edges = EdgeFeatures(config.powers, channels, keep=config.keep, dropout=config.dropout)
        self.layers = nn.ModuleList(
            GraphConvolution(channels if number else inputs, channels) for number in range(config.layers)
        )
        self.activate = config.activate

    def forward(self, tokens: Tokens, edges: Edges) -> Extracted:
        expect(tokens, TOKENS, self.inputs, self)
        channels = self.edges(edges)
        for number, layer in enumerate(self.layers):
            tokens = layer(tokens, channels)
            if self.activate and 0 < number < len(self.layers) - 1:
                tokens = tokens.relu()
        return tokens


class GraphAttention(nn.Module):
    """Average the mapped tokens of a node's neighbours by a softmax of scores; see the formula of the module.

    Args:
        inputs: The number of features per token.
        outputs: The number of features after the layer.
        dropout: The dropout rate of the weights. It is 0 in evaluation.

    Example:
        >>> GraphAttention(2, 5)(torch.randn(4, 6, 2), torch.eye(6)[None]).shape
        torch.Size([4, 6, 5])
    """

    def __init__(self, inputs: int, outputs: int, *, dropout: float = 0.1) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_normal_(torch.empty(inputs, outputs), math.sqrt(2)))
        self.score = nn.Parameter(nn.init.xavier_normal_(torch.empty(2 * outputs, 1), math.sqrt(2)))
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tokens, laplacian: Float[Tensor, "#batch token token"]) -> Extracted:
        mapped = tokens @ self.weight
        own, other = self.score.chunk(2)
        scores = functional.leaky_relu(mapped @ own + (mapped @ other).transpose(1, 2), SLOPE)
        absent = (laplacian.abs() <= NEIGHBOUR).to(scores.dtype)
        weights = (scores * (1 - absent) + NOTHING * absent).softmax(dim=-1)
        return functional.elu(self.dropout(weights) @ mapped)


class GraphAttentions(nn.Module):
    """Compute token features by layers of graph attention (GAT). The edges are those of the first edge feature.

    Args:
        config: The options.
        inputs: The number of features per token.
        channels: The number of features after every layer.

    References:
        | Graph Attention Networks (Veličković et al., ICLR 2018)
        | https://arxiv.org/abs/1710.10903

    Example:
        >>> layers = GraphAttentions(GraphAttentionConfig(), 2, 5)
        >>> layers(torch.randn(4, 50, 2), line_laplacians(torch.arange(50), 1, torch.float32)).shape
        torch.Size([4, 50, 5])
    """

    def __init__(self, config: GraphAttentionConfig, inputs: int, channels: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.layers = nn.ModuleList(
            GraphAttention(channels if number else inputs, channels, dropout=config.dropout)
            for number in range(config.layers)
        )
        self.activate = config.activate

    def forward(self, tokens: Tokens, edges: Edges) -> Extracted:
        expect(tokens, TOKENS, self.inputs, self)
        for number, layer in enumerate(self.layers):
            tokens = layer(tokens, edges[..., 0])
            if self.activate and 0 < number < len(self.layers) - 1:
                tokens = tokens.relu()
        return tokens


def build_graph_features(
    config: GraphConvolutionConfig | GraphAttentionConfig, inputs: int, channels: int
) -> GraphConvolutions | GraphAttentions:
    """Return new layers, which map tokens `[batch, token, inputs]` and edges to `[batch, token, channels]`.

    Args:
        config: The kind and the sizes.
        inputs: The number of features per token.
        channels: The number of features after every layer.

    Example:
        >>> len(build_graph_features(GraphAttentionConfig(layers=3), 2, 5).layers)
        3
    """
    if isinstance(config, GraphConvolutionConfig):
        return GraphConvolutions(config, inputs, channels)
    return GraphAttentions(config, inputs, channels)
