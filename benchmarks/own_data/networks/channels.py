"""What FNO and U-Net need around them: physical units, parameters as constant channels, coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from benchmarks.own_data.loop import Samples

DECADES = 30.0  # a positive quantity that spans more enters by its logarithm, as in the presets of own data


class ChannelNetwork(nn.Module):
    """Standardise fields and parameters, join them and the coordinates as channels, and apply a network.

    Args:
        network: The map from channels to one channel.
        samples: The training samples, for the statistics.
    """

    def __init__(self, network: nn.Module, samples: Samples) -> None:
        super().__init__()
        self.network = network
        self.logarithmic = [bool(each.min() > 0 and each.max() > DECADES * each.min()) for each in samples.inputs]
        self.statistics = [moments(self.scaled(each, index)) for index, each in enumerate(samples.inputs)]
        self.mean, self.deviation = moments(samples.output)
        ends = [(torch.arange(side) + 0.5) / side for side in samples.output.shape[1:]]
        self.coordinates = torch.stack(torch.meshgrid(*ends, indexing="ij"))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the output field `[batch, *grid]`."""
        grid = self.coordinates.shape[1:]
        parts = [self.channel(each, index) for index, each in enumerate(inputs)]
        parts.append(self.coordinates.expand(len(inputs[0]), *self.coordinates.shape))
        found: Tensor = self.network(torch.cat([each.expand(-1, -1, *grid) for each in parts], dim=1))
        return found[:, 0] * self.deviation + self.mean

    def channel(self, values: Tensor, index: int) -> Tensor:
        """Return one input, standardised, as `[batch, 1, *grid]`, or with sides of length one."""
        mean, deviation = self.statistics[index]
        standard = (self.scaled(values, index) - mean) / deviation
        return standard.reshape(len(values), 1, *(values.shape[1:] or (1,) * (self.coordinates.ndim - 1)))

    def scaled(self, values: Tensor, index: int) -> Tensor:
        """Return an input or its logarithm."""
        return torch.log(values) if self.logarithmic[index] else values


def moments(values: Tensor) -> tuple[float, float]:
    """Return mean and standard deviation."""
    return float(values.mean()), float(values.std())


def count(samples: Samples) -> int:
    """Return the number of channels: inputs, parameters and coordinates."""
    return len(samples.inputs) + samples.output.ndim - 1
