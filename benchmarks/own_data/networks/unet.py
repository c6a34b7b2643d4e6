"""MONAI's U-Net, with batch normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monai.networks.nets import BasicUNet

from benchmarks.own_data.networks.channels import ChannelNetwork, count

if TYPE_CHECKING:
    from torch import nn

    from benchmarks.own_data.loop import Samples
    from benchmarks.own_data.samples import Prepared


def build(prepared: Prepared, samples: Samples) -> nn.Module:
    """Return the network of MONAI's default size.

    Args:
        prepared: Not used: the network pads every axis by zeros.
        samples: The training samples.
    """
    del prepared
    axes = samples.output.ndim - 1
    return ChannelNetwork(BasicUNet(axes, count(samples), 1, norm=("batch", {"affine": True})), samples)
