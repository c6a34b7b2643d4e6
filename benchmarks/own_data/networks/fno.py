"""neuraloperator's Fourier neural operator (Li et al., ICLR 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuralop.models import FNO

from benchmarks.own_data.networks.channels import ChannelNetwork, count

if TYPE_CHECKING:
    from torch import nn

    from benchmarks.own_data.loop import Samples
    from benchmarks.own_data.samples import Prepared

LAYERS = 4
WIDE = 64  # channels of lifting and projection, as in the library's Darcy example


def build(prepared: Prepared, samples: Samples, *, modes: int, channels: int = 32, padding: float = 0.0) -> nn.Module:
    """Return the network.

    Args:
        prepared: What the axes are.
        samples: The training samples.
        modes: Modes per axis, positive and negative ones together, as neuraloperator counts.
        channels: Hidden channels.
        padding: The share of an axis with ends that is appended as zeros; 0 for none.
    """
    sides = samples.output.shape[1:]
    network = FNO(
        n_modes=tuple(min(modes, side) for side in sides),
        hidden_channels=channels,
        in_channels=count(samples),
        out_channels=1,
        n_layers=LAYERS,
        lifting_channels=WIDE,
        projection_channels=WIDE,
        domain_padding=[0.0 if closed else padding for closed in prepared.periodic] if padding else None,
    )
    return ChannelNetwork(network, samples)
