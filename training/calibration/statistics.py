r"""Statistics of a model's inputs: some numbers per sample that hardly depend on the grid's resolution.

Per channel, standardised over the fitted samples (the logarithm of a positive one): mean, logarithm of the deviation,
minimum, maximum; the share of values near each of some levels between the lowest and the highest, and how far values
lie beyond them; per axis the logarithms of the total variation of its lines, and of their mean's energies in bands of
frequency. A parameter is a statistic itself.

The roughness is apart from them, as it depends on the resolution: per channel and axis, the logarithm of the size of
second differences of neighbours. It tells levels of noise apart, and interfaces from smooth fields.

The novelty of an input is the conformal p-value of its statistics among those of calibration inputs.

.. math::
    p = \frac{1 + \#\{i : d_i \ge d\}}{n + 1},

with :math:`d` the Mahalanobis distance of the statistics' normal scores to those of fitted inputs, and :math:`d_i` that
of calibration input :math:`i`. An input of the same distribution has :math:`p < 0.01` with a probability of about 1 %.
Where an input tells two groups of samples apart, each is compared with its own, if both are large enough for that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

LEVELS = 8
BANDS = (1, 2, 4, 8)  # the last frequency of each band
SMALLEST = 1e-3  # size of what does not vary, in deviations of its channel
FARTHEST = 10.0  # steps between levels: how far beyond them a value counts

Statistics = Float[Tensor, "batch statistic"]
Channels = Float[Tensor, "batch channel *grid"]  # of fields
Basis = tuple[Float[Tensor, "_ _"], ...]  # points and waves of an axis
KNOTS = 33
LEAST = 1e-2  # distance of two knots, in deviations and in units of the statistic: a statistic may never vary
LINEAR = 3.0  # scores beyond grow by their logarithm


class InputStatistics(nn.Module):
    """Compute the statistics of every sample.

    Args:
        logarithms: Per channel of the inputs, then per parameter, whether its logarithm is taken.
        periodic: Per axis of the grid, whether it is periodic: its waves are then whole.

    Example:
        >>> statistics = InputStatistics((True,), periodic=(False, False))
        >>> fields = torch.rand(5, 16, 12) + 1
        >>> statistics.fit([fields])
        >>> statistics([fields]).shape
        torch.Size([5, 24])
    """

    mean: Tensor
    deviation: Tensor
    levels: Tensor
    bands: Tensor  # which waves belong to which band

    def __init__(self, logarithms: Sequence[bool], periodic: Sequence[bool]) -> None:
        super().__init__()
        self.logarithms, self.periodic, self.axes = tuple(logarithms), tuple(periodic), len(periodic)
        count = len(self.logarithms)
        self.register_buffer("mean", torch.zeros(count))
        self.register_buffer("deviation", torch.ones(count))
        self.register_buffer("levels", torch.linspace(-1, 1, LEVELS).repeat(count, 1))
        waves = torch.arange(1, BANDS[-1] + 1)[:, None]
        last, before = torch.tensor(BANDS), torch.tensor((0, *BANDS[:-1]))
        self.register_buffer("bands", ((waves > before) & (waves <= last)).float(), persistent=False)

    @torch.no_grad()
    def fit(self, inputs: Sequence[Tensor]) -> None:
        """Set the units of the channels from the arguments of an operator, `[sample, (component,) *grid]` each."""
        for index, channel in enumerate(self.channels(inputs)):
            values = channel.double()
            deviation, mean = torch.std_mean(values, correction=0)
            # A channel that never varies is measured in units of its value.
            unit = deviation if deviation > 1e-6 * mean.abs() else mean.abs() if mean != 0 else mean + 1e-6
            z = (values - mean) / unit
            low, high = z.amin().item(), z.amax().item()
            margin = max(0.1 * (high - low), 1e-2)
            self.mean[index], self.deviation[index] = mean, unit
            self.levels[index] = torch.linspace(low - margin, high + margin, LEVELS)

    def forward(self, inputs: Sequence[Tensor]) -> Statistics:
        channels = self.channels(inputs)
        where = self.fields(channels)
        rows = self.of_fields(self.standardised(channels, where), self.levels[where]).unbind(1) if where else ()
        found = dict(zip(where, rows, strict=True))
        for index, each in enumerate(channels):
            if index not in found:
                found[index] = ((each - self.mean[index]) / self.deviation[index])[:, None]
        return torch.cat([found[index] for index in range(len(channels))], dim=1)

    def roughness(self, inputs: Sequence[Tensor]) -> Float[Tensor, "batch _"]:
        """Return the logarithms of the sizes of second differences, per channel of a field and axis."""
        channels = self.channels(inputs)
        if not (where := self.fields(channels)):
            return channels[0][:, None][:, :0]  # numbers have none
        z = self.standardised(channels, where)
        points = total(torch.ones_like(z), self.axes)
        bends = [(total(bend(z, axis).square(), self.axes) / points).sqrt() for axis in range(2, z.ndim)]
        return logarithm(torch.stack(bends, dim=-1)).flatten(1)

    @staticmethod
    def fields(channels: Sequence[Tensor]) -> list[int]:
        """Return which channels are fields. All have one grid."""
        return [index for index, each in enumerate(channels) if each.ndim > 1]

    def standardised(self, channels: Sequence[Tensor], where: list[int]) -> Channels:
        """Return some fields as one tensor: a graph then has as few operators for all of them as for one."""
        ones = (1,) * self.axes
        mean, deviation = (each[where].reshape(-1, *ones) for each in (self.mean, self.deviation))
        return (torch.stack([channels[index] for index in where], dim=1) - mean) / deviation

    def channels(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Split arguments into channels `[sample, *grid]` and parameters `[sample]`, with their logarithms taken."""
        parts = [part for tensor in inputs for part in self.components(tensor)]
        smallest = torch.finfo(parts[0].dtype).tiny
        return [
            part.clamp_min(smallest).log() if logarithm else part
            for part, logarithm in zip(parts, self.logarithms, strict=True)
        ]

    def components(self, tensor: Tensor) -> list[Tensor]:
        """Return the components of a vector field, or the scalar field or the parameter alone."""
        return list(tensor.unbind(1)) if tensor.ndim == self.axes + 2 else [tensor]

    def of_fields(self, z: Channels, levels: Float[Tensor, "channel level"]) -> Float[Tensor, "batch channel _"]:
        grid, ones = tuple(range(2, z.ndim)), (1,) * self.axes
        # From the first point on: a constant field is exactly zero then. Its spread would be the rounding of its mean,
        # and the logarithms of spread and energies of waves would make 8 % of an estimate of that.
        first = z[(slice(None), slice(None), *(slice(1),) * self.axes)]
        shifted = z - first
        offset = average(shifted, self.axes)
        spread = average((shifted - offset.reshape(*offset.shape, *ones)).square(), self.axes).sqrt()
        mean = first.flatten(1) + offset
        found = [
            mean,
            logarithm(spread),
            z.amin(grid),
            z.amax(grid),
            *self.shares(z, levels.reshape(*levels.shape, *ones)),
        ]
        return torch.cat([torch.stack(found, dim=-1), self.shapes(shifted)], dim=-1)

    def shares(self, z: Channels, levels: Float[Tensor, "channel level *_"]) -> list[Float[Tensor, "batch channel"]]:
        """Return the shares of values near each level (a hat function), and how far they lie beyond the outer ones."""
        steps = (z - levels[:, 0]) / (levels[:, 1] - levels[:, 0])
        near = [average((1 - (steps - level).abs()).relu(), self.axes) for level in range(LEVELS)]
        beyond = [average(each.relu().clamp_max(FARTHEST), self.axes) for each in (-steps, steps - (LEVELS - 1))]
        return near + beyond

    def shapes(self, z: Channels) -> Float[Tensor, "batch channel _"]:
        """Return the logarithms of total variation and energies of bands of frequency along every axis."""
        found = []
        for axis, periodic in enumerate(self.periodic, start=2):
            steps = z.narrow(axis, 1, z.shape[axis] - 1) - z.narrow(axis, 0, z.shape[axis] - 1)
            others = tuple(other for other in range(2, z.ndim) if other != axis)
            line = z.mean(others) if others else z
            found.append(average(steps.abs().sum(axis), self.axes - 1)[..., None])
            found.append(energies(line, basis(z, axis, periodic=periodic), self.bands))
        return logarithm(torch.cat(found, dim=-1))


def average(z: Tensor, axes: int) -> Tensor:
    """Return the mean over the last axes, one by one: runtimes add up 177,241 values in unlike orders, 2.7e-4 apart."""
    return average(z.mean(-1), axes - 1) if axes else z


def total(z: Tensor, axes: int) -> Tensor:
    """Return the sum over the last axes, one by one as `average`."""
    return total(z.sum(-1), axes - 1) if axes else z


def logarithm(size: Tensor) -> Tensor:
    """Return the logarithm of a size, by which fields of twice the frequency or half the contrast stand out."""
    return (size + SMALLEST).log()


def bend(z: Tensor, axis: int) -> Tensor:
    """Return the second differences along an axis."""
    inside = z.shape[axis] - 2
    return z.narrow(axis, 0, inside) - 2 * z.narrow(axis, 1, inside) + z.narrow(axis, 2, inside)


def basis(field: Tensor, axis: int, *, periodic: bool) -> Basis:
    """Return the waves of the bands on the cell centres of an axis, over their number: cosines and, if whole, sines."""
    index = torch.arange(field.shape[axis], device=field.device)
    count = (index[-1:] + 1).to(field.dtype)
    waves = torch.arange(1, BANDS[-1] + 1, device=field.device).to(field.dtype)
    angle = ((index.to(field.dtype) + 0.5) / count)[:, None] * ((2 if periodic else 1) * math.pi * waves)
    return tuple(wave(angle) / count for wave in ((torch.cos, torch.sin) if periodic else (torch.cos,)))


def energies(
    line: Float[Tensor, "batch channel point"], waves: Basis, bands: Tensor
) -> Float[Tensor, "batch channel band"]:
    """Return the roots of the energies of lines by band of frequency, without the mean."""
    first, *others = ((line @ wave).square() for wave in waves)
    return (sum(others, first) @ bands).sqrt()


class NormalScores(nn.Module):
    """Interpolate the quantiles of fitted statistics linearly to those of the normal distribution."""

    knots: Tensor
    bends: Tensor
    first: Tensor
    mean: Tensor

    def __init__(self, statistics: int) -> None:
        super().__init__()
        self.register_buffer("knots", torch.zeros(KNOTS - 1, statistics))
        self.register_buffer("bends", torch.zeros(KNOTS - 1, statistics))
        self.register_buffer("first", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(statistics))

    @torch.no_grad()
    def fit(self, fitted: Statistics) -> None:
        values = fitted.double()
        levels = torch.linspace(0.5 / len(values), 1 - 0.5 / len(values), KNOTS, dtype=values.dtype)
        scores = math.sqrt(2) * torch.erfinv(2 * levels - 1)
        deviation = values.std(0, correction=0)
        least = LEAST * (deviation + 1)
        knots = torch.quantile(values, levels, dim=0)
        for below, above in pairwise(knots):
            above.copy_(torch.maximum(above, below + least))
        slopes = scores.diff()[:, None] / knots.diff(dim=0)
        slopes[[0, -1]] = torch.minimum(slopes[[0, -1]], 1 / (deviation + LEAST))  # also beyond all quantiles
        self.first.copy_(scores[0])
        self.knots.copy_(knots[:-1])
        self.bends.copy_(torch.cat([slopes[:1], slopes.diff(dim=0)]))
        # Equal values, such as those of a statistic that never varies, have the score of the lowest of them.
        self.mean.copy_(self(fitted).mean(0))

    def forward(self, statistics: Statistics) -> Statistics:
        beyond = statistics[:, None] - self.knots
        first, rest = beyond[:, 0], beyond[:, 1:].clamp_min(0)
        scores = self.first + self.bends[0] * first + (self.bends[1:] * rest).sum(1)
        excess = (scores.abs() - LINEAR).clamp_min(0)
        return scores.clamp_min(-LINEAR).clamp_max(LINEAR) + scores.sign() * torch.log1p(excess) - self.mean


# How unusual an input is


COVERAGE = 0.9
OUTSIDE = 0.01  # an input of a smaller p-value is outside the training distribution
# And of one below this nothing is known: of 999 calibration inputs or more, none is as unusual.
OUT_OF_DISTRIBUTION = 0.001


def fewest(coverage: float = COVERAGE) -> int:
    """Return the fewest calibration samples that give a finite quantile."""
    return math.ceil(coverage / (1 - coverage) - 1e-9)


class Novelty(nn.Module):
    """Compute the p-value of every sample among calibration inputs, those of its group where there are two groups."""

    whitening: Tensor
    distances: Tensor
    others: Tensor

    def __init__(self, statistics: int, calibration: int, second: int = 0) -> None:
        super().__init__()
        self.scores = NormalScores(statistics)
        self.register_buffer("whitening", torch.eye(statistics))
        self.register_buffer("distances", torch.zeros(calibration))
        if second:
            self.register_buffer("others", torch.zeros(second))

    @property
    def out_of_distribution(self) -> float | None:
        """The p-value below which no calibration input is as unusual; None where there are too few to tell."""
        counts = [len(self.distances), *([len(self.others)] if hasattr(self, "others") else [])]
        # The one limit is for both groups, so that inputs of the smaller one can be below it.
        return max(OUT_OF_DISTRIBUTION, self.least(min(counts))) if self.tells(min(counts)) else None

    @staticmethod
    def least(count: int) -> float:
        """Return what is larger than the p-value of an input that is farther than all of so many, and than no other."""
        return 1.5 / (count + 1)

    @classmethod
    def tells(cls, count: int) -> bool:
        """Return whether so many calibration inputs are enough to tell that another one is outside."""
        return cls.least(count) < OUTSIDE

    @torch.no_grad()
    def fit(
        self,
        fitted: Statistics,
        calibration: Float[Tensor, "_ statistic"],
        second: Float[Tensor, "_ statistic"] | None = None,
    ) -> None:
        """Set scores and covariance from some inputs, and the distances of others."""
        self.scores.fit(fitted)
        z = self.scores(fitted).double()
        count, size = z.shape
        shrinkage = 0.01 + size / (size + count)
        covariance = z.T @ z / count
        covariance.diagonal().clamp_min_(1)  # a statistic that never varies among few samples may vary
        covariance = (covariance + shrinkage * torch.eye(size, dtype=z.dtype)) / (1 + shrinkage)
        values, vectors = torch.linalg.eigh(covariance)
        self.whitening.copy_(vectors * values.rsqrt())
        self.distances.copy_(self.distance(calibration).sort().values)
        if second is not None:
            self.others.copy_(self.distance(second).sort().values)

    def distance(self, statistics: Statistics) -> Float[Tensor, " batch"]:
        """Return the squared Mahalanobis distance."""
        return (self.scores(statistics) @ self.whitening).square().sum(-1)

    def forward(self, statistics: Statistics, group: Bool[Tensor, "batch 1"] | None = None) -> Float[Tensor, "batch 1"]:
        distance = self.distance(statistics)[:, None]
        first = share(self.distances, distance)
        return first if group is None else torch.where(group, share(self.others, distance), first)


def share(distances: Float[Tensor, " _"], distance: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch 1"]:
    """Return the share of a new sample and its group that are at least as far as it."""
    farther = (distances >= distance).to(distance.dtype)
    return (1 + farther.sum(-1, keepdim=True)) / (distances.shape[0] + 1)
