"""An array-like of numbers in, checked pieces of request size out; and the pieces of the answer back into one.

A model's input has axes (batch, …). The caller may pass one field, without the batch axis, and gets one field back; or
a batch of any size. Arrays with `shape`, `dtype` and slicing (NumPy, memory maps, HDF5 datasets) are read a piece at a
time, so a batch larger than memory costs no more than its answer. Pieces are float32, or int32 for tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from petrov_client._exceptions import InvalidInput, UnreadableAnswer, Where
from petrov_client._vocabulary import PADDING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from petrov_client._models import GridInfo, ModelInfo, TensorInfo

Fields = npt.NDArray[np.float32]
WIRE_TYPES: Mapping[str, str] = {"FP32": "<f4", "INT32": "<i4"}

#: Bytes of one request. Beyond a few megabytes larger requests are no faster, and a lost one costs more.
PIECE_BYTES = 8 * 2**20


@dataclass(frozen=True)
class Question:
    """A field or a batch that fits a model.

    Attributes:
        array: Anything with `shape`, `dtype` and slicing along its first axis.
        info: The model that is asked.
        single: Whether the array is one field, without the batch axis.
    """

    array: Any
    info: ModelInfo
    single: bool

    def __len__(self) -> int:
        """Number of fields."""
        return 1 if self.single else int(self.array.shape[0])

    @property
    def grid(self) -> tuple[int, ...]:
        """Points per axis of one field."""
        return tuple(self.array.shape) if self.single else tuple(self.array.shape[1:])

    def pieces(self) -> list[slice]:
        """Cut the batch into runs of fields that one request may hold."""
        affordable = max(1, PIECE_BYTES // (4 * math.prod(self.grid)))
        step = min(self.info.batch, affordable)
        return [slice(start, min(start + step, len(self))) for start in range(0, len(self), step)]

    def numbers(self, piece: slice) -> npt.NDArray[Any]:
        """Read a piece as it is, the batch axis first."""
        return np.asarray(self.array)[np.newaxis] if self.single else np.asarray(self.array[piece])

    def fields(self, piece: slice) -> npt.NDArray[Any]:
        """Read a piece in the model's own type, C order, the batch axis first."""
        with np.errstate(over="ignore"):  # what overflows is infinite then, and found by the check of values
            return np.ascontiguousarray(self.numbers(piece), dtype=WIRE_TYPES[self.info.inputs[0].dtype])


class Answer:
    """The solutions of a question, checked or filled in piece by piece, in any order."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._grid: tuple[int, ...] | None = None
        self._output: Fields | None = None

    def checked(self, piece: slice, fields: Fields) -> Fields:
        """The answer to one piece.

        Raises:
            UnreadableAnswer: It does not have a field for each field asked, or not the grid of the pieces before it.
        """
        if self._grid is None:
            self._grid = fields.shape[1:]
        expected = (piece.stop - piece.start, *self._grid)
        if fields.shape != expected:
            raise UnreadableAnswer(f"expected an answer of shape {expected} but got {fields.shape}")
        return fields

    def put(self, piece: slice, fields: Fields) -> int:
        """Copy the answer to one piece into its place, and return its number of fields.

        Raises:
            UnreadableAnswer: As `checked`.
        """
        self.checked(piece, fields)
        if self._output is None:
            self._output = np.empty((len(self._question), *fields.shape[1:]), np.float32)
        self._output[piece] = fields
        return len(fields)

    def array(self) -> Fields:
        """The whole answer, with the rank of the question."""
        if self._output is None:
            raise UnreadableAnswer("expected an answer but got none")
        return self._output[0] if self._question.single else self._output


def ask(info: ModelInfo, array: Any) -> Question:
    """Check an array-like against what is known of a model; nothing is sent before all of it is found good.

    Args:
        info: The model.
        array: Real numbers, one field `[…]` or a batch `[batch, …]`; integers for a model of sequences.

    Raises:
        InvalidInput: It does not fit: type, rank, grid, not finite, not positive, no word. `.where` names the place.
    """
    tensor = _only_input(info)
    numbers = _numbers(array, tensor)
    question = Question(numbers, info, single=_is_single(numbers.shape, tensor))
    _check_grid(question, tensor, info.grid)
    for piece in question.pieces():
        _check_values(question, piece, tensor)
    return question


def _only_input(info: ModelInfo) -> TensorInfo:
    if len(info.inputs) != 1 or len(info.outputs) != 1:
        raise InvalidInput(
            f'"{info.name}" takes {len(info.inputs)} arrays and gives {len(info.outputs)}; '
            "predict asks models that take one and give one"
        )
    tensor = info.inputs[0]
    if tensor.dtype not in WIRE_TYPES:
        raise InvalidInput(f'"{info.name}" takes {tensor.dtype}; predict sends {" or ".join(WIRE_TYPES)}')
    return tensor


def _numbers(array: Any, tensor: TensorInfo) -> Any:
    """The array itself where it can be sliced as it is, else as a NumPy array."""
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


def _check_grid(question: Question, tensor: TensorInfo, grid: GridInfo | None) -> None:
    for axis, points, fixed in zip(tensor.axes[1:], question.grid, tensor.shape[1:], strict=True):
        if fixed is not None and points != fixed:
            raise _refusal(tensor, f'expected {fixed} points along {axis} but got {points} for "{tensor.name}"')
        if grid is not None and not grid.minimum <= points <= grid.maximum:
            raise _refusal(
                tensor,
                f'expected {grid.minimum} to {grid.maximum} points along {axis} but got {points} for "{tensor.name}"',
            )


def _check_values(question: Question, piece: slice, tensor: TensorInfo) -> None:
    if tensor.dtype == "INT32":
        _check_tokens(question, piece)
        return
    fields = question.fields(piece)
    finite = np.isfinite(fields)
    if not finite.all():
        raise _bad_value(question, piece, ~finite, "every value must be finite in float32")
    if tensor.positive and not (fields > 0).all():
        raise _bad_value(question, piece, fields <= 0, f"{tensor.meaning or tensor.name} must be positive")


def _check_tokens(question: Question, piece: slice) -> None:
    """Every number is a word of the model or, behind the words of a sequence, padding."""
    tokens, known = question.numbers(piece), question.info.vocabulary
    if known is None:
        _check_range(question, piece, -(2**31), 2**31, "expected a number that int32 holds")
        return
    _check_range(question, piece, 0, len(known.words), f"the vocabulary has {len(known.words)} words")
    padding = tokens == PADDING
    misplaced = padding & np.logical_or.accumulate(~padding[:, ::-1], axis=1)[:, ::-1]
    misplaced[:, 0] |= padding[:, 0]
    if misplaced.any():
        raise _bad_value(question, piece, misplaced, "that is padding and belongs behind the words")


def _check_range(question: Question, piece: slice, low: int, high: int, rule: str) -> None:
    tokens = question.numbers(piece)
    outside = (tokens < low) | (tokens >= high)
    if outside.any():
        raise _bad_value(question, piece, outside, rule)


def _bad_value(question: Question, piece: slice, bad: npt.NDArray[np.bool_], rule: str) -> InvalidInput:
    """Name the first bad value by its index in the caller's own array."""
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    index = place[1:] if question.single else (piece.start + place[0], *place[1:])
    where = Where(question.info.inputs[0].name, index)
    return InvalidInput(f"{where} is {question.array[index]}; {rule}", where=where)


def _refusal(tensor: TensorInfo, message: str) -> InvalidInput:
    return InvalidInput(message, where=Where(tensor.name))
