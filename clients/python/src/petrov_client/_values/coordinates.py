"""The dimensions and coordinates of xarray inputs, which the outputs keep; xarray is optional."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from petrov_client._values.exceptions import InvalidInput
from petrov_client._values.models import COMPONENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from petrov_client._values.arrays import Fields
    from petrov_client._values.models import ModelInfo, TensorInfo


@dataclass(frozen=True)
class Labels:
    """The names of the axes of an input, and its coordinates.

    Attributes:
        template: The input as a `DataArray`, its dimensions in the order of the model's axes.
        tensor: The model's input.
        order: The dimensions in the caller's order.
    """

    template: Any
    tensor: TensorInfo
    order: tuple[str, ...]

    def put_on(self, output: Fields, tensor: TensorInfo, piece: slice | None = None) -> Any:
        """Return an output as a `DataArray`.

        It has the dimensions of the input and all of its coordinates that fit, and the units and meaning of the model.

        Args:
            output: The output of the whole input, or of a piece of the batch.
            tensor: The model's output.
            piece: The piece; None for the whole.
        """
        template = self.template if piece is None else self.template[piece]
        names = dict(zip(self.tensor.axes[-template.ndim :], template.dims, strict=True))
        dims = [names.get(axis, axis) for axis in tensor.axes[-output.ndim :]]
        sizes = dict(zip(dims, output.shape, strict=True))
        coords = {name: each for name, each in template.coords.items() if each.sizes.items() <= sizes.items()}
        if tensor.components and COMPONENT in dims:
            coords.setdefault(COMPONENT, list(tensor.components))
        attributes = {"units": tensor.units, "long_name": tensor.meaning}
        known = {name: text for name, text in attributes.items() if text}
        labelled = type(template)(output, coords, dims, tensor.name, known)
        return labelled.transpose(*self.order) if set(dims) == set(self.order) else labelled


def split(info: ModelInfo, passed: Mapping[str, Any]) -> tuple[dict[str, Any], Labels | None]:
    """Return the arrays in the order of the model's axes, and the labels of the first that has any.

    The dimensions of an input may have any order where they have the names of the grid's axes.

    Args:
        info: The model.
        passed: Arrays by name, `DataArray` or not.

    Raises:
        InvalidInput: The inputs differ in a coordinate.
    """
    labelled = {name: array for name, array in passed.items() if _is_labelled(array)}
    _check_aligned(labelled)
    grid = tuple(info.grid.axes) if info.grid else ()
    ordered = {name: _ordered(array, grid) for name, array in labelled.items()}
    first = next((tensor for tensor in info.inputs if tensor.name in ordered), None)
    labels = Labels(ordered[first.name], first, labelled[first.name].dims) if first else None
    return {**passed, **ordered}, labels


def _is_labelled(array: Any) -> bool:
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(array, xarray.DataArray)


def _ordered(array: Any, grid: tuple[str, ...]) -> Any:
    """Return an array with the grid's axes last, and the components of a vector before them."""
    if not set(grid) <= set(array.dims):
        return array
    others = sorted((name for name in array.dims if name not in grid), key=lambda name: name == COMPONENT)
    return array.transpose(*others, *grid)


def _check_aligned(arrays: Mapping[str, Any]) -> None:
    if len(arrays) < 2:
        return
    import xarray  # noqa: PLC0415  the caller has imported it

    try:
        xarray.align(*arrays.values(), join="exact", copy=False)
    except ValueError as error:
        names = " and ".join(arrays)
        raise InvalidInput(f"expected {names} on the same coordinates but: {error}") from error
