"""Pictures of the best, the median and the worst test sample: inputs, truth, prediction and difference, a row each.

Truth and prediction share one colour scale, that of the truth, and so do all rows, so that what looks alike is alike.
All scales are perceptually even; that of the difference has its middle at zero. Few extreme values do not stretch a
scale: they have the colour of its end, which is then pointed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from schema.parts import Axis, Quantity
from schema.problem import Description
from training.data.views import Samples, only_pair
from training.evaluation.measures import Parity
from training.evaluation.rows import case_name
from training.metrics import METRICS
from training.problems.problem import Array

Field = NDArray[np.floating[Any]]
INPUT, OUTPUT, DIFFERENCE = "cividis", "viridis", "coolwarm"
COLOURS = {"input": "#009E73", "truth": "#000000", "prediction": "#D55E00"}  # Okabe and Ito's colours
DECADES = 100.0  # positive fields whose values span as much, but for the tails, are drawn by their logarithm
SPAN = 1e6  # and no scale has more: values that fade to nothing are not drawn by their logarithm
TAILS = 0.01  # the share of values at either end that do not say how wide a scale has to be
FAR = 4.0  # values that lie beyond the tails by so many widths of the others may be outliers
OUTLIERS = 2e-3  # if they are a smaller share of all
MOST_NUMBERS, COLUMNS = 8, 4  # the most numbers whose predictions are drawn against the truth, and beside one another
MOST = 4  # the most columns of inputs, and the most pictures of outputs


@dataclass(frozen=True)
class PredictedSample:
    """A test sample beside its prediction."""

    rank: str  # `best`, `median` or `worst`
    number: int  # of the sample in the data
    error: float  # relative L2 error, the mean over the outputs
    inputs: dict[str, Field]  # by name, `[*grid]` or `[component, *grid]`; NaN, as outputs are, outside a domain
    parameters: dict[str, float]
    truth: dict[str, Field]  # outputs by name; those of trajectories on a line have the time as their first axis
    predicted: dict[str, Field]  # outputs by name

    @property
    def label(self) -> str:
        """Which sample a row shows."""
        numbers = "".join(f"\n{name} = {value:.3g}" for name, value in self.parameters.items())
        return f"{self.rank}: {100 * self.error:.3g} %\nsample {self.number}{numbers}"


def ranks(errors: NDArray[np.float64]) -> dict[str, int]:
    """Return the positions of the best, the median and the worst of some errors."""
    order = np.argsort(errors)
    return {"best": int(order[0]), "median": int(order[len(order) // 2]), "worst": int(order[-1])}


def draw(case: Samples, found: Array, target: Path, title: str) -> None:
    """Write the picture of predictions in the format that the file's name ends with."""
    errors, inputs = METRICS.items["relative_l2"](found, case.targets), case.observed
    pair = only_pair(case.problem.description)
    rows = [
        PredictedSample(
            rank,
            index,
            float(errors[index]),
            {pair.input.name: inputs[index]},
            {name: float(values[index]) for name, values in case.parameters.items()},
            {pair.output.name: case.targets[index]},
            {pair.output.name: found[index]},
        )
        for rank, index in ranks(errors).items()
    ]
    [figure] = figures(rows, case.problem.description).values()
    figure.suptitle(f"{title}, {case_name(case.key)}: {len(errors)} test fields by their relative L2 error", fontsize=9)
    target.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"backend": "agg"}):
        figure.savefig(target, dpi=90, metadata={"Software": None}, pil_kwargs={"optimize": True})


def figures(rows: Sequence[PredictedSample], description: Description) -> dict[str, Figure]:
    """Draw samples, a figure per output component: curves, planes, planes of space and time, or coloured points."""
    flat = clouds if description.scattered else lines if description.frames is None else hovmoeller
    drawer = planes if len(description.axes) > 1 else flat
    outputs = [*components(description.outputs, rows[0].truth)][:MOST]
    return {label: drawer(rows, description, name, component) for name, component, label in outputs}


def components(quantities: Sequence[Quantity], fields: dict[str, Field]) -> Iterator[tuple[str, int | None, str]]:
    """List the components of fields: the field's name, the component's index, and how it is called."""
    for quantity in (one for one in quantities if one.name in fields):
        if not quantity.components:
            yield quantity.name, None, quantity.name
        for index, component in enumerate(quantity.components):
            yield quantity.name, index, f"{quantity.name} {component}"


def plane(field: Field, component: int | None, axes: int) -> Field:
    """Return one component of a field; of three axes the plane in the middle of the first."""
    chosen = field if component is None else field[component]
    return chosen[chosen.shape[0] // 2] if axes == 3 else chosen


def planes(rows: Sequence[PredictedSample], description: Description, output: str, component: int | None) -> Figure:
    """Draw fields on planes as images; the first row of a field is at the top, as in the playground."""
    count, (vertical, horizontal) = len(description.axes), description.axes[-2:]
    inputs = [*components(description.inputs, rows[0].inputs)][:MOST]
    (top, bottom), (left, right) = (sides(description, axis) for axis in (count - 2, count - 1))
    height = np.clip(2.2 * vertical.length / horizontal.length, 1.0, 3.2)
    figure = Figure(figsize=(2.35 * (len(inputs) + 3), (height + 0.1) * len(rows) + 0.9), layout="constrained")
    grid = figure.subplots(len(rows), len(inputs) + 3, squeeze=False)
    shown = panels(rows, inputs, output, component, lambda field, at: plane(field, at, count))
    extent = (left, right, bottom, top)
    show(grid, rows, extent, *shown, units_of(description, inputs, output), first="upper")
    for axis in grid.flat:
        axis.set(xticks=(left, right), yticks=(top, bottom))
        axis.tick_params(labelsize=7, length=2)
        axis.label_outer()
    finish(grid, rows, vertical.name, horizontal.name)
    return figure


def panels(
    rows: Sequence[PredictedSample],
    inputs: Sequence[tuple[str, int | None, str]],
    output: str,
    component: int | None,
    chosen: Callable[[Field, int | None], Field],
) -> tuple[list[list[Field]], list[ScalarMappable], list[str]]:
    """Return the columns of a figure with their colours and titles: inputs, truth, prediction and difference.

    Truth and prediction have the colours of the truth, so that a prediction that is far off does not make it pale.
    `chosen` returns what is drawn of a field and the number of its component.
    """
    columns = [[chosen(one.inputs[name], index) for one in rows] for name, index, _ in inputs]
    truth = [chosen(one.truth[output], component) for one in rows]
    found = [chosen(one.predicted[output], component) for one in rows]
    scales = [*(scale(INPUT, column) for column in columns), *[scale(OUTPUT, truth)] * 2]
    columns += [truth, found, [p - u for p, u in zip(found, truth, strict=True)]]
    scales.append(even(columns[-1]))
    return columns, scales, [*(label for *_, label in inputs), f"{output}: truth", "prediction", "difference"]


def units_of(
    description: Description, inputs: Sequence[tuple[str, int | None, str]], output: str, outputs: int = 3
) -> list[str]:
    """Return the units of the columns of a figure, as they are drawn: nothing for numbers without units."""
    found = [description[name].units for name in (*(name for name, *_ in inputs), *[output] * outputs)]
    return ["" if each == "1" else each for each in found]


def clouds(rows: Sequence[PredictedSample], description: Description, output: str, component: int | None) -> Figure:
    """Draw fields on points as coloured dots; of three dimensions the first two are seen."""
    coordinates, *fields = description.inputs
    inputs = [*components(fields, rows[0].inputs)][:MOST]
    figure = Figure(figsize=(2.35 * (len(inputs) + 3), 2.3 * len(rows) + 0.9), layout="constrained")
    grid = figure.subplots(len(rows), len(inputs) + 3, squeeze=False)
    shown = panels(rows, inputs, output, component, lambda field, at: field if at is None else field[:, at])
    show(grid, rows, coordinates.name, *shown, units_of(description, inputs, output))
    for axis in grid.flat:
        axis.set(xticks=[], yticks=[], aspect="equal")
    finish(grid, rows, coordinates.components[1], coordinates.components[0])
    return figure


def show(
    grid: NDArray[Any],
    rows: Sequence[PredictedSample],
    place: str | tuple[float, ...],
    columns: Sequence[Sequence[Field]],
    scales: Sequence[ScalarMappable],
    titles: Sequence[str],
    units: Sequence[str],
    first: Literal["upper", "lower"] = "lower",
) -> None:
    """Draw columns of fields, as dots at the coordinates `place` or as images of this extent, with a scale of each.

    The `first` row of images is the upper or the lower one.
    """
    for axes, column, colours, title, unit in zip(grid.T, columns, scales, titles, units, strict=True):
        look: dict[str, Any] = {"cmap": colours.cmap, "norm": colours.norm}
        for axis, field, one in zip(axes, column, rows, strict=True):
            if isinstance(place, str):
                x, y = one.inputs[place].T[:2]
                axis.scatter(x, y, c=field, s=4000 / len(x), linewidths=0, **look)
            else:
                axis.imshow(field, origin=first, extent=place, aspect="auto", **look)
        axes[0].set_title(title, fontsize=10)
        ends = beyond(colours, column)
        bar = axes[0].figure.colorbar(colours, ax=[*axes], location="bottom", aspect=18, shrink=0.9, extend=ends)
        bar.ax.tick_params(labelsize=7)
        bar.set_label(unit, fontsize=8)


def finish(grid: NDArray[Any], rows: Sequence[PredictedSample], vertical: str, horizontal: str) -> None:
    """Name the samples and the axes."""
    for axis in grid[-1]:
        axis.set_xlabel(horizontal, fontsize=8)
    for axis, one in zip(grid[:, 0], rows, strict=True):
        axis.set_ylabel(f"{one.label}\n{vertical}".rstrip(), fontsize=8)


def lines(rows: Sequence[PredictedSample], description: Description, output: str, component: int | None) -> Figure:
    """Draw fields on a line as curves, truth and prediction in one panel."""
    inputs, [line] = [*components(description.inputs, rows[0].inputs)][:MOST], description.axes
    start, end = sides(description, 0)
    figure = Figure(figsize=(3.1 * (len(inputs) + 2), 2.1 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), len(inputs) + 2, squeeze=False, sharex=True, sharey="col")
    for axes, one in zip(grid, rows, strict=True):
        for axis, (field, index, _) in zip(axes, inputs, strict=False):
            values = plane(one.inputs[field], index, 1)
            axis.plot(positions(line, len(values), start, end), values, color=COLOURS["input"])
        truth, predicted = (plane(fields[output], component, 1) for fields in (one.truth, one.predicted))
        x = positions(line, len(truth), start, end)
        axes[-2].plot(x, truth, color=COLOURS["truth"], linewidth=2.5, label="truth")
        axes[-2].plot(x, predicted, color=COLOURS["prediction"], linestyle="--", label="prediction")
        axes[-1].plot(x, predicted - truth, color=COLOURS["prediction"])
        for axis in axes:
            axis.grid(visible=True, alpha=0.25)
    grid[0, -2].legend(frameon=False, fontsize=8)
    titles, units = [*(label for *_, label in inputs), output, "difference"], units_of(description, inputs, output, 2)
    for axis, title, unit in zip(grid[0], titles, units, strict=True):
        axis.set_title(f"{title}, {unit}" if unit else title, fontsize=10)
    finish(grid, rows, "", line.name)
    return figure


def sides(description: Description, axis: int) -> tuple[float, float]:
    """Return the values at both ends of an axis, which may fall: as in the training data, where these say them."""
    length, points = description.axes[axis].length, description.axes[axis].points
    first, last = (description.grid.ends[axis] if description.grid.ends else ()) or (0.0, 0.0)
    if not 0.5 < abs(last - first) / length < 1.01:  # not known, or in other units than the length
        return 0.0, length
    across = math.copysign(length, last - first)
    before = (across - (last - first)) / 2 if points in {"cells", "strided"} else 0.0
    return first - before, first - before + across


def positions(axis: Axis, points: int, start: float, end: float) -> Field:
    """Return where the points of an axis lie that begins and ends there."""
    shift, cells = (0.5 if axis.points == "cells" else 0.0), points - (axis.points in {"nodes", "strided"})
    return np.asarray(start + (np.arange(points) + shift) / cells * (end - start))


def hovmoeller(rows: Sequence[PredictedSample], description: Description, output: str, component: int | None) -> Figure:
    """Draw trajectories on a line as planes of space and time: inputs that change in time, truth, prediction, error."""
    [line], step = description.axes, description.frames.step if description.frames else 1.0
    changing = [one for one in description.inputs if one.per_frame]
    inputs = [*components(changing, rows[0].inputs)][:MOST]
    figure = Figure(figsize=(2.8 * (len(inputs) + 3), 2.2 * len(rows) + 0.7), layout="constrained")
    grid = figure.subplots(len(rows), len(inputs) + 3, squeeze=False, sharex=True, sharey=True)
    columns, scales, _ = panels(
        rows, inputs, output, component, lambda field, at: field if at is None else field[:, at]
    )
    extent = (*sides(description, 0), 0.5 * step, (len(columns[-1][0]) + 0.5) * step)
    titles = (*(label for *_, label in inputs), "truth", "prediction", "difference")
    show(grid, rows, extent, columns, scales, titles, units_of(description, inputs, output))
    finish(grid, rows, "time", line.name)
    return figure


def parity(numbers: Sequence[Parity]) -> Figure:
    """Draw predictions against truth, a panel per number; on the diagonal they are equal."""
    shown = [*numbers][:MOST_NUMBERS]
    across = min(COLUMNS, len(shown))
    down = -(-len(shown) // across)
    made = Figure(figsize=(2.9 * across, 2.9 * down), layout="constrained")
    panels = made.subplots(down, across, squeeze=False).flat
    for one, panel in zip(shown, panels, strict=False):  # which leaves the next panel in place
        both = np.concatenate([one.truth, one.predicted])
        ends = [float(both.min()), float(both.max())]
        panel.plot(ends, ends, color="#999999", linewidth=0.8)
        panel.plot(one.truth, one.predicted, ".", color=COLOURS["prediction"], markersize=3)
        units = "" if one.units == "1" else f" in {one.units}"
        panel.set_title(f"{one.label}{units}", fontsize=8)
        panel.set_xlabel("truth", fontsize=7)
        panel.set_ylabel("prediction", fontsize=7)
        panel.tick_params(labelsize=7)
    for panel in panels:
        panel.set_axis_off()
    return made


def scale(colours: str, fields: Sequence[Field]) -> ScalarMappable:
    """Return colours between the bounds of fields, on a logarithmic scale where positive values span decades."""
    values = np.concatenate([field[np.isfinite(field)].ravel().astype(np.float64) for field in fields])
    low, high = bounds(values)
    least, most = np.quantile(values, (5 * TAILS, 1 - 5 * TAILS)) if values.size else (0.0, 0.0)
    if values.size and values.min() > 0 and DECADES * least < most < SPAN * least:
        low, high = bounds(np.log(values))
        return ScalarMappable(LogNorm(float(np.exp(low)), float(np.exp(high))), colours)
    return ScalarMappable(Normalize(low, high), colours)


def bounds(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the least and the greatest value but for outliers: few values that lie far beyond the tails of the others.

    Many such values are no outliers but, for example, a source on a small part of the domain. The scale of a constant
    is a little wider than nothing.
    """
    if not values.size:
        return 0.0, 1.0
    least, most = float(values.min()), float(values.max())
    low, high = map(float, np.quantile(values, (TAILS, 1 - TAILS)))
    low, high = low - FAR * (high - low), high + FAR * (high - low)
    if 0 < np.mean((values < low) | (values > high)) < OUTLIERS and high > low:
        least, most = max(least, low), min(most, high)
    if most - least > 1e-6 * max(abs(most), abs(least)):
        return least, most
    around = 0.05 * abs(most) or 1.0
    return least - around, most + around


def even(differences: Sequence[Field]) -> ScalarMappable:
    """Return colours whose middle is zero."""
    values = np.concatenate([np.abs(each[np.isfinite(each)]).ravel().astype(np.float64) for each in differences])
    most = bounds(np.concatenate([values, -values]))[1] if values.size and values.any() else 1.0
    return ScalarMappable(Normalize(-most, most), DIFFERENCE)


def beyond(colours: ScalarMappable, fields: Sequence[Field]) -> str:
    """Say at which ends of a scale values lie beyond it, as Matplotlib calls them."""
    low, high = colours.norm.vmin or 0.0, colours.norm.vmax or 0.0
    under, over = (
        any(bool(np.any(each < low)) for each in fields),
        any(bool(np.any(each > high)) for each in fields),
    )
    return {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[under, over]
