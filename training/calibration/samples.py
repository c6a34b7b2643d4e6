"""The samples that a calibration is made from and checked with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from schema.problem import Axis, Description, Parameter, Quantity
from training.calibration.calibration import Calibration
from training.calibration.error_estimate import OUTSIDE, coverage, guarantee
from training.calibration.fitting import Measured, calibrate
from training.data.dataset import Rows
from training.losses import Batch
from training.operators.operator import Operator

MOST_FITTED = 512  # samples that are fitted, and as many further inputs: enough for means and covariances
OUT_OF_DISTRIBUTION_SAMPLES = 50  # of each family out of distribution
BYTES = 2**28  # of all inputs of one grid in memory
SMOOTHED_POINTS = 4  # per axis
INTERPOLATION = {1: "linear", 2: "bilinear", 3: "trilinear"}


@dataclass(frozen=True)
class CalibrationSamples:
    """Samples with the errors of a network's predictions, one element per grid; read once, as they take memory."""

    fitted: Iterable[Measured]  # they give the units of the statistics and the expected size of the error
    calibration: Iterable[Measured]  # they serve nothing else; some may be without errors
    test: Iterable[Measured]  # they check the result
    # The deviations of outputs that are numbers over the training samples, by name: the units of their errors.
    deviations: Mapping[str, Tensor] = field(default_factory=dict)


def affordable(count: int, sample_bytes: int) -> int:
    """Return how many of `count` samples are read at most."""
    return min(count, max(1, BYTES // sample_bytes))


def calibration_samples(work: Any, network: Any) -> CalibrationSamples:
    """Return every other training sample as fitted, the rest as inputs, and the validation samples.

    Of trajectories they are states without errors, for the novelty: rollouts have error estimates by frame. Those
    of a built-in problem are the cases of every measured grid.
    """
    if work.drawn is not None:
        units, held_out, checked = work.drawn.calibrating(vary=network.optional)
        measured = partial(of_case, work, network)
        return CalibrationSamples(
            fitted=(joined(*map(measured, every)) for every in units.by_grid(apart=False)),
            calibration=(joined(*map(measured, every)) for every in held_out.by_grid(apart=False)),
            test=(measured(case) for every in checked.by_grid(apart=True) for case in every),
        )
    splits = {name: np.asarray(work.samples.split(name)) for name in ("train", "validation", "test")}
    if work.is_trajectory:
        fitted, held, test = (states(work, rows) for rows in splits.values())
        return CalibrationSamples([fitted], [held], [test])
    size, points = work.samples.sample_bytes, {"grid": list(work.samples.sides)} if work.file.scattered else {}
    rows = splits["train"][: affordable(2 * MOST_FITTED, size)]
    validation, test = (
        with_errors(work, network, work.batch(splits[name][: affordable(int(splits[name][-1]) + 1, size)]), points)
        for name in ("validation", "test")
    )
    first = with_errors(work, network, work.batch(rows[::2]), points)
    inputs = Measured(work.batch(rows[1::2]).inputs)
    return CalibrationSamples([first], [validation, inputs], [test], work.deviations)


@torch.inference_mode()
def with_errors(work: Any, network: Any, batch: Batch, kind: Mapping[str, Any] | None = None) -> Measured:
    """Return samples of a kind with the errors of a network: those of fields, and of every number by itself."""
    fields, numbers = [], []
    for start in range(0, len(batch.inputs[0]), work.at_once):
        rows = slice(start, start + work.at_once)
        inputs, outputs = ([each[rows] for each in some] for some in batch[:2])
        part = Batch(inputs, outputs, measure=None if batch.measure is None else batch.measure[rows])
        found = work.predictions(network, part)
        if errors := work.field_errors(found, part):
            fields.append(torch.stack(errors).mean(dim=0))
        if pairs := work.scalar_pairs(found, part):
            numbers.append(torch.cat([((p - u) / one).abs().reshape(len(u), -1) for p, u, one in pairs], dim=1))
    of_fields, scalars = (torch.cat(each) if each else None for each in (fields, numbers))
    return Measured(batch.inputs, of_fields, kind or {}, scalars=scalars)


def of_case(work: Any, network: Any, case: Any) -> Measured:
    """Return the samples of a `training.evaluation.cases.Case` with the errors of a network."""
    found = with_errors(work, network, case.whole, case.kind)
    level = torch.full((len(case),), case.noise, dtype=torch.float64)
    return found if case.varied else replace(found, noise=level)


def states(work: Any, rows: Rows) -> Measured:
    """Draw what steps of some trajectories start from, at any of their frames, with what the steps see."""
    frames, length = work.samples.frames or 1, work.history + any(one.per_frame for one in work.file.tensors)
    starts = frames - length + 1
    most = affordable(MOST_FITTED, work.samples.sample_bytes * work.history // frames)
    pairs = len(rows) * starts
    drawn = np.random.default_rng(work.recipe.seed).choice(pairs, min(pairs, most), replace=False)
    windows = work.samples.windows(rows[drawn // starts], drawn % starts, length)
    kind = {"grid": list(work.samples.sides)} if work.file.scattered else {}
    return Measured(work.as_batch(windows).inputs, kind=kind)


@torch.inference_mode()
def calibrated(problem: Description, operator: Operator, samples: CalibrationSamples) -> Calibration | None:
    """Calibrate an operator; None where there are too few samples."""
    fitted, calibration = (
        [replace(one, inputs=operator.canonical(*one.inputs)) for one in each]
        for each in (samples.fitted, samples.calibration)
    )
    described = on_grid(problem) if operator.scattered else problem
    return calibrate(described, fitted, calibration, samples.deviations)


def on_grid(problem: Description) -> Description:
    """Describe what the canonical arguments are where fields are on points; see `Operator.scattered`."""
    (coordinates, *fields), (_, *numbers) = problem.inputs, problem.parameters
    names = [f"{one.name}_{part}".rstrip("_") for one in fields for part in one.components or ("",)]
    ends = [f"{end}_{axis}" for end in ("lowest", "highest") for axis in coordinates.components]
    return problem.model_copy(
        update={
            "inputs": tuple(Quantity(name=name) for name in ("filled", *names)),
            "parameters": (*(Parameter(name=name) for name in ends), *numbers),
            "axes": tuple(Axis(name=axis) for axis in coordinates.components),
        }
    )


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
    quality = dict(zip(calibration.names, calibration(*operator.canonical(*samples.inputs)), strict=True))
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


def joined(*parts: Measured) -> Measured:
    """Return samples of several kinds on one grid, all with errors, as one set."""
    errors = [part.errors for part in parts if part.errors is not None]
    noise = [part.noise for part in parts if part.noise is not None]
    return Measured(
        [torch.cat(tensors) for tensors in zip(*(part.inputs for part in parts), strict=True)],
        torch.cat(errors),
        noise=torch.cat(noise) if len(noise) == len(parts) else None,
    )


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


#: Foreign families by name; each maps scalar fields `[sample, *grid]` to others.
FAMILIES: Mapping[str, Callable[[Tensor], Tensor]] = {
    family.__name__: family for family in (scaled, constant, contrasted, shuffled, smoothed, compressed, spiked)
}
