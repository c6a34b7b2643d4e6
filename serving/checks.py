"""Check arrays against a model's card and convert them to the batches that the model takes.

The card alone decides: rank, type, components, grid limits, whether the quantity is positive and, of sequences, the
vocabulary. What a request leaves out has the card's default. A fault names the first value, by its index in the
caller's own array.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from serving.catalogue.card import FRAME
from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from serving.catalogue.card import Card, Grid, Parameter, Tensor, Vocabulary

OTHER = "other"  # the label of grids that the card does not declare


@dataclass(frozen=True)
class Location:
    """A value of a named array, by its index in the batch, and in the caller's array, which may be a single sample."""

    array: str
    index: tuple[int, ...]
    shown: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.array}[{','.join(map(str, self.shown))}]" if self.shown else self.array

    def problem(self, kind: str, fault: str) -> Problem:
        """Return the error about the value."""
        return Problem(kind, f"{self} {fault}", array=self.array, index=self.shown)


def first(mask: NDArray[np.bool_], array: str, *, single: bool = False) -> Location:
    """Return the location of the first true value, in C order, of a mask over a batch with at least one."""
    index = tuple(int(i) for i in np.unravel_index(int(mask.argmax()), mask.shape))
    return Location(array, index, index[1:] if single else index)


def batch(arrays: Mapping[str, NDArray[Any]], card: Card) -> tuple[dict[str, NDArray[Any]], bool]:
    """Check the inputs and parameters of a model and convert them to batches of the card's types.

    Args:
        arrays: Arrays by name, single samples or batches; those with a default may be missing.
        card: The model's card.

    Returns:
        Inputs `[B, (component), *grid]` and parameters `[B]` by name, C-contiguous, and whether the input was a single
        sample.

    Raises:
        Problem: wrong-input: No input is there, so that the grid is unknown.
        Problem: wrong-shape: A rank that is neither a sample's nor a batch's, another number of components, an empty
            batch, or
            inputs of different shapes.
        Problem: grid-out-of-limits: An axis outside the card's limits.
        Problem: non-finite: NaN, infinity, or a value beyond float32.
        Problem: non-positive: A value at or below zero where the card says positive.
        Problem: out-of-range: A parameter outside the card's limits.
        Problem: wrong-dtype: Floating-point numbers where the card says integers.
        Problem: wrong-token: An integer outside the vocabulary, or padding elsewhere than behind the tokens.
    """
    sent = [tensor for tensor in card.inputs if tensor.name in arrays]
    lead = next((tensor for tensor in sent if tensor.points is None), None)
    if lead is None:
        names = [tensor.name for tensor in card.inputs if tensor.points is None]
        raise Problem(
            "wrong-input", f"no input was sent, so the grid is unknown; send {' or '.join(names)}", array=names[0]
        )
    found = {tensor.name: _batch(arrays[tensor.name], tensor, card) for tensor in sent}
    for tensor in sent:
        _check_same_shape(arrays, tensor, lead)
    single = _is_single(arrays, lead)
    if len(sent) == len(card.names):
        return found, single
    size, count = _without_components(found[lead.name].shape, lead, 1), sent_frames(found, card)
    fields = {each.name: found[each.name] if each in sent else _constant(each, size, count) for each in card.inputs}
    numbers = {each.name: _numbers(arrays.get(each.name), each, size[0]) for each in card.parameters}
    return fields | numbers, single


def sent_frames(arrays: Mapping[str, NDArray[Any]], card: Card) -> int | None:
    """Return the frames of cotangents `[B, frame, ...]`; None where no input has frames.

    Args:
        arrays: Batches by name; some may be missing.
        card: The model's card.

    Raises:
        Problem: wrong-shape: Two have different frames.
    """
    found = [(name, arrays[name].shape[1]) for name in _with_frames(card) if name in arrays]
    for name, count in found[1:]:
        if count != found[0][1]:
            raise Problem("wrong-shape", f"{name} has {count} frames and {found[0][0]} {found[0][1]}", array=name)
    return found[0][1] if found else None


def _with_frames(card: Card) -> list[str]:
    return [tensor.name for tensor in card.inputs if FRAME in tensor.axes]


def frames(arrays: Mapping[str, NDArray[Any]], count: int, card: Card, max_bytes: int) -> NDArray[np.int32]:
    """Return the argument `[B, frame]` whose shape says how many frames are wanted.

    Args:
        arrays: The checked inputs.
        count: The number of frames.
        card: The model's card.
        max_bytes: The most bytes of all frames of one output.

    Raises:
        Problem: invalid-parameter: The frames of all samples take more.
        Problem: wrong-shape: Cotangents have other frames.
    """
    sent = sent_frames(arrays, card)
    if sent not in {None, count}:
        name = _with_frames(card)[0]
        raise Problem("wrong-shape", f"{name} has {sent} frames; expected {count}, as frames says", array=name)
    samples, points = len(next(iter(arrays.values()))), math.prod(card.grid_of(arrays))
    most = max_bytes // (4 * samples * points * max(math.prod(tensor.vector) for tensor in card.outputs))
    if count > most:
        raise Problem(
            "invalid-parameter",
            f"frames: expected at most {most} of {samples} samples with {points} points but got {count}",
        )
    return np.zeros((samples, count), np.int32)


def not_finite(outputs: Mapping[str, NDArray[np.float32]]) -> NDArray[np.bool_]:
    """Return which samples `[B]` of outputs `[B, ...]` hold NaN or infinity."""
    failed = np.zeros(len(next(iter(outputs.values()))), np.bool_)
    for array in outputs.values():
        failed |= ~np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
    return failed


def output_fault(
    outputs: Mapping[str, NDArray[np.float32]], failed: NDArray[np.bool_], card: Card, *, single: bool
) -> Problem:
    """Return the error about samples that a model failed on.

    Args:
        outputs: Batches `[B, ...]` by name.
        failed: Which samples hold NaN or infinity; at least one does.
        card: The model's card.
        single: Whether the caller sent one sample.
    """
    sample, model = int(failed.argmax()), f'the output of "{card.model}" version {card.version}'
    name, array = next((name, array) for name, array in outputs.items() if not np.isfinite(array[sample]).all())
    location = first(~np.isfinite(array[sample : sample + 1]), name, single=True)
    value = array[sample][location.shown]
    others = ""
    if not failed.all():
        others = f"; {int(failed.sum())} of {len(failed)} samples fail, and partial=true returns the others"
    which = f" for {'this' if single else f'sample {sample} of'} {', '.join(tensor.name for tensor in card.inputs)}"
    return Problem(
        "non-finite-output",
        f"{model}{which} is not finite ({location} is {value}){others}",
        array=card.inputs[0].name,
        index=None if single else [sample],
    )


def grid_label(shape: tuple[int, ...], card: Card) -> str:
    """Return the grid for metrics: `141x141` for declared sizes, else `other`, so that labels stay few."""
    return "x".join(map(str, shape)) if shape in card.grid.shapes else OTHER


def _check_same_shape(arrays: Mapping[str, NDArray[Any]], tensor: Tensor, lead: Tensor) -> None:
    """Check that two inputs have the same number of samples and, unless the model fixes one of them, the same grid."""
    own, other = (
        _without_components(arrays[one.name].shape, one, 0 if _is_single(arrays, one) else 1) for one in (tensor, lead)
    )
    axes = len(tensor.axes) - 1 - len(tensor.leading)
    if tensor.points is not None:
        own, other = own[:-axes], other[:-axes]
    if own != other:
        raise Problem(
            "wrong-shape",
            f"{tensor.name} has shape {arrays[tensor.name].shape} and {lead.name} {arrays[lead.name].shape}; "
            "expected the same samples and grid",
            array=tensor.name,
        )


def _is_single(arrays: Mapping[str, NDArray[Any]], tensor: Tensor) -> bool:
    return arrays[tensor.name].ndim < len(tensor.axes)


def _without_components(shape: tuple[int, ...], tensor: Tensor, axis: int) -> tuple[int, ...]:
    """Return a shape without frames and the components of a vector field, which are at that axis."""
    return (*shape[:axis], *shape[axis + len(tensor.leading) :])


def _constant(tensor: Tensor, size: tuple[int, ...], frames: int | None) -> NDArray[np.float32]:
    """Return an input that was left out: its default on `(batch, *grid)`, for as many frames as the others have."""
    leading = (frames or 0 if each is None else each for each in tensor.leading)
    return np.full((size[0], *leading, *(tensor.points or size[1:])), tensor.default, np.float32)


def _numbers(array: NDArray[Any] | None, parameter: Parameter, count: int) -> NDArray[np.float32]:
    """Return the values `[B]` of a parameter: one per sample, one for all of them, or its default."""
    if array is None:
        return np.full(count, parameter.default, np.float32)
    if array.shape not in {(), (count,)}:
        raise Problem(
            "wrong-shape",
            f"{parameter.name} has shape {array.shape}; expected one number, or one per sample ({count},)",
            array=parameter.name,
        )
    with np.errstate(over="ignore", invalid="ignore"):
        cast = np.asarray(array, np.float32)
    _check_finite(cast, array, parameter.name, single=False)
    _check_range(cast, array, parameter)
    return np.ascontiguousarray(np.broadcast_to(cast, (count,)))


def _check_range(cast: NDArray[np.float32], values: NDArray[Any], parameter: Parameter) -> None:
    low, high = (
        np.float32(no_bound if bound is None else bound)
        for bound, no_bound in ((parameter.minimum, -np.inf), (parameter.maximum, np.inf))
    )
    outside = (cast < low) | (cast > high)
    if outside.any():
        location = first(outside, parameter.name)
        raise location.problem("out-of-range", f"is {values[location.index]}; expected {low:g} to {high:g}")


def _batch(array: NDArray[Any], tensor: Tensor, card: Card) -> NDArray[Any]:
    values, single = _shaped(array, tensor, card.grid), array.ndim < len(tensor.axes)
    if card.vocabulary is not None:
        return tokens(values, tensor, card.vocabulary, single=single)
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes inf, which the next check reports
        cast = np.ascontiguousarray(values, np.float32)
    _check_finite(cast, values, tensor.name, single=single)
    _check_positive(cast, values, tensor, single=single)
    return cast


def _shaped(array: NDArray[Any], tensor: Tensor, grid: Grid) -> NDArray[Any]:
    """Return the array as a batch, after checks of its rank and grid."""
    rank = len(tensor.axes)
    if array.ndim not in {rank - 1, rank}:
        raise Problem(
            "wrong-shape",
            f"expected ({', '.join(tensor.axes)}) or ({', '.join(tensor.axes[1:])}) but got shape {array.shape} "
            f'for "{tensor.name}"',
            array=tensor.name,
        )
    values = array if array.ndim == rank else array[np.newaxis]
    if len(values) == 0:
        raise Problem(
            "wrong-shape",
            f'expected at least one field but got shape {array.shape} for "{tensor.name}"',
            array=tensor.name,
        )
    count = len(tensor.leading)
    for size, expected in zip(values.shape[1 : 1 + count], tensor.leading, strict=True):
        if size != expected and expected is not None:
            names = f" ({', '.join(tensor.components)})" if tensor.components else ""
            raise Problem(
                "wrong-shape", f"{tensor.name} has {size} components; expected {expected}{names}", array=tensor.name
            )
        if size == 0:
            raise Problem("wrong-shape", f"{tensor.name} has no frames", array=tensor.name)
    for axis, fixed, size in zip(grid.axes, tensor.sizes[1 + count :], values.shape[1 + count :], strict=True):
        if fixed is not None and size != fixed:
            raise Problem(
                "wrong-shape", f'{tensor.name} has {size} points along "{axis}"; expected {fixed}', array=tensor.name
            )
        if fixed is None and not grid.minimum <= size <= grid.maximum:
            raise Problem(
                "grid-out-of-limits",
                f'{tensor.name} has {size} points along "{axis}"; the model takes {grid.minimum} to {grid.maximum}',
                array=tensor.name,
            )
    return values


def _check_finite(cast: NDArray[np.float32], values: NDArray[Any], name: str, *, single: bool) -> None:
    finite = np.isfinite(cast)
    if not finite.all():
        location = first(~finite, name, single=single)
        value = values[location.index]
        reason = ", beyond the range of float32" if np.isfinite(value) else "; values must be finite"
        raise location.problem("non-finite", f"is {value}{reason}")


def _check_positive(cast: NDArray[np.float32], values: NDArray[Any], tensor: Tensor, *, single: bool) -> None:
    if not tensor.positive:
        return
    positive = cast > 0
    if not positive.all():
        location = first(~positive, tensor.name, single=single)
        value = values[location.index]
        zero = " (zero in float32)" if value > 0 else ""
        article = "an" if tensor.meaning[:1].lower() in "aeiou" else "a"
        raise location.problem("non-positive", f"is {value}{zero}; {article} {tensor.meaning} must be positive")


def tokens(values: NDArray[Any], tensor: Tensor, vocabulary: Vocabulary, *, single: bool) -> NDArray[np.int32]:
    """Return sequences `[B, L]` of integers of any size as int32.

    0 is padding, which belongs behind the tokens: the model ignores it there, and would read it anywhere else.

    Raises:
        Problem: wrong-dtype: Floating-point numbers or booleans, even where they are whole.
        Problem: wrong-token: A number outside the vocabulary, a sequence without a token, or padding before a token.
    """
    if values.dtype.kind not in "iu":
        raise Problem(
            "wrong-dtype",
            f"{tensor.name} holds {values.dtype.name}; expected integers, the numbers of words",
            array=tensor.name,
        )
    size = len(vocabulary.words)
    unknown = (values < 0) | (values >= size)
    if unknown.any():
        location = first(unknown, tensor.name, single=single)
        raise location.problem("wrong-token", f"is {values[location.index]}; the vocabulary has {size} words")
    padding = values == 0
    misplaced = padding & np.logical_or.accumulate(~padding[:, ::-1], axis=1)[:, ::-1]
    misplaced[:, 0] |= padding[:, 0]
    if misplaced.any():
        location = first(misplaced, tensor.name, single=single)
        raise location.problem("wrong-token", "is 0, which is padding and belongs behind the words")
    return np.ascontiguousarray(values, np.int32)
