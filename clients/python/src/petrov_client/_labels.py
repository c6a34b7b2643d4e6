"""Inputs labelled by xarray: axes and components by name, where an axis begins and ends, and outputs like them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from petrov_client import _times as times
from petrov_client._errors import InvalidInput, Where
from petrov_client._models import ModelInfo, attributes_of
from petrov_client._quality import issue
from petrov_client._schema import COMPONENT, FRAME, HISTORY, TIMES, TensorInfo

TIME_ATTRIBUTES = ("standard_name", "long_name", "units", "calendar")
SAME_LENGTH = 0.05  # relative difference below which an axis is as long as that of the training data


@dataclass(frozen=True)
class Labels:
    """The names of the axes of an input, and its coordinates."""

    template: Any  # the input as a `DataArray`, its dimensions in the order of the model's axes
    tensor: TensorInfo
    order: tuple[str, ...]  # the dimensions in the caller's order

    def put_on(
        self, output: npt.NDArray[Any], tensor: TensorInfo, piece: slice | None = None, step: float | None = None
    ) -> Any:
        """Return an output as `labelled` does, its dimensions in the caller's order where it has the same ones.

        Frames that are `step` apart have their times, unless those of the input have coordinates.
        """
        found = self.labelled(output, tensor, piece)
        if step is not None and FRAME in tensor.axes:
            frame = str(found.dims[tensor.axes.index(FRAME) - len(tensor.axes)])
            if not any(frame in each.dims for each in found.coords.values()):
                found = with_times(found, frame, step * np.arange(1, found.sizes[frame] + 1), self.time)
        return found.transpose(*self.order) if set(found.dims) == set(self.order) else found

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


def with_times(labelled: Any, frame: str, times: npt.NDArray[np.floating[Any]], start: Any) -> Any:
    """Return an array or a dataset with the times of its frames.

    They are a coordinate called `time`, or as that of the state, whose time they go on from; or `frame` where the name
    is that of another dimension, such as of the samples.

    Args:
        labelled: An array or a dataset of xarray.
        frame: The dimension of the frames.
        times: Of the frames, after the start.
        start: The time of the state, with its name and attributes; None where it says none.
    """
    name, attributes = "time", {"long_name": "time"}
    if start is not None:
        name, times = str(start.name), times + float(start)
        attributes = {key: each for key, each in start.attrs.items() if key in TIME_ATTRIBUTES}
        labelled = labelled.drop_vars(name, errors="ignore")  # of the state alone
    if name in {*labelled.dims, *labelled.coords, *getattr(labelled, "data_vars", ())}:
        name = FRAME
    return labelled.assign_coords({name: (frame, times, attributes)})


def _check_times(info: ModelInfo, name: str, array: Any) -> None:
    """Check that the frames of a labelled input are one step of the model apart, where its coordinates say times."""
    axes = next((each.axes for each in info.arguments if each.name == name), ())
    for axis, dim in zip(axes[-array.ndim :], array.dims, strict=False):
        timed = axis in {FRAME, HISTORY} and str(dim).lower() in TIMES and dim in array.coords
        if timed and (unlike := times.unlike(array.coords[dim].values, info)):
            raise InvalidInput(f'by its coordinate "{dim}", {unlike}: {times.REMEDY}', where=Where(name))


def _check_ends(info: ModelInfo, labelled: Mapping[str, Any]) -> None:
    """Compare where an axis of labelled inputs begins and ends with where it did in the training data.

    Points are taken in the order in which they are given. Where the card does not say how the training data run, an
    axis that falls is worth a look: theirs may run the same way, as latitudes from the north do.

    Raises:
        InvalidInput: An axis runs the other way.
    """
    for axis, trained in zip_longest(info.grid.axes, info.grid.ends, fillvalue=()) if info.grid else ():
        each = (array.coords[axis].values for array in labelled.values() if axis in array.coords and axis in array.dims)
        positions = next(each, np.zeros(0))
        if positions.dtype.kind not in "fiu" or positions.ndim != 1 or len(positions) < 2:
            continue
        start, end = map(float, positions[[0, -1]])
        said = f'the axis "{axis}" of the inputs runs from {start:g} to {end:g}'
        remedy = f"turn it by sortby({axis!r}{', ascending=False' * (start < end)})"
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
    grid, ordered = tuple(info.grid.axes) if info.grid else (), {}
    for name, array in labelled.items():  # the grid's axes last, and the components of a vector before them
        others = sorted((dim for dim in array.dims if dim not in grid), key=lambda dim: dim == COMPONENT)
        turned = array.transpose(*others, *grid) if set(grid) <= set(array.dims) else array
        ordered[name] = _components_in_order(info, name, turned)
        _check_times(info, name, ordered[name])
    _check_ends(info, labelled)
    first = next((tensor for tensor in info.inputs if tensor.name in ordered), None)
    labels = Labels(ordered[first.name], first, labelled[first.name].dims) if first else None
    return {**passed, **ordered}, labels
