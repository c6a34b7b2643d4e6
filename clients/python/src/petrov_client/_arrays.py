"""The input of a prediction, checked and cut into pieces of request size, and its output, put together from pieces.

A model's input has axes (batch, …). The caller may pass one field, without the batch axis, and receives one field, or a
batch of any size. Arrays with `shape`, `dtype` and slicing (NumPy, memory maps, HDF5 datasets) are read a piece at a
time, so a batch may be larger than memory. Pieces are float32, or int32 for tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from petrov_client._exceptions import InvalidInput, InvalidResponse, Where
from petrov_client._vocabulary import PADDING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from petrov_client._models import GridInfo, ModelInfo, TensorInfo

Fields = npt.NDArray[np.float32]
WIRE_TYPES: Mapping[str, str] = {"FP32": "<f4", "INT32": "<i4"}

#: Bytes of one request. Beyond a few megabytes larger requests are no faster, and a lost one costs more.
PIECE_BYTES = 8 * 2**20


@dataclass(frozen=True)
class PredictionInput:
    """A field or a batch that fits a model.

    Attributes:
        array: Anything with `shape`, `dtype` and slicing along its first axis.
        info: The model.
        single: Whether the array is one field, without the batch axis.
    """

    array: Any
    info: ModelInfo
    single: bool

    def __len__(self) -> int:
        """Return the number of fields."""
        return 1 if self.single else int(self.array.shape[0])

    @property
    def grid(self) -> tuple[int, ...]:
        """The points per axis of one field."""
        return tuple(self.array.shape) if self.single else tuple(self.array.shape[1:])

    def pieces(self) -> list[slice]:
        """Return the consecutive slices of the batch that one request may hold each."""
        affordable = max(1, PIECE_BYTES // (4 * math.prod(self.grid)))
        step = min(self.info.batch, affordable)
        return [slice(start, min(start + step, len(self))) for start in range(0, len(self), step)]

    def values(self, piece: slice) -> npt.NDArray[Any]:
        """Return a piece in the caller's own type, the batch axis first."""
        return np.asarray(self.array)[np.newaxis] if self.single else np.asarray(self.array[piece])

    def fields(self, piece: slice) -> npt.NDArray[Any]:
        """Return a piece in the model's own type and in C order, the batch axis first."""
        with np.errstate(over="ignore"):  # a value that overflows becomes infinite, and the check of values finds it
            return np.ascontiguousarray(self.values(piece), dtype=WIRE_TYPES[self.info.inputs[0].dtype])


class PredictionOutput:
    """The output for an input, checked or filled in piece by piece, in any order."""

    def __init__(self, source: PredictionInput) -> None:
        self._source = source
        self._grid: tuple[int, ...] | None = None
        self._array: Fields | None = None

    def checked(self, piece: slice, fields: Fields) -> Fields:
        """Return the output for one piece, if it has the right shape.

        Raises:
            InvalidResponse: The number of fields differs from the input's, or the grid from that of earlier pieces.
        """
        if self._grid is None:
            self._grid = fields.shape[1:]
        expected = (piece.stop - piece.start, *self._grid)
        if fields.shape != expected:
            raise InvalidResponse(f"expected a response of shape {expected} but got {fields.shape}")
        return fields

    def put(self, piece: slice, fields: Fields) -> int:
        """Copy the output for one piece into the whole, and return its number of fields.

        Raises:
            InvalidResponse: As `checked`.
        """
        self.checked(piece, fields)
        if self._array is None:
            self._array = np.empty((len(self._source), *fields.shape[1:]), np.float32)
        self._array[piece] = fields
        return len(fields)

    def array(self) -> Fields:
        """Return the whole output, with the rank of the input.

        Raises:
            InvalidResponse: There was no piece.
        """
        if self._array is None:
            raise InvalidResponse("expected a response but got none")
        return self._array[0] if self._source.single else self._array


def check_input(info: ModelInfo, array: Any) -> PredictionInput:
    """Check an array-like against the description of a model, all of it before anything is sent.

    Args:
        info: The model.
        array: Real numbers, one field `[…]` or a batch `[batch, …]`; integers for a sequence model.

    Raises:
        InvalidInput: Type, rank or grid do not fit, or a value is not finite, not positive or not in the vocabulary;
            `.where` names the input and, for a value, its index.
    """
    tensor = _only_input(info)
    values = _array(array, tensor)
    checked = PredictionInput(values, info, single=_is_single(values.shape, tensor))
    _check_grid(checked, tensor, info.grid)
    for piece in checked.pieces():
        _check_values(checked, piece, tensor)
    return checked


def _only_input(info: ModelInfo) -> TensorInfo:
    if len(info.inputs) != 1 or len(info.outputs) != 1:
        raise InvalidInput(
            f'"{info.name}" has {len(info.inputs)} inputs and {len(info.outputs)} outputs; '
            "predict supports models with one input and one output"
        )
    tensor = info.inputs[0]
    if tensor.dtype not in WIRE_TYPES:
        raise InvalidInput(f'"{info.name}" expects {tensor.dtype}; predict sends {" or ".join(WIRE_TYPES)}')
    return tensor


def _array(array: Any, tensor: TensorInfo) -> Any:
    """Return the array itself where it can be sliced as it is, else a NumPy array."""
    if not isinstance(getattr(array, "dtype", None), np.dtype) or not hasattr(array, "shape"):
        try:
            array = np.asarray(array)
        except (TypeError, ValueError) as error:  # rows that differ in length
            raise _refusal(tensor, f'expected an array of numbers for "{tensor.name}" but: {error}') from error
    kinds, expected = ("iu", "integers") if tensor.dtype == "INT32" else ("fiu", "real numbers")
    if array.dtype.kind not in kinds:
        raise _refusal(tensor, f'expected {expected} but got {array.dtype} for "{tensor.name}"')
    return array


def _is_single(shape: tuple[int, ...], tensor: TensorInfo) -> bool:
    rank = len(tensor.axes)
    if len(shape) not in (rank - 1, rank) or not all(shape):
        batch, field = ", ".join(tensor.axes), ", ".join(tensor.axes[1:])
        raise _refusal(
            tensor, f'expected ({field}) or ({batch}), none of them empty, but got {tuple(shape)} for "{tensor.name}"'
        )
    return len(shape) == rank - 1


def _check_grid(checked: PredictionInput, tensor: TensorInfo, grid: GridInfo | None) -> None:
    for axis, points, fixed in zip(tensor.axes[1:], checked.grid, tensor.shape[1:], strict=True):
        if fixed is not None and points != fixed:
            raise _refusal(tensor, f'expected {fixed} points along {axis} but got {points} for "{tensor.name}"')
        if grid is not None and not grid.minimum <= points <= grid.maximum:
            raise _refusal(
                tensor,
                f'expected {grid.minimum} to {grid.maximum} points along {axis} but got {points} for "{tensor.name}"',
            )


def _check_values(checked: PredictionInput, piece: slice, tensor: TensorInfo) -> None:
    if tensor.dtype == "INT32":
        _check_tokens(checked, piece)
        return
    fields = checked.fields(piece)
    finite = np.isfinite(fields)
    if not finite.all():
        raise _bad_value(checked, piece, ~finite, "every value must be finite in float32")
    if tensor.positive and not (fields > 0).all():
        raise _bad_value(checked, piece, fields <= 0, f"{tensor.meaning or tensor.name} must be positive")


def _check_tokens(checked: PredictionInput, piece: slice) -> None:
    """Check that every number is in the vocabulary, and that padding only follows the words of a sequence."""
    tokens, vocabulary = checked.values(piece), checked.info.vocabulary
    if vocabulary is None:
        _check_range(checked, piece, range(-(2**31), 2**31), "expected a number that int32 holds")
        return
    size = len(vocabulary.words)
    _check_range(checked, piece, range(size), f"the vocabulary has {size} words")
    padding = tokens == PADDING
    misplaced = padding & np.logical_or.accumulate(~padding[:, ::-1], axis=1)[:, ::-1]
    misplaced[:, 0] |= padding[:, 0]
    if misplaced.any():
        raise _bad_value(checked, piece, misplaced, "that is padding and belongs behind the words")


def _check_range(checked: PredictionInput, piece: slice, allowed: range, rule: str) -> None:
    tokens = checked.values(piece)
    outside = (tokens < allowed.start) | (tokens >= allowed.stop)
    if outside.any():
        raise _bad_value(checked, piece, outside, rule)


def _bad_value(checked: PredictionInput, piece: slice, bad: npt.NDArray[np.bool_], rule: str) -> InvalidInput:
    """Return the error that names the first bad value by its index in the caller's own array."""
    first = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    index = first[1:] if checked.single else (piece.start + first[0], *first[1:])
    where = Where(checked.info.inputs[0].name, index)
    return InvalidInput(f"{where} is {checked.array[index]}; {rule}", where=where)


def _refusal(tensor: TensorInfo, message: str) -> InvalidInput:
    return InvalidInput(message, where=Where(tensor.name))
