"""An array as it was read and the model's card in, a float32 batch that the model may be asked about out.

Everything here is decided by the card alone: rank, grid limits, and whether the quantity is positive by its meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from serving.problem_details import GridOutOfLimits, NonFinite, NonFiniteOutput, NonPositive, WrongShape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from serving.schemas import Card, Grid, Tensor

OTHER = "other"


def batch(arrays: Mapping[str, NDArray[Any]], card: Card) -> tuple[dict[str, NDArray[np.float32]], bool]:
    """Check the inputs of a model and bring them to float32 batches `[B, ...]`.

    Args:
        arrays: One array per input of the card, a field or a batch of fields.
        card: The model's card.

    Returns:
        The batches, C-contiguous, and whether the question was a single field.

    Raises:
        WrongShape: A rank that is neither a field's nor a batch's, no fields, or inputs that disagree.
        GridOutOfLimits: An axis outside the card's limits.
        NonFinite: NaN, infinity, or a value beyond float32.
        NonPositive: A value at or below zero where the card says positive.
    """
    batches = {tensor.name: _batch(arrays[tensor.name], tensor, card.grid) for tensor in card.inputs}
    first = card.inputs[0]
    for tensor in card.inputs[1:]:
        if arrays[tensor.name].shape != arrays[first.name].shape:
            raise WrongShape(
                f"{tensor.name} has shape {arrays[tensor.name].shape} and {first.name} {arrays[first.name].shape}; "
                "expected the same",
                array=tensor.name,
            )
    return batches, arrays[first.name].ndim < len(first.axes)


def check_output(outputs: Mapping[str, NDArray[np.float32]]) -> None:
    """Refuse to pass on what is no number.

    Raises:
        NonFiniteOutput: NaN or infinity in an output.
    """
    for name, array in outputs.items():
        finite = np.isfinite(array)
        if not finite.all():
            index = _first(~finite)
            raise NonFiniteOutput(f"the model answered {_place(name, index)} = {array[index]}")


def grid_label(shape: tuple[int, ...], card: Card) -> str:
    """The grid for metrics: `141x141` where each axis has the same declared size, else `other`, so labels stay few."""
    declared = len(set(shape)) == 1 and shape[0] in card.grid.declared
    return "x".join(map(str, shape)) if declared else OTHER


def _batch(array: NDArray[Any], tensor: Tensor, grid: Grid) -> NDArray[np.float32]:
    values = _shaped(array, tensor, grid)
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes inf, which is found and named below
        cast = np.ascontiguousarray(values, np.float32)
    single = array.ndim < len(tensor.axes)
    _check_finite(cast, values, tensor, single=single)
    _check_positive(cast, values, tensor, single=single)
    return cast


def _shaped(array: NDArray[Any], tensor: Tensor, grid: Grid) -> NDArray[Any]:
    """The array as a batch, its rank and grid checked."""
    rank = len(tensor.axes)
    if array.ndim not in {rank - 1, rank}:
        raise WrongShape(
            f"expected ({', '.join(tensor.axes)}) or ({', '.join(tensor.axes[1:])}) but got shape {array.shape} "
            f'for "{tensor.name}"',
            array=tensor.name,
        )
    values = array if array.ndim == rank else array[np.newaxis]
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


def _check_finite(cast: NDArray[np.float32], values: NDArray[Any], tensor: Tensor, *, single: bool) -> None:
    finite = np.isfinite(cast)
    if not finite.all():
        index = _first(~finite)
        beyond = ", beyond the range of float32" if np.isfinite(values[index]) else "; values must be finite"
        shown = index[1:] if single else index
        raise NonFinite(f"{_place(tensor.name, shown)} is {values[index]}{beyond}", array=tensor.name, index=shown)


def _check_positive(cast: NDArray[np.float32], values: NDArray[Any], tensor: Tensor, *, single: bool) -> None:
    if not tensor.positive:
        return
    positive = cast > 0
    if not positive.all():
        index = _first(~positive)
        shown = index[1:] if single else index
        zero = " (zero in float32)" if values[index] > 0 else ""
        raise NonPositive(
            f"{_place(tensor.name, shown)} is {values[index]}{zero}; {_article(tensor.meaning)} must be positive",
            array=tensor.name,
            index=shown,
        )


def _first(bad: NDArray[np.bool_]) -> tuple[int, ...]:
    """Index of the first true value."""
    return tuple(int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))


def _place(name: str, index: tuple[int, ...]) -> str:
    return f"{name}[{','.join(map(str, index))}]"


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
