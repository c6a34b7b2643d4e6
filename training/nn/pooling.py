r"""Numbers of a field: a mean of features over the domain, by the measure of the points, and a map of it; or integrals.

.. math::
    y = W_2\,\sigma\Bigl(W_1 \frac{\sum_i w_i\,\sigma(W x_i)}{\sum_i w_i}\Bigr)

The features are learned, so that the mean is that of a square, or of what lies near a wall: an energy, a drag. A mean
depends on the resolution only by the error of its quadrature.

An integral of an output is no map that is learned: it is computed from the output, as from the data.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from training.integrals import Along, over_grid


class Pooling(nn.Module):
    """Map features `[batch, channel, *grid]` to numbers `[batch, number]`.

    With `domain` the weights differ from sample to sample, and the share of the grid that they cover is a feature: an
    integral grows with its domain.

    Example:
        >>> Pooling(4, 2)(torch.rand(3, 4, 6, 5), torch.ones(6, 5)).shape
        torch.Size([3, 2])
    """

    def __init__(self, channels: int, numbers: int, *, domain: bool = False) -> None:
        super().__init__()
        self.domain, width = domain, 2 * channels
        self.lift = nn.Sequential(nn.Linear(channels, width), nn.SiLU())
        self.head = nn.Sequential(nn.Linear(width + domain, width), nn.SiLU(), nn.Linear(width, numbers))

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        """Pool by weights `[*grid]`, or `[batch, *grid]` of a domain."""
        features = self.lift(x.flatten(2).transpose(1, 2))  # [batch, point, feature]
        share = weights.flatten(1)[:, :, None] if self.domain else weights.flatten()[None, :, None]
        covered = share.sum(dim=1)
        mean = (features * share).sum(dim=1) / covered
        if self.domain:
            mean = torch.cat([mean, covered / share.shape[1]], dim=1)
        found: Tensor = self.head(mean)
        return found


def quadrature(sides: Sequence[int], halved: Sequence[bool]) -> Tensor:
    """Return the weights `[*grid]` of points of equal cells; `halved` per axis whether the outermost ones are at ends.

    Example:
        >>> quadrature([3, 2], [True, False])
        tensor([[0.5000, 0.5000],
                [1.0000, 1.0000],
                [0.5000, 0.5000]])
    """
    found = torch.ones(*sides)
    for axis, (side, at_ends) in enumerate(zip(sides, halved, strict=True)):
        along = torch.ones(side)
        if at_ends:
            along[[0, -1]] = 0.5
        found = found * along.reshape([side if other == axis else 1 for other in range(len(sides))])
    return found


class IntegralConfig(BaseModel):
    """An integral of an output field, over a grid or over points by what each of them measures."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    output: int  # the number of the field among the outputs
    component: int | None = None  # which component of it; None for all, or where it has none
    # The numbers of the arguments that multiply the field, and which component of each; None where it has none.
    factors: tuple[tuple[int, int | None], ...] = ()
    ends: tuple[tuple[int, int], ...] = ()  # axes and ends (0 or -1) that it is taken over; none for the whole grid
    lengths: tuple[float, ...] = ()  # of the axes; none on points
    factor: float = 1.0

    def of(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        rules: Sequence[str] = (),
        inside: Tensor | None = None,
    ) -> Tensor:
        """Integrate an output `[batch, (component), *grid]`, or on points `[batch, point, (component)]`.

        Args:
            outputs: The fields, 0 outside the domain and at padding.
            inputs: The arguments of the network.
            rules: Per axis where its points lie; none on points.
            inside: Where the arguments mean something, `[batch, *grid]` or `[batch, point]`; None for everywhere.

        Returns:
            Numbers `[batch, (component)]`.

        Example:
            >>> one = IntegralConfig(output=0, lengths=(2.0, 3.0))
            >>> round(one.of([torch.ones(1, 4, 5)], [], ["cells", "nodes"]).item(), 4)
            6.0
        """
        axes = max(1, len(rules))
        values = channel(outputs[self.output], axes, self.component, last=not rules)
        vector = values.ndim > 1 + axes
        for number, component in self.factors:
            weight = channel(inputs[number], axes, component, last=not rules)
            weight = weight if inside is None else torch.where(inside, weight, torch.zeros_like(weight))
            values = values * (weight[:, :, None] if vector and not rules else weight[:, None] if vector else weight)
        if not rules:
            return self.factor * values.sum(dim=1)
        sides = [torch.arange(side, device=values.device).to(values.dtype) for side in values.shape[-axes:]]
        along = [Along(*each) for each in zip(rules, self.lengths, sides, strict=True)]
        found: Tensor = self.factor * over_grid(values, along, self.ends)
        return found


def channel(field: Tensor, axes: int, component: int | None, *, last: bool) -> Tensor:
    """Return a component of a field `[batch, component, *grid]`, which is `last` on points; None for all of it."""
    if component is None:
        return field
    return field[..., component] if last else field.select(-1 - axes, component)
