"""Check arrays against a model's card and convert them to the batches that the model takes.

The card alone decides: rank, type, grid limits, and whether the quantity is positive. `serving.inference.tokens` has
the rules for sequences of tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from serving.inference import tokens
from serving.inference.location import first
from serving.problem_details import GridOutOfLimits, NonFinite, NonFiniteOutput, NonPositive, WrongShape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from serving.catalogue.card import Card, Grid, Tensor

OTHER = "other"


def batch(arrays: Mapping[str, NDArray[Any]], card: Card) -> tuple[dict[str, NDArray[Any]], bool]:
    """Check the inputs of a model and convert them to batches `[B, ...]` of the card's types.

    Args:
        arrays: One array per input of the card, a single sample or a batch.
        card: The model's card.

    Returns:
        The batches, C-contiguous, and whether the input was a single sample.

    Raises:
        WrongShape: A rank that is neither a sample's nor a batch's, an empty batch, or inputs of different shapes.
        GridOutOfLimits: An axis outside the card's limits.
        NonFinite: NaN, infinity, or a value beyond float32.
        NonPositive: A value at or below zero where the card says positive.
        WrongDtype: Floating-point numbers where the card says integers.
        WrongToken: An integer outside the vocabulary, or padding elsewhere than behind the tokens.
    """
    batches = {tensor.name: _batch(arrays[tensor.name], tensor, card) for tensor in card.inputs}
    lead = card.inputs[0]
    for tensor in card.inputs[1:]:
        if arrays[tensor.name].shape != arrays[lead.name].shape:
            raise WrongShape(
                f"{tensor.name} has shape {arrays[tensor.name].shape} and {lead.name} {arrays[lead.name].shape}; "
                "expected the same",
                array=tensor.name,
            )
    return batches, arrays[lead.name].ndim < len(lead.axes)


def check_output(outputs: Mapping[str, NDArray[np.float32]]) -> None:
    """Refuse outputs that are not finite.

    Raises:
        NonFiniteOutput: NaN or infinity in an output.
    """
    for name, array in outputs.items():
        finite = np.isfinite(array)
        if not finite.all():
            location = first(~finite, name)
            raise NonFiniteOutput(f"the model's output has {location} = {array[location.index]}")


def grid_label(shape: tuple[int, ...], card: Card) -> str:
    """Return the grid for metrics: `141x141` for declared sizes, else `other`, so that labels stay few."""
    return "x".join(map(str, shape)) if card.grid.publishes(shape) else OTHER


def _batch(array: NDArray[Any], tensor: Tensor, card: Card) -> NDArray[Any]:
    values, single = _shaped(array, tensor, card.grid), array.ndim < len(tensor.axes)
    if card.vocabulary is not None:
        return tokens.checked(values, tensor, card.vocabulary, single=single)
    cast = np.ascontiguousarray(values) if values.dtype == np.float32 else _to_float32(values)
    _check_finite(cast, values, tensor, single=single)
    _check_positive(cast, values, tensor, single=single)
    return cast


def _to_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return the values as float32; an overflow becomes inf, which the next check reports."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(values, np.float32)


def _shaped(array: NDArray[Any], tensor: Tensor, grid: Grid) -> NDArray[Any]:
    """Return the array as a batch, after checks of its rank and grid."""
    values = _ranked(array, tensor)
    if len(values) == 0:
        raise WrongShape(
            f'expected at least one field but got shape {array.shape} for "{tensor.name}"', array=tensor.name
        )
    for axis, size in zip(tensor.axes[1:], values.shape[1:], strict=True):
        if not grid.minimum <= size <= grid.maximum:
            raise GridOutOfLimits(
                f'{tensor.name} has {size} points along "{axis}"; the model takes {grid.minimum} to {grid.maximum}',
                array=tensor.name,
            )
    return values


def _ranked(array: NDArray[Any], tensor: Tensor) -> NDArray[Any]:
    rank = len(tensor.axes)
    if array.ndim not in {rank - 1, rank}:
        raise WrongShape(
            f"expected ({', '.join(tensor.axes)}) or ({', '.join(tensor.axes[1:])}) but got shape {array.shape} "
            f'for "{tensor.name}"',
            array=tensor.name,
        )
    return array if array.ndim == rank else array[np.newaxis]


def _check_finite(cast: NDArray[np.float32], values: NDArray[Any], tensor: Tensor, *, single: bool) -> None:
    finite = np.isfinite(cast)
    if not finite.all():
        location = first(~finite, tensor.name, single=single)
        value = values[location.index]
        reason = ", beyond the range of float32" if np.isfinite(value) else "; values must be finite"
        raise NonFinite(f"{location} is {value}{reason}", array=tensor.name, index=location.shown)


def _check_positive(cast: NDArray[np.float32], values: NDArray[Any], tensor: Tensor, *, single: bool) -> None:
    if not tensor.positive:
        return
    positive = cast > 0
    if not positive.all():
        location = first(~positive, tensor.name, single=single)
        value = values[location.index]
        zero = " (zero in float32)" if value > 0 else ""
        raise NonPositive(
            f"{location} is {value}{zero}; {_article(tensor.meaning)} must be positive",
            array=tensor.name,
            index=location.shown,
        )


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
