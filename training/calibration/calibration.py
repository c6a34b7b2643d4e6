"""The calibration of a model: a module that returns the quality of its predictions, its file, and what a card says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from training.calibration.error_estimate import ErrorEstimate, coverage, guarantee
from training.calibration.samples import CalibrationSamples, Measured
from training.calibration.statistics import OUTSIDE, InputStatistics, Novelty
from training.files import CALIBRATION, replacing
from training.messages import UserError, typed
from training.operators.operator import Operator

FILE = CALIBRATION
ERROR_ESTIMATE, NOVELTY = "error_estimate", "novelty"
ROUNDING = 1e-6  # relative to a default, within which a number is the default


class CalibrationError(UserError):
    """A file is no calibration: the message names it, what was expected and what was found."""


class Channel(BaseModel):
    """A channel of the inputs, or a parameter."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str  # its name; that of a component has the field's name before a point
    logarithm: bool = False  # whether its logarithm is taken


class Interval(BaseModel):
    """The interval of an output that is a number per sample, or one per component."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    output: str  # its name
    quality: str  # the name of what a graph says of it: the half-width, in units of the output
    deviations: tuple[float, ...]  # of the training samples, per component, in units of the output


class Layout(BaseModel):
    """The sizes of a calibration, from which its module is built before its numbers are read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[2] = 2  # of the module; a file of another one is calibrated again
    channels: tuple[Channel, ...]  # channels of the inputs, then the parameters
    periodic: tuple[bool, ...]  # per axis of the grid, whether it is periodic
    statistics: int  # the number of statistics per sample
    roughness: int  # the number of further statistics, which depend on the resolution
    fitted: int  # samples that gave the statistics' mean and covariance, and the expected size of the error
    inputs: int  # calibration inputs, behind the novelty
    errors: int  # calibration samples per grid, behind the error estimate; 0 where they were too few for one
    errors_of_a_case: int | None = None  # the fewest behind a quantile; earlier files, of equal cases, do not say it
    grids: tuple[int, ...]  # calibrated grids, by their numbers of points
    # What tells a first group of calibration samples, as of requests that leave it out, from a second one: positions of
    # fields among the arguments that are constant, and of numbers that have their defaults. In the second group one of
    # them varies, or has another value. None where there is one group.
    apart: tuple[int, ...] = ()
    defaults: tuple[tuple[int, float], ...] = ()
    # Calibration inputs of the second group, which are not among `inputs`; 0 where the novelty has all in one group.
    second: int = 0
    intervals: tuple[Interval, ...] = ()  # of the outputs that are numbers, in their order
    noise: tuple[float, ...] = ()  # levels of noise that the roughness tells apart, ascending; none where there is one

    @property
    def groups(self) -> int:
        return 2 if self.apart or self.defaults else 1

    @property
    def cases(self) -> int:
        """How many quantiles a grid has."""
        return self.groups * max(1, len(self.noise))

    @property
    def least(self) -> int:
        """The number of calibration samples that the quantile with the fewest of them rests on."""
        return self.errors // self.cases if self.errors_of_a_case is None else self.errors_of_a_case


class Calibration(nn.Module):
    """Compute what is known about the error of a prediction from the model's inputs."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        self.statistics = InputStatistics([channel.logarithm for channel in layout.channels], layout.periodic)
        self.novelty = Novelty(layout.statistics, layout.inputs, layout.second)
        sizes = layout.statistics + layout.roughness, len(layout.grids)
        cases = layout.groups, max(1, len(layout.noise)), layout.roughness
        self.estimate = ErrorEstimate(*sizes, *cases) if layout.errors else None
        numbers = sum(len(each.deviations) for each in layout.intervals)
        self.intervals = nn.ModuleList(ErrorEstimate(sizes[0], 1) for _ in range(numbers))

    @property
    def names(self) -> tuple[str, ...]:
        estimate = (ERROR_ESTIMATE,) if self.estimate is not None else ()
        return (*estimate, *(each.quality for each in self.layout.intervals), NOVELTY)

    def forward(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        """Return the error estimate, if there is one, the half-widths of intervals, and the novelty.

        They are `[batch, 1]` each, half-widths `[batch, component]`.
        """
        statistics = self.statistics(arguments)
        group = varies(arguments, self.layout.apart, self.layout.defaults)
        novelty = self.novelty(statistics, group if self.layout.second else None)
        if self.estimate is None and not self.intervals:
            return (novelty,)
        everything, found = torch.cat([statistics, self.statistics.roughness(arguments)], dim=1), []
        points = grid_points(arguments[0], len(self.layout.periodic))
        if self.estimate is not None:
            found.append(self.estimate(everything, points, group))
        modules = iter(self.intervals)
        for each in self.layout.intervals:
            widths = [next(modules)(everything, points) * deviation for deviation in each.deviations]
            found.append(torch.cat(widths, dim=1))
        return (*found, novelty)


def varies(
    arguments: Sequence[Tensor], positions: Sequence[int], defaults: Sequence[tuple[int, float]] = ()
) -> Tensor | None:
    """Return whether one of the fields at some positions varies, or a number differs from its default: `[batch, 1]`.

    None without any of both.
    """
    fields = [arguments[position].flatten(1) for position in positions]
    found = [values.amax(dim=1) > values.amin(dim=1) for values in fields]
    # In a graph a default is a number of float32, and where it is compared with the network one of float64.
    found += [(arguments[position] - value).abs() > ROUNDING * abs(value) for position, value in defaults]
    return torch.stack(found, dim=1).any(dim=1, keepdim=True) if found else None


def grid_points(field: Tensor, axes: int) -> Tensor:
    """Return the number of points of a field's grid as a tensor of shape `[1]`, which stays free in a graph.

    It is 1 where the first argument is a number: then there is one calibrated grid.
    """
    count = torch.ones(1, dtype=field.dtype, device=field.device)
    for side in field.shape[-axes:] if field.ndim > axes else ():
        count = count * (torch.arange(side, device=field.device)[-1:] + 1).to(field.dtype)
    return count


class CalibratedOperator(Operator):
    """Return an operator's outputs and quality outputs, then what is known about its errors.

    `novelty_limit` is the least novelty of an input whose output is sent as it is; None where no method continues it.
    """

    def __init__(self, operator: Operator, calibration: Calibration) -> None:
        super().__init__()
        self.operator, self.calibration = operator, calibration
        self.quality = (*operator.quality, *calibration.names)
        self.solve_limit = operator.solve_limit
        self.novelty_limit = calibration.novelty.out_of_distribution if operator.contains_solver else None

    def forward(self, *fields: Tensor) -> Tensor | tuple[Tensor, ...]:
        found: Tensor | tuple[Tensor, ...] = self.operator(*fields)
        return found

    def with_quality(self, *fields: Tensor) -> tuple[Tensor, ...]:
        found = self.operator.with_quality(*fields) if self.operator.quality else self.operator(*fields)
        outputs = (found,) if isinstance(found, Tensor) else tuple(found)
        return (*outputs, *self.judged(*fields))

    def judged(self, *fields: Tensor) -> tuple[Tensor, ...]:
        """Return what the calibration reports of these arguments, `[batch, 1]` each.

        Where some have a value per frame of a trajectory it is `[batch, frame]`: of the first state with each of them.
        """
        found: tuple[Tensor, ...] = self.calibration(*self.operator.canonical(*fields))
        if getattr(self.operator.config, "forced", ()):
            return tuple(each.reshape(fields[0].shape[0], -1) for each in found)
        return found


def save(folder: Path, calibration: Calibration) -> None:
    """Write the file of a calibration into a checkpoint's folder."""
    state = {name: tensor.contiguous() for name, tensor in calibration.state_dict().items()}
    with replacing(folder / FILE) as aside:
        save_file(state, aside, {"layout": calibration.layout.model_dump_json()})


def load(folder: Path) -> Calibration | None:
    """Read the calibration of a checkpoint's folder; None where there is none.

    Raises:
        CalibrationError: It is one of another version, or none.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            layout = json.loads((file.metadata() or {})["layout"])
            calibration = Calibration(Layout.model_validate({"version": 1} | layout))
            calibration.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except Exception as error:
        raise CalibrationError(
            f"{path}: expected a calibration of this version but found something else; "
            f"`{typed('calibrate', folder)}` renews it: {error}"
        ) from error
    return calibration.eval()


# What a card says


OUT_OF_DISTRIBUTION_SAMPLES = 50  # of each family out of distribution
SMOOTHED_POINTS = 4  # per axis
INTERPOLATION = {1: "linear", 2: "bilinear", 3: "trilinear"}


@torch.inference_mode()
def account(calibration: Calibration, operator: Operator, samples: CalibrationSamples) -> dict[str, Any]:
    """Return what a card says of a calibration: its samples, and how it does on test samples.

    These are per grid and kind the share whose error stays below the estimate (`coverage`) with its standard error, the
    means of estimate and error, and the share of inputs that are outside; and that share per family out of
    distribution, on the finest grid. `errors` counts the calibration samples of a grid, `errors_of_a_case` the fewest
    that a quantile rests on, and `guarantee` says what they promise.
    """
    layout, rows, finest = calibration.layout, [], None
    for one in samples.test:
        rows.append(row(calibration, operator, one))
        if finest is None or one.points(len(layout.periodic)) > finest.points(len(layout.periodic)):
            finest = one.first(OUT_OF_DISTRIBUTION_SAMPLES)
    return {
        "fitted": layout.fitted,
        "inputs": layout.inputs,
        "errors": layout.errors,
        "errors_of_a_case": layout.least,
        **({"guarantee": guarantee(layout.least)} if layout.errors else {}),
        **({"noise": list(layout.noise)} if layout.noise else {}),
        "test": rows,
        "foreign": {}
        if finest is None or not finest.inputs[-1].is_floating_point()
        else out_of_distribution_shares(calibration, operator, finest),
    }


def row(calibration: Calibration, operator: Operator, samples: Measured) -> dict[str, Any]:
    """Return the figures of test samples of one kind on one grid."""
    found = samples.of(lambda inputs: calibration(*operator.canonical(*inputs)))
    quality: dict[str, Tensor] = dict(zip(calibration.names, found, strict=True))
    figures: dict[str, Any] = {
        "grid": sides_of(samples.inputs, len(calibration.layout.periodic)),
        **samples.kind,
        "fields": len(samples),
        "outside": share(quality["novelty"] < OUTSIDE),
    }
    if "error_estimate" in quality and samples.errors is not None:
        estimate = quality["error_estimate"][:, 0]
        figures |= coverage(np.asarray(samples.errors <= estimate))
        figures["mean_estimate"] = float(f"{estimate.mean().item():.4g}")
        figures["mean_error"] = float(f"{samples.errors.mean().item():.4g}")
    if calibration.layout.intervals and samples.scalars is not None:
        figures["intervals"] = intervals(calibration, quality, samples.scalars)
    return figures


def intervals(calibration: Calibration, quality: Mapping[str, Tensor], errors: Tensor) -> dict[str, Any]:
    """Return the figures of the intervals of outputs that are numbers, by output, a row per component."""
    found, start = {}, 0
    for each in calibration.layout.intervals:
        rows, widths = [], quality[each.quality]
        for component, deviation in enumerate(each.deviations):
            error, half = deviation * errors[:, start + component], widths[:, component]
            means = {"mean_half_width": half.mean().item(), "mean_error": error.mean().item()}
            means = {name: float(f"{value:.4g}") for name, value in means.items()}
            rows.append({**coverage(np.asarray(error <= half)), **means})
        found[each.output], start = rows, start + len(each.deviations)
    return found


def sides_of(inputs: Sequence[Tensor], axes: int) -> list[int]:
    """Return the points per axis of the first argument or, where it is a number, of the last one, which says them."""
    lead = inputs[-1] if not inputs[-1].is_floating_point() else inputs[0]
    return list(lead.shape[-axes:])


def out_of_distribution_shares(calibration: Calibration, operator: Operator, samples: Measured) -> dict[str, float]:
    """Return the share of inputs that are outside, per family; every field that varies is changed."""
    axes, inputs = len(calibration.layout.periodic), samples.inputs
    fields = getattr(operator, "fields", len(inputs))  # the first ones
    canonical, mask = operator.canonical, None if operator.mask is None else inputs[operator.mask]
    if operator.scattered:  # the families are of fields on a grid
        inputs, canonical = [*operator.canonical(*inputs)], lambda *fields: fields
        fields = len(inputs)

    def changed(index: int, tensor: Tensor, family: Callable[[Tensor], Tensor]) -> Tensor:
        if index >= fields:
            return tensor
        varies = tensor.ndim > axes and bool(tensor.amax() > tensor.amin())  # no number, and no default of an input
        varies &= tensor is not mask
        return family(tensor.reshape(-1, *tensor.shape[-axes:])).reshape(tensor.shape) if varies else tensor

    return {
        name: share(
            calibration(*canonical(*(changed(index, each, family) for index, each in enumerate(inputs))))[-1] < OUTSIDE
        )
        for name, family in FAMILIES.items()
    }


def share(flags: Tensor) -> float:
    """Return the share of true flags."""
    return round(flags.double().mean().item(), 4)


def scaled(x: Tensor) -> Tensor:
    """Return ten times the field."""
    return 10 * x


def constant(x: Tensor) -> Tensor:
    """Return the field's mean everywhere."""
    return x.mean(tuple(range(1, x.ndim)), keepdim=True).expand_as(x)


def contrasted(x: Tensor) -> Tensor:
    """Return the field with three times the deviation from its mean, of the logarithm where it is positive."""
    if (x > 0).all():
        return contrasted(x.log()).exp()
    mean = constant(x)
    return mean + 3 * (x - mean)


def shuffled(x: Tensor) -> Tensor:
    """Return the field's values at other points, in an order that is drawn once."""
    order = torch.randperm(x[0].numel(), generator=torch.Generator().manual_seed(0))
    return x.flatten(1)[:, order].reshape(x.shape)


def smoothed(x: Tensor) -> Tensor:
    """Return the field interpolated linearly between a few of its points."""
    axes = x.ndim - 1
    coarse = functional.interpolate(x[:, None], [SMOOTHED_POINTS] * axes, mode=INTERPOLATION[axes], align_corners=True)
    return functional.interpolate(coarse, x.shape[1:], mode=INTERPOLATION[axes], align_corners=True)[:, 0]


def compressed(x: Tensor) -> Tensor:
    """Return the field at half its size, twice along every axis."""
    for axis in range(1, x.ndim):
        half = x.index_select(axis, torch.arange(0, x.shape[axis], 2))
        x = torch.cat([half, half], axis).narrow(axis, 0, x.shape[axis])
    return x


def spiked(x: Tensor) -> Tensor:
    """Return the field with a single point far above all others."""
    flat = x.flatten(1).clone()
    low, high = flat.amin(1), flat.amax(1)
    flat[:, flat.shape[1] // 3] = high + 3 * (high - low) + high.abs()
    return flat.reshape(x.shape)


#: Families out of distribution by name; each maps scalar fields `[sample, *grid]` to others.
FAMILIES: Mapping[str, Callable[[Tensor], Tensor]] = {
    family.__name__: family for family in (scaled, constant, contrasted, shuffled, smoothed, compressed, spiked)
}
