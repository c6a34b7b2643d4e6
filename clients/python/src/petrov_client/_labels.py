"""Inputs labelled by xarray: axes and components by name, where an axis begins and ends, and outputs like them."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from petrov_client import _times as times
from petrov_client._errors import InvalidInput, Where, issue
from petrov_client._models import ModelInfo, attributes_of
from petrov_client._schema import COMPONENT, FRAME, HISTORY, TIMES, TensorInfo

TIME_ATTRIBUTES = ("standard_name", "long_name", "units", "calendar")
SAME_LENGTH = 0.05  # relative difference below which an axis is as long as that of the training data


@dataclass(frozen=True)
class Labels:
    """The names of the axes of an input, and its coordinates."""

    template: Any  # the input as a `DataArray`, its dimensions in the order of the model's axes
    tensor: TensorInfo
    order: tuple[str, ...]  # the dimensions in the caller's order

    def put_on(self, output: npt.NDArray[Any], tensor: TensorInfo, piece: slice | None, step: float | None) -> Any:
        """Return an output as `labelled` does, its dimensions in the caller's order where it has the same ones.

        Frames that are `step` apart have their times, unless those of the input have coordinates.
        """
        found = self.labelled(output, tensor, piece)
        if step is not None and FRAME in tensor.axes:
            frame = str(found.dims[tensor.axes.index(FRAME) - len(tensor.axes)])
            if not any(frame in each.dims for each in found.coords.values()):
                found = with_times(found, frame, step * np.arange(1, found.sizes[frame] + 1), self.time)
        return found.transpose(*self.order) if set(found.dims) == set(self.order) else found

    def on_frame(self, output: npt.NDArray[Any], tensor: TensorInfo, number: int, step: float) -> Any:
        """Return one frame of an output, counted from 1, as `put_on` labels all of them; its time is a coordinate."""
        axes, dims = self.tensor.axes[-self.template.ndim :], self.template.dims
        template, known = self.template, frozenset[Any]()
        if FRAME in axes:  # of a forcing, whose frames may have coordinates
            dim = dims[axes.index(FRAME)]
            known = frozenset(name for name, each in template.coords.items() if dim in each.dims)
            template = template.isel({dim: number - 1})
        of_one = replace(self, template=template, tensor=replace(self.tensor, axes=_apart(axes)))
        found = of_one.labelled(output, replace(tensor, axes=_apart(tensor.axes)))
        if not known:
            found = with_times(found, None, np.float64(step * number), self.time)
        return found.transpose(*self.order) if set(found.dims) == set(self.order) else found

    def values(self, frame: Any, tensor: TensorInfo) -> npt.NDArray[Any]:
        """Return the values of a frame that `on_frame` has labelled, in the order of the model's axes."""
        names = dict(zip(self.tensor.axes[-self.template.ndim :], self.template.dims, strict=True))
        dims = [name for axis in _apart(tensor.axes) if (name := names.get(axis, axis)) in frame.dims]
        return np.asarray(frame.transpose(*dims))

    def labelled(self, output: npt.NDArray[Any], tensor: TensorInfo, piece: slice | None = None) -> Any:
        """Return an output as a `DataArray` with the dimensions and coordinates of the input that fit it."""
        template = self.template if piece is None else self.template[piece]
        names = dict(zip(self.tensor.axes[-template.ndim :], template.dims, strict=True))
        dims = [names.get(axis, axis) for axis in tensor.axes[len(tensor.axes) - output.ndim :]]
        sizes = dict(zip(dims, output.shape, strict=True))
        coords = {name: each for name, each in template.coords.items() if each.sizes.items() <= sizes.items()}
        if tensor.components and COMPONENT in dims:
            coords[COMPONENT] = list(tensor.components)  # which may be others than the input's
        return type(template)(output, coords, dims, tensor.name, attributes_of(tensor))

    @property
    def time(self) -> Any:
        """The time of the state that a rollout starts from, with its name and attributes; None where none is said."""
        axes = dict(zip(self.template.dims, self.tensor.axes[-self.template.ndim :], strict=True))
        for name, each in self.template.coords.items():
            if str(name).lower() in TIMES and each.dtype.kind in "fiu":
                last = each if not each.dims else each[-1] if [axes[dim] for dim in each.dims] == [HISTORY] else None
                if last is not None and np.isfinite(last):
                    return last
        return None


def _apart(axes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the axes of one frame."""
    return tuple(axis for axis in axes if axis != FRAME)


def unlabelled(array: Any) -> Any:
    """Return the values of a labelled array, and any other as it is."""
    xarray = sys.modules.get("xarray")
    return array.to_numpy() if xarray and isinstance(array, xarray.DataArray) else array


def with_times(labelled: Any, frame: str | None, times: Any, start: Any) -> Any:
    """Return an array or a dataset with the times of its frames, or the time of its only one.

    They are a coordinate called `time`, or as that of the state, whose time they go on from; or `frame` where the name
    is that of another dimension, such as of the samples.

    Args:
        labelled: An array or a dataset of xarray.
        frame: The dimension of the frames; None for one frame without it.
        times: Of the frames, after the start; one number for one frame.
        start: The time of the state, with its name and attributes; None where it says none.
    """
    name, attributes = "time", {"long_name": "time"}
    if start is not None:
        name, times = str(start.name), times + float(start)
        attributes = {key: each for key, each in start.attrs.items() if key in TIME_ATTRIBUTES}
        labelled = labelled.drop_vars(name, errors="ignore")  # of the state alone
    if name in {*labelled.dims, *labelled.coords, *getattr(labelled, "data_vars", ())}:
        name = FRAME
    return labelled.assign_coords({name: (() if frame is None else frame, times, attributes)})


def _axes(info: ModelInfo, name: str, rank: int) -> tuple[str, ...]:
    """Return the model's axes of an input or a parameter of some rank: all, or without that of the batch; or none."""
    axes = next((each.axes for each in info.arguments if each.name == name), ())
    return axes[len(axes) - rank :] if len(axes) - 1 <= rank <= len(axes) else ()


def _is_named(dim: Any, axis: str) -> bool:
    """Return whether a dimension has the name of an axis of the model, in capitals or not."""
    return str(dim).lower() == axis.lower() or (axis in {FRAME, HISTORY} and str(dim).lower() in TIMES)


def _axes_in_order(info: ModelInfo, name: str, array: Any) -> Any:
    """Return a labelled input with its dimensions in the order of the model's axes, as far as they have their names.

    Raises:
        InvalidInput: The name of an axis of the grid stands where another axis is expected, and not all are named.
    """
    axes = _axes(info, name, array.ndim)
    named: dict[str, Any] = {}
    for dim in array.dims:
        if axis := next((each for each in axes if each not in named and _is_named(dim, each)), None):
            named[axis] = dim
    grid = [axis for axis in axes if info.grid and axis in info.grid.axes]
    if grid and all(axis in named for axis in grid):
        others = iter([dim for dim in array.dims if dim not in named.values()])
        return array.transpose(*[named[axis] if axis in named else next(others) for axis in axes])
    for axis in grid:
        if axis in named and array.dims[axes.index(axis)] != named[axis]:
            got, expected = ", ".join(map(str, array.dims)), ", ".join(axes)
            fault = f"expected the dimensions ({expected}), in any order where all have these names, but got ({got})"
            raise InvalidInput(f"{fault}: rename the others", where=Where(name))
    return array


def _powers(units: str) -> Counter[str] | str:
    """Return the power of each unit of a product such as `W/(m K)` or `W m-1 K-1`, or a text that is none as it is."""
    product = re.sub(r"\*\*|\^", "", units)
    parts = re.findall(r"[()/]|[^\W\d_]+(?:[-+]?\d+)?|\S", re.sub(r"[*·.]", " ", product))
    powers, signs, below = Counter[str](), [1], False
    for part in parts:
        sign = -signs[-1] if below else signs[-1]
        if part == "(":
            signs.append(sign)
        elif part == ")" and len(signs) > 1:
            signs.pop()
        elif unit := re.fullmatch(r"([^\W\d_]+)([-+]?\d+)?", part):
            powers[unit[1]] += sign * int(unit[2] or 1)
        elif part not in {"/", "1"}:
            return units
        below = part == "/"
    return Counter({unit: power for unit, power in powers.items() if power})


def _check_units(info: ModelInfo, name: str, array: Any) -> None:
    """Warn of units other than those that the model takes: its values are taken as they are, and not converted.

    A model whose card has "1" takes a number without a unit, or its data did not say one.
    """
    expected = next((each.units or "" for each in info.arguments if each.name == name), "")
    said = array.attrs.get("units")
    if "." in name or not isinstance(said, str) or not said.strip() or expected in {"", "1"}:
        return
    if _powers(said.strip()) != _powers(expected):
        issue(
            f'"{name}" has the units {said:.32}, and the model takes {expected}: values are not converted', UserWarning
        )


def _check_times(info: ModelInfo, name: str, array: Any) -> None:
    """Check that the frames of a labelled input are one step of the model apart, where its coordinates say times."""
    for axis, dim in zip(_axes(info, name, array.ndim), array.dims, strict=False):
        timed = axis in {FRAME, HISTORY} and str(dim).lower() in TIMES and dim in array.coords
        if timed and (unlike := times.unlike(array.coords[dim].values, info)):
            raise InvalidInput(f'by its coordinate "{dim}", {unlike}: {times.REMEDY}', where=Where(name))


def _coordinates(info: ModelInfo, labelled: Mapping[str, Any], axis: str) -> Iterator[tuple[Any, npt.NDArray[Any]]]:
    """Yield the dimensions of labelled inputs, in the model's order, along an axis, with their coordinates."""
    for name, array in labelled.items():
        axes = _axes(info, name, array.ndim)
        if axis in axes and (dim := array.dims[axes.index(axis)]) in array.coords:
            yield dim, array.coords[dim].values


def _check_ends(info: ModelInfo, labelled: Mapping[str, Any]) -> None:
    """Compare where an axis of labelled inputs begins and ends with where it did in the training data.

    Points are taken in the order in which they are given. Where the card does not say how the training data run, an
    axis that falls is worth a look: theirs may run the same way, as latitudes from the north do.

    Raises:
        InvalidInput: An axis runs the other way.
    """
    for axis, trained in zip_longest(info.grid.axes, info.grid.ends, fillvalue=()) if info.grid else ():
        dim, positions = next(_coordinates(info, labelled, str(axis)), (axis, np.zeros(0)))
        if positions.dtype.kind not in "fiu" or positions.ndim != 1 or len(positions) < 2:
            continue
        start, end = map(float, positions[[0, -1]])
        said = f'the axis "{dim}" of the inputs runs from {start:g} to {end:g}'
        remedy = f"turn it by sortby({dim!r}{', ascending=False' * (start < end)})"
        if trained:
            there = f"and that of the training data from {trained[0]:g} to {trained[1]:g}"
            theirs = trained[1] - trained[0]
            if (end - start) * theirs < 0:
                raise InvalidInput(f"{said}, {there}; expected one direction: {remedy}")
            slack = SAME_LENGTH * abs(theirs) + abs(end - start) / (len(positions) - 1)  # points may lie at centres
            if abs(end - start - theirs) > slack:
                issue(f"{said}, {there}: the model takes both for the same length", UserWarning)
        elif end < start:
            issue(
                f"{said}, and the model takes points in the order of its training data: where those run the other way, "
                f"{remedy}",
                UserWarning,
            )


def _components_in_order(info: ModelInfo, name: str, array: Any) -> Any:
    """Return a labelled input with its components in the model's order, where its coordinate names them."""
    components = next((list(each.components) for each in info.arguments if each.name == name), [])
    said = array.coords[COMPONENT].values.tolist() if COMPONENT in array.coords and COMPONENT in array.dims else []
    known = all(isinstance(each, str) for each in said) and sorted(said) == sorted(components)
    return array.sel({COMPONENT: components}) if known and said != components else array


def in_order(info: ModelInfo, passed: Mapping[str, Any]) -> tuple[dict[str, Any], Labels | None]:
    """Return arrays with their axes in the model's order, by the names of their dimensions, and the first labels."""
    xarray = sys.modules.get("xarray")  # where the caller has not imported it, no array is labelled
    labelled = {name: each for name, each in passed.items() if xarray and isinstance(each, xarray.DataArray)}
    if xarray and len(labelled) > 1:
        try:
            xarray.align(*labelled.values(), join="exact", copy=False)
        except ValueError as error:
            names = " and ".join(labelled)
            raise InvalidInput(f"expected {names} on the same coordinates but: {error}") from error
    ordered = {}
    for name, array in labelled.items():
        ordered[name] = _components_in_order(info, name, _axes_in_order(info, name, array))
        _check_units(info, name, array)
        _check_times(info, name, ordered[name])
    _check_ends(info, ordered)
    first = next((tensor for tensor in info.inputs if tensor.name in ordered), None)
    labels = Labels(ordered[first.name], first, labelled[first.name].dims) if first else None
    return {**passed, **ordered}, labels
