"""Calibrate a trained network: the module of `training.calibration.calibration`, from samples with their errors.

The samples are those of a workload, or new ones: some are fitted, others calibrate, and others check the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from schema.parts import Axis, Parameter, Quantity
from schema.problem import Description
from training.calibration.calibration import ERROR_ESTIMATE, Calibration, Channel, Interval, Layout, varies
from training.calibration.error_estimate import ErrorEstimate, StatisticsAndErrors, bounds
from training.calibration.samples import CalibrationSamples, Inputs, Measured, Stored, joined
from training.calibration.statistics import InputStatistics, Novelty, fewest
from training.data.dataset import Rows, spread
from training.losses import Batch
from training.messages import counted
from training.operators.operator import Operator

FEWEST_FITTED = 16  # samples of which mean and covariance of the statistics make sense
SPREAD = 2.0  # a positive channel whose largest value is this many times its smallest is seen by its logarithm


def calibrate(
    problem: Description,
    fitted: Sequence[Measured],
    calibration: Sequence[Measured],
    deviations: Mapping[str, Tensor] = MappingProxyType({}),
) -> Calibration | None:
    """Calibrate a trained network; None where there are too few samples.

    Those of `fitted` have errors and may be training samples. Those of `calibration` serve nothing else: one element
    per grid has errors, which give the estimate, and any number has none; all give the novelty. `deviations` are those
    of the outputs that are numbers, by name.
    """
    axes = len(problem.axes)
    if sum(map(len, fitted)) < FEWEST_FITTED or not calibration:
        return None
    channels = _channels(problem, fitted)
    periodic = tuple(axis.boundary == "periodic" for axis in problem.axes)
    statistics = InputStatistics([channel.logarithm for channel in channels], periodic)
    for_units = max(fitted, key=lambda one: one.points(axes))
    statistics.fit(for_units.inputs)
    seen = _Seen(statistics)
    measured = {one.points(axes): one for one in calibration if one.errors is not None}
    scalars = [one for one in calibration if one.scalars is not None and len(one) >= fewest()]
    enough = all(len(one) >= fewest() for one in measured.values())
    apart, defaults = _apart(list(measured.values()), _defaults(problem, fitted[0].inputs), axes)
    groups = _groups(calibration, apart, defaults)
    # A few inputs tell nothing unusual: then they are compared with those of both groups.
    telling = all(Novelty.tells(sum(map(len, group))) for group in groups)
    rows, *others = (
        torch.cat([seen(one)[0] for one in each]) for each in (fitted, *(groups if telling else [calibration]))
    )
    separate = _noise_bounds(fitted, groups, seen, axes) if enough else {}
    layout = Layout(
        channels=channels,
        periodic=periodic,
        statistics=rows.shape[1],
        roughness=seen(for_units)[1].shape[1],
        fitted=len(rows),
        inputs=len(others[0]),
        errors=min(map(len, measured.values())) if measured and enough else 0,
        grids=tuple(sorted(measured)),
        apart=apart,
        defaults=defaults,
        second=sum(map(len, others[1:])),
        intervals=_intervals(problem, deviations) if scalars else (),
        noise=_noise_levels(fitted) if separate else (),
    )
    found = Calibration(layout).eval()
    found.statistics = statistics
    found.novelty.fit(rows, *others)
    if found.estimate is not None:
        found.estimate.fit(_sized(fitted, seen, axes), layout.grids)
        if separate:
            found.estimate.bounds.copy_(torch.stack([separate[points] for points in layout.grids], dim=1))
        sized = (_sized(group, seen, axes) for group in groups)
        fewest_of = [found.estimate.calibrate(each, index) for index, each in enumerate(sized)]
        found.layout = layout.model_copy(update={"errors_of_a_case": min(fewest_of)})
    for number, interval in enumerate(found.intervals):
        parts = ({1: _errors_of(each, number, seen)} for each in (fitted, scalars))
        cast("ErrorEstimate", interval).fit(next(parts), (1,))
        cast("ErrorEstimate", interval).calibrate(next(parts))
    return found


class _Seen:
    """Statistics and roughness of samples, which are computed once: large ones are read for it."""

    def __init__(self, statistics: InputStatistics) -> None:
        self.statistics = statistics
        self.known: dict[int, tuple[Measured, Tensor, Tensor]] = {}

    def __call__(self, one: Measured) -> tuple[Tensor, Tensor]:
        if id(one) not in self.known:
            self.known[id(one)] = (
                one,
                *one.of(lambda inputs: (self.statistics(inputs), self.statistics.roughness(inputs))),
            )
        return self.known[id(one)][1:]


def _intervals(problem: Description, deviations: Mapping[str, Tensor]) -> tuple[Interval, ...]:
    """Return the intervals of the outputs that are numbers."""
    return tuple(
        Interval(
            output=name,
            quality=ERROR_ESTIMATE if len(problem.outputs) == 1 else f"{ERROR_ESTIMATE}.{name}",
            deviations=tuple(each.flatten().tolist()),
        )
        for name, each in deviations.items()
    )


def _errors_of(samples: Sequence[Measured], number: int, seen: _Seen) -> StatisticsAndErrors:
    """Return statistics and errors of a number, in deviations, of the samples whose errors are known."""
    known = [(torch.cat(seen(one), dim=1), one.scalars[:, number]) for one in samples if one.scalars is not None]
    return torch.cat([rows for rows, _ in known]), torch.cat([errors for _, errors in known])


def _defaults(problem: Description, arguments: Sequence[Tensor]) -> tuple[tuple[int, float], ...]:
    """Return the positions of the numbers among the arguments that have a default, and these."""
    lengths = [1] * len(problem.inputs) + [max(1, len(one.components)) for one in problem.parameters]
    starts = [sum(lengths[:index]) for index in range(len(lengths))][len(problem.inputs) :]
    pairs = zip(starts, problem.parameters, strict=True)
    return tuple(
        (start, one.default)
        for start, one in pairs
        if start < len(arguments) and one.default is not None and not one.components
    )


def _apart(
    measured: Sequence[Measured], defaults: tuple[tuple[int, float], ...], axes: int
) -> tuple[tuple[int, ...], tuple[tuple[int, float], ...]]:
    """Return what tells two groups of samples apart, with enough of both on every grid: fields, and defaults."""
    fields = [index for index, tensor in enumerate(measured[0].inputs) if tensor.ndim > axes] if measured else []
    if not measured or not (fields or defaults):
        return (), ()

    def flags(inputs: Inputs) -> Tensor:  # whether each field varies, and each number is another than its default
        found = [varies(inputs, (index,)) for index in fields] + [varies(inputs, (), (one,)) for one in defaults]
        return torch.cat([each for each in found if each is not None], dim=1)

    every = [one.of(flags) for one in measured]

    def both(columns: list[int]) -> bool:  # enough of both groups for a quantile each
        varied = ((len(each), int(each[:, columns].any(dim=1).sum())) for each in every)
        return all(min(some, count - some) >= fewest() for count, some in varied)

    found = [column for column in range(len(fields) + len(defaults)) if both([column])]
    if not both(found):
        return (), ()
    numbers = tuple(defaults[column - len(fields)] for column in found if column >= len(fields))
    return tuple(fields[column] for column in found if column < len(fields)), numbers


def _groups(
    calibration: Sequence[Measured], apart: tuple[int, ...], defaults: tuple[tuple[int, float], ...]
) -> list[list[Measured]]:
    """Return calibration samples in groups: those of requests that leave something out, then the others."""
    if not apart and not defaults:
        return [list(calibration)]
    pairs = [(one, one.of(partial(varies, positions=apart, defaults=defaults))[:, 0]) for one in calibration]
    return [[one.select(~mask) for one, mask in pairs], [one.select(mask) for one, mask in pairs]]


def _noise_levels(samples: Sequence[Measured]) -> tuple[float, ...]:
    """Return the levels of noise of samples, ascending."""
    return tuple(sorted({level for one in samples if one.noise is not None for level in one.noise.tolist()}))


def _noise_bounds(
    fitted: Sequence[Measured], groups: Sequence[Sequence[Measured]], seen: _Seen, axes: int
) -> dict[int, Tensor]:
    """Return the roughness that separates the levels of noise, by the number of points of each grid.

    There are none without several levels, or where the calibration samples of a level are too few for a quantile.
    """
    levels = _noise_levels(fitted)
    found: dict[int, Tensor] = {}
    for one in fitted if len(levels) > 1 else ():
        if one.noise is None or any((one.noise == level).sum() < FEWEST_FITTED for level in levels):
            return {}
        roughness = seen(one)[1].mean(dim=1)
        found[one.points(axes)] = bounds({level: roughness[one.noise == level] for level in levels})
    for one in (one for group in groups for one in group if found and one.errors is not None):
        separate = found.get(one.points(axes))
        if separate is None:
            return {}
        level = (seen(one)[1].mean(dim=1, keepdim=True) > separate).sum(dim=1)
        if torch.bincount(level, minlength=len(levels)).min() < fewest():
            return {}
    return found


def _sized(samples: Sequence[Measured], seen: _Seen, axes: int) -> dict[int, StatisticsAndErrors]:
    """Return statistics and errors of the samples whose errors are known, by the number of points of their grid."""
    return {one.points(axes): (torch.cat(seen(one), dim=1), one.errors) for one in samples if one.errors is not None}


def _channels(problem: Description, fitted: Sequence[Measured]) -> tuple[Channel, ...]:
    """Return the channels of a problem's inputs, with the logarithm of positive ones that vary much."""
    arguments, found = iter(fitted[0].inputs), []
    tensors: tuple[Quantity | Parameter, ...] = (*problem.inputs, *problem.parameters)
    for tensor in tensors:
        names = [f"{tensor.name}.{part}" for part in tensor.components] or [tensor.name]
        if isinstance(tensor, Parameter):  # the components of one are arguments of their own
            positive, values = tensor.minimum is not None, [next(arguments) for _ in names]
        else:
            positive, values = tensor.positive, [next(arguments)]
        low, high = min(one.amin() for one in values), max(one.amax() for one in values)
        logarithm = bool(positive and low > 0 and high > SPREAD * low)
        found += [Channel(name=name, logarithm=logarithm) for name in names]
    return tuple(found)


# The samples


MOST_FITTED = 512  # samples that are fitted, and as many further inputs: enough for means and covariances


BYTES = 2**28  # of samples of one grid in memory; those of more are read a few at a time
MANY = 30  # trajectories: states of fewer are too alike to tell which is one of a hundred


def affordable(count: int, sample_bytes: int) -> int:
    """Return how many of `count` samples are in memory at most."""
    return min(count, max(1, BYTES // sample_bytes))


def calibration_samples(work: Any, network: Any) -> CalibrationSamples:
    """Return every other training sample as fitted, the rest as inputs, and the validation samples.

    Of trajectories they are states without errors, for the novelty: rollouts have error estimates by frame. States of
    one are alike, so that a few validation trajectories tell little of how unusual others may be: half of the training
    ones join them, if these are `MANY`. Those of a built-in problem are the cases of every measured grid.
    """
    if work.drawn is not None:
        fitted, held, checked = work.drawn.calibrating(vary=network.optional)
        measured = partial(of_case, work, network)
        return CalibrationSamples(
            fitted=(joined(*(measured("1 of 3", case) for case in every)) for every in fitted),
            calibration=(joined(*(measured("2 of 3", case) for case in every)) for every in held),
            test=(measured("3 of 3", case) for every in checked for case in every),
        )
    splits = {name: np.asarray(work.samples.split(name)) for name in ("train", "validation", "test")}
    if work.is_trajectory:
        train, held, tested = splits.values()
        parts = [train[::2], held, train[1::2]] if len(train) >= 2 * MANY else [train, held]
        first, *others = (states(work, rows) for rows in parts)
        return CalibrationSamples([first], others, [states(work, tested)])
    points = {"grid": list(work.samples.sides)} if work.file.scattered else {}
    rows = np.asarray(spread(splits["train"], 2 * MOST_FITTED))
    validation, test, first = (
        of_rows(work, each, partial(with_errors, work, network, kind=points))
        for each in (splits["validation"], splits["test"], rows[::2])
    )
    inputs = of_rows(work, rows[1::2], lambda batch: Measured(batch.inputs))
    return CalibrationSamples([first], [validation, inputs], [test], work.deviations)


def of_rows(work: Any, rows: Rows, measured: Callable[[Batch], Measured]) -> Measured:
    """Return samples by their numbers, with what is measured of them: in memory if all of them fit there."""
    fitting = affordable(len(rows), work.samples.sample_bytes)
    if fitting == len(rows):
        return measured(work.batch(rows))
    parts: list[Measured] = []
    step = work.at_once
    for start in range(0, len(rows), step):
        one = measured(work.batch(rows[start : start + step]))
        parts.append(replace(one, inputs=()))  # which are read again
    errors, scalars = (
        torch.cat([each for each in some if each is not None]) if some[0] is not None else None
        for some in ([one.errors for one in parts], [one.scalars for one in parts])
    )
    return Stored(
        work.batch(rows[:fitting]).inputs,
        errors,
        parts[0].kind,
        scalars=scalars,
        rows=rows,
        read=lambda some: work.batch(some).inputs,
        at_once=step,
    )


@torch.inference_mode()
def with_errors(
    work: Any, network: Any, batch: Batch, kind: Mapping[str, Any] | None = None, shown: str = ""
) -> Measured:
    """Return samples of a kind with the errors of a network: those of fields, and of every number by itself.

    Their progress is `shown` under a name, if there is one.
    """
    fields, numbers, count = [], [], len(batch.inputs[0])
    with counted(shown, count, "fields", shown=bool(shown)) as advance:
        for start in range(0, count, work.at_once):
            rows = slice(start, start + work.at_once)
            inputs, outputs = ([each[rows] for each in some] for some in batch[:2])
            part = Batch(inputs, outputs, measure=None if batch.measure is None else batch.measure[rows])
            found = work.predictions(network, part)
            if errors := work.field_errors(found, part):
                fields.append(torch.stack(errors).mean(dim=0))
            if pairs := work.scalar_pairs(found, part):
                numbers.append(torch.cat([((p - u) / one).abs().reshape(len(u), -1) for p, u, one in pairs], dim=1))
            advance(len(inputs[0]))
    of_fields, scalars = (torch.cat(each) if each else None for each in (fields, numbers))
    return Measured(batch.inputs, of_fields, kind or {}, scalars=scalars)


def of_case(work: Any, network: Any, part: str, case: Any) -> Measured:
    """Return `training.data.views.Samples` of a kind with the errors of a network; those of new ones take long."""
    grid, noise = " x ".join(map(str, case.key["grid"])), f", {100 * case.noise:g} % noise" if case.noise else ""
    shown = f"errors, part {part}, {grid}{noise}" if work.drawn.new and work.progress else ""
    found = with_errors(work, network, case.whole, case.kind, shown)
    level = torch.full((len(case),), case.noise, dtype=torch.float64)
    return found if case.varied else replace(found, noise=level)


def states(work: Any, rows: Rows) -> Measured:
    """Draw what steps of some trajectories start from, at any of their frames, with what the steps see."""
    frames, length = work.samples.frames or 1, work.history + any(one.per_frame for one in work.file.tensors)
    starts = frames - length + 1
    size, pairs = work.samples.sample_bytes * work.history // frames, len(rows) * starts
    drawn = np.random.default_rng(work.recipe.seed).choice(pairs, min(pairs, MOST_FITTED), replace=False)
    kind = {"grid": list(work.samples.sides)} if work.file.scattered else {}

    def read(some: Rows) -> Inputs:
        windows = work.samples.windows(rows[some // starts], some % starts, length)
        found: Inputs = work.as_batch(windows).inputs
        return found

    fitting = affordable(len(drawn), size)
    if fitting == len(drawn):
        return Measured(read(drawn), kind=kind)
    return Stored(read(drawn[:fitting]), kind=kind, rows=drawn, read=read, at_once=affordable(fitting, 8 * size))


@torch.inference_mode()
def calibrated(problem: Description, operator: Operator, samples: CalibrationSamples) -> Calibration | None:
    """Calibrate an operator; None where there are too few samples."""
    fitted, calibration = (
        [one.mapped(operator.canonical) for one in each] for each in (samples.fitted, samples.calibration)
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
