"""Predictions that need no network, which errors are compared with: the mean, or that nothing changes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from schema.problem import Quantity
from training.losses import Batch


def naive(work: Any, batch: Batch) -> list[Tensor]:
    """Return the prediction that needs no network: the mean training output, or the last given frame."""
    if not work.is_trajectory:
        each = zip(work.file.outputs, work.means, batch.outputs, strict=True)
        return [mean * valid(work, one, truth, batch) for one, mean, truth in each]
    inputs = dict(zip(work.file.argument_names, batch.inputs, strict=True))
    starts = {output: inputs[name] for name, output in work.file.states.items()}
    last = [starts[name] if work.history == 1 else starts[name][:, -1] for name in work.file.output_names]
    return [one[:, None].expand_as(truth) for one, truth in zip(last, batch.outputs, strict=True)]


def means(work: Any) -> list[Tensor]:
    """Return the mean outputs of the first training samples; where they have points of their own, over all points."""
    batch, found = work.statistics_batch(), []
    for one, output in zip(work.file.outputs, batch.outputs, strict=True):
        over, mask = (0, 1) if work.file.scattered and not one.scalar else (0,), valid(work, one, output, batch)
        found.append(output.sum(dim=over) / mask.sum(dim=over).clamp_min(1))
    return found


def valid(work: Any, one: Quantity, output: Tensor, batch: Batch) -> Tensor:
    """Return 1 where an output of a batch is defined, and 0 at padding of points and outside a domain."""
    if one.scalar:
        return torch.ones_like(output)
    if work.file.scattered:  # [sample, point, (component)]
        counts = batch.inputs[len(work.file.inputs)]
        mask = (torch.arange(output.shape[1]) < counts[:, None]).to(output.dtype)
        mask = mask.reshape(*mask.shape, *(1,) * (output.ndim - 2))
    elif work.file.mask is not None:  # [sample, (component), *grid], after the other inputs
        mask = batch.inputs[len(work.file.inputs) - 1]
        mask = mask.reshape(len(mask), *(1,) * (output.ndim - mask.ndim), *mask.shape[1:])
    else:
        return torch.ones_like(output)
    return mask.expand_as(output)
