"""neuraloperator's FNO as a step operator, in its environment: state and parameter in, the next state out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from neuralop.models import FNO
from torch import Tensor, nn

CHANNELS, LAYERS, WIDE = 32, 4, 64


@dataclass(frozen=True)
class Shape:
    """What is chosen of a network.

    Attributes:
        modes: Modes per axis, positive and negative ones together, as neuraloperator counts.
        increment: Whether the network's output is added to the state.
        located: Whether the coordinates of the grid enter as channels.
    """

    modes: tuple[int, ...]
    increment: bool
    located: bool


class StepNetwork(nn.Module):
    """Standardise state and parameter, apply FNO to them as channels, and return the next state in its units.

    Args:
        shape: What is chosen.
        states: Training states `[sample, *grid]`.
        parameters: Of every sample, `[sample]`.
        following: The next states `[sample, *grid]`.
    """

    statistics: Tensor
    coordinates: Tensor

    def __init__(self, shape: Shape, states: Tensor, parameters: Tensor, following: Tensor) -> None:
        super().__init__()
        self.shape = shape
        grid = states.shape[1:]
        axes = [torch.arange(side) / side for side in grid] if shape.located else []
        located = torch.stack(torch.meshgrid(*axes, indexing="ij")) if axes else torch.zeros(0, *grid)
        self.register_buffer("coordinates", located)
        target = following - states if shape.increment else following
        moments = [torch.stack([each.mean(), each.std()]) for each in (states, parameters, target)]
        self.register_buffer("statistics", torch.stack(moments))
        self.network = FNO(
            n_modes=shape.modes,
            hidden_channels=CHANNELS,
            in_channels=2 + len(located),
            out_channels=1,
            n_layers=LAYERS,
            lifting_channels=WIDE,
            projection_channels=WIDE,
        )

    def forward(self, states: Tensor, parameters: Tensor) -> Tensor:
        """Return the next states `[batch, *grid]`."""
        (mean, deviation), (centre, spread), (shift, size) = self.statistics
        grid = states.shape[1:]
        number = ((parameters - centre) / spread).reshape(-1, 1, *(1,) * len(grid)).expand(-1, 1, *grid)
        places = self.coordinates.expand(len(states), *self.coordinates.shape)
        found: Tensor = self.network(torch.cat([(states - mean)[:, None] / deviation, number, places], dim=1))[:, 0]
        output: Tensor = found * size + shift
        return states + output if self.shape.increment else output
